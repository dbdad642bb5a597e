"""Prints `directory;version;CUDA version;compute capabilities` of the torch that this Python sees.

Reads torch's version file instead of importing torch, which would take seconds.
"""

import importlib.util
import pathlib
import runpy
import shutil
import subprocess
import sys


def compute_capabilities(patience_s: float = 60) -> list[str]:
    """The compute capabilities of this machine's GPUs, such as 90.

    None of them if nvidia-smi is missing, fails, or does not answer in time, which is told.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        print(
            f"syncfree: nvidia-smi did not answer within {patience_s:g} s, so this machine's GPUs "
            "are unknown, and the build goes on as on a machine without one. To build for GPUs of "
            "compute capability 9.0, set CUDAARCHS=90 in the environment.",
            file=sys.stderr,
        )
        return []
    if answer.returncode != 0:
        return []
    return sorted(
        {line.strip().replace(".", "") for line in answer.stdout.splitlines() if line.strip()}
    )


def main() -> None:
    """Prints the line, or exits with 1 if there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(1)
    directory = pathlib.Path(spec.submodule_search_locations[0])
    version = runpy.run_path(str(directory / "version.py"))
    gpus = ",".join(compute_capabilities()) or "none"
    print(directory, version["__version__"], version.get("cuda") or "none", gpus, sep=";")


if __name__ == "__main__":
    main()
