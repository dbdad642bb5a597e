"""Prints `directory;version;CUDA version;compute capabilities` of the torch that this Python sees.

Reads torch's version file instead of importing torch, which would take seconds.
"""

import importlib.util
import pathlib
import runpy
import shutil
import subprocess
import sys


def compute_capabilities() -> list[str]:
    """The compute capabilities of this machine's GPUs, such as 90."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        return []
    return sorted(
        {line.strip().replace(".", "") for line in answer.stdout.splitlines() if line.strip()}
    )


spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(1)
directory = pathlib.Path(spec.submodule_search_locations[0])
version = runpy.run_path(str(directory / "version.py"))
gpus = ",".join(compute_capabilities()) or "none"
print(directory, version["__version__"], version.get("cuda") or "none", gpus, sep=";")
