"""Reports what is installed, how it was built and what it runs on: `syncfree info`.

Needs only the standard library and never raises: people run it when nothing else works.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from syncfree._version import __version__

RELATED = (
    "torch",
    "torchmetrics",
    "numpy",
    "rich",
    "typer",
    "pillow",
    "matplotlib",
    "nvidia-ml-py",
    "torchvision",
)


def info() -> dict[str, Any]:
    """Versions built against and loaded, CUDA architectures, instruction set and GPUs.

    Returns:
        A dictionary of plain values, fit for JSON. What cannot be found out is a string that
        begins with ``"unavailable: "`` and says why; nothing is raised.

    Example:
        >>> import syncfree
        >>> sorted(syncfree.info())
        ['build', 'cpu', 'gpus', 'libraries', 'packages', 'platform', 'python', 'syncfree', 'torch']
    """
    return {
        "syncfree": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "build": _guarded(_build),
        "cpu": _guarded(_cpu),
        "packages": {name: _guarded(partial(_version, name)) for name in RELATED},
        "torch": _guarded(_torch),
        "libraries": _guarded(_libraries),
        "gpus": _guarded(_gpus),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``syncfree info [--json]``; returns the exit status, which is 0."""
    parser = argparse.ArgumentParser(
        prog="syncfree info", description="Show versions, build options and devices."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    facts = info()
    sys.stdout.write((json.dumps(facts, indent=2) if arguments.json else _text(facts)) + "\n")
    return 0


def _guarded(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as error:
        return f"unavailable: {type(error).__name__}: {error}"


def _build() -> dict[str, str]:
    runtime = importlib.import_module("syncfree._runtime")
    return {name: value or "none" for name, value in runtime.build_info().items()}


def _cpu() -> dict[str, str]:
    runtime = importlib.import_module("syncfree._runtime")
    return {"machine": platform.machine(), "instruction_set": runtime.instruction_set()}


def _version(package: str) -> str:
    try:
        # The metadata that an interrupted installation leaves behind names no version.
        return metadata.version(package) or "unavailable: its metadata names no version"
    except metadata.PackageNotFoundError:
        return "not installed"


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "threads": torch.get_num_threads(),
    }


def _libraries() -> dict[str, str]:
    import torch

    from syncfree import _libraries as libraries
    from syncfree._installation import find_file
    from syncfree._ops.quick_calls import module_file
    from syncfree.detector.operators import library_name

    libraries.load()
    names = ("syncfree_ops_cpu", "syncfree_ops_cuda", library_name(torch.__version__))
    files = {name: libraries.find(name) for name in names}
    files[module_file().partition(".cpython")[0]] = find_file(f"lib/{module_file()}")
    return {name: "not built" if path is None else str(path) for name, path in files.items()}


def _gpus() -> list[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        return []
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "name": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "multiprocessors": properties.multi_processor_count,
                "memory_gib": round(properties.total_memory / 2**30, 1),
            }
        )
    return gpus


def _text(facts: dict[str, Any]) -> str:
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key:<20} {entry}" for key, entry in value.items()]
        elif isinstance(value, list):
            lines.append(f"{name}: {'none' if not value else ''}".rstrip())
            lines += [f"  {', '.join(f'{k} {v}' for k, v in entry.items())}" for entry in value]
        else:
            lines.append(f"{name:<22} {value}")
    return "\n".join(lines)
