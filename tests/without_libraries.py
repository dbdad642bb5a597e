"""A process of its own in which one of the optional libraries is not to be found."""

from __future__ import annotations

import subprocess
import sys


def prints_an_accuracy(absent: str, is_absent: str, device: str) -> None:
    """Asserts that a metric works all the same.

    ``absent`` hides the library before any is loaded; ``is_absent`` is true then.
    """
    program = (
        f"{absent}\n"
        "import torch, syncfree\n"
        "from syncfree.functional import binary_accuracy\n"
        f"assert {is_absent}\n"
        f"preds, target = torch.tensor([[1, 0], [1, 1]], device={device!r})\n"
        "print(binary_accuracy(preds, target).item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.stdout == "0.5\n", done.stderr
