"""Runs TorchMetrics' own tests on syncfree, and tells which of them pass only on TorchMetrics.

`make upstream CHECKOUT=folder` takes a clone of TorchMetrics at the installed version. Its tests
run twice: as they are, and with the word `torchmetrics` replaced by `syncfree` in their import
lines. They need packages of their own (`requirements/*_test.txt` there); without, fewer run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

PATHS = [
    *(f"unittests/{name}" for name in ("bases", "wrappers", "utilities")),
    *(f"unittests/image/test_{name}.py" for name in ("psnr", "ssim", "ms_ssim")),
    "unittests/classification/test_accuracy.py",
    "integrations",
]

# By the prefix of their names: tests that fail on syncfree, as docs/differences.md or
# docs/migrating.md says.
DOCUMENTED = {
    "unittests.image.test_psnr::test_reduction_for_dim_none": (
        "PSNR `reduction` without `dim` does not warn"
    ),
    "unittests.image.test_ssim::test_ssim_invalid_inputs[pred0-": (
        "a wrong number of sigmas is said of `sigma`, not of `kernel_size`"
    ),
    "unittests.bases.test_collections::test_collection_state_being_re_established_after_copy": (
        "metrics of families that a collection does not know stay alone"
    ),
    "unittests.bases.test_metric::test_custom_availability_check_and_sync_fn": (
        "`dist_sync_fn` is called for one state more"
    ),
    "unittests.wrappers.test_classwise::test_double_use_of_prefix_with_metriccollection": (
        "scores with a target of the same shape raise"
    ),
}


def check_version(checkout: Path) -> None:
    """Raises unless the clone has the installed version: newer tests may need newer code."""
    about = checkout / "src" / "torchmetrics" / "__about__.py"
    if not about.is_file():
        raise SystemExit(f"Expected a clone of TorchMetrics, but {checkout} has no {about.name}.")
    found = re.search(r'__version__ = "(.+)"', about.read_text())
    installed = metadata.version("torchmetrics")
    if found is None or found[1] != installed:
        raise SystemExit(
            f"Expected the tests of TorchMetrics {installed}, which is installed, but {checkout} "
            f"has those of {found and found[1]}. Run `git checkout v{installed}` there."
        )


def replace_imports(folder: Path) -> None:
    """Replaces the word in the import lines, as docs/migrating.md says."""
    for file in folder.rglob("*.py"):
        text = file.read_text()
        file.write_text(re.sub(r"(?m)^(\s*from) torchmetrics\b", r"\1 syncfree", text))


def passed(folder: Path, paths: list[str]) -> set[str]:
    """Runs the tests in a copy of them; returns the names of those that pass."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider"]
    options = ["--continue-on-collection-errors", "--tb=short", f"--junitxml={report}"]
    # TorchMetrics' own switch for tests with two processes, and a matplotlib backend without a
    # display.
    environment = {"USE_PYTEST_POOL": "1", "MPLBACKEND": "Agg", **os.environ}
    subprocess.run([*command, *options, *paths], cwd=folder, env=environment, check=False)
    if not report.is_file():
        raise SystemExit("pytest ended before it could run the tests; its message is above.")
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(report).iter("testcase")
        if not any(part.tag in ("failure", "error", "skipped") for part in case)
    }


def main() -> None:
    """Compares the two runs; exits with 1 for a difference that no document names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a clone of TorchMetrics")
    parser.add_argument("paths", nargs="*", default=PATHS, help="below its folder tests")
    arguments = parser.parse_args()
    check_version(arguments.checkout)
    with tempfile.TemporaryDirectory() as scratch:
        theirs, ours = (
            shutil.copytree(arguments.checkout / "tests", Path(scratch) / name)
            for name in ("theirs", "ours")
        )
        replace_imports(ours)
        before, after = (passed(folder, arguments.paths) for folder in (theirs, ours))
    lost = sorted(before - after)
    print(f"{len(before)} pass with TorchMetrics, {len(before) - len(lost)} of them with syncfree")
    unknown = 0
    for name in lost:
        reasons = [why for start, why in DOCUMENTED.items() if name.startswith(start)]
        unknown += not reasons
        print(f"  {name}: {reasons[0] if reasons else 'NOT DOCUMENTED'}")
    sys.exit(1 if unknown else 0)


if __name__ == "__main__":
    main()
