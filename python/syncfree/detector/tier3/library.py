"""Which libcupti to use: never a second copy beside one that is loaded already."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from syncfree import _runtime
from syncfree.detector.tiers import TierUnavailableError

OVERRIDE = "SYNCFREE_CUPTI"
DRIVER_OVERRIDE = "SYNCFREE_LIBCUDA"
NAMES = ("libcupti.so.13", "libcupti.so.12")

# A watch holds the logs of all threads and is never freed, so there is one for each library. The
# handle tells libraries apart: one that was loaded by its path is found by its soname later.
_watches: dict[int, _runtime.DriverWatch] = {}


def open_watch() -> _runtime.DriverWatch:
    """The process's watch of driver calls, which does not listen yet.

    Raises:
        TierUnavailableError: There is no CUPTI here, or one that is too old.
    """
    name, library = _cupti()
    handle = library._handle
    if handle not in _watches:
        try:
            _watches[handle] = _runtime.DriverWatch(handle, _driver())
        except RuntimeError as error:
            raise TierUnavailableError(f"{name}: {error}") from None
    return _watches[handle]


def _cupti() -> tuple[str, ctypes.CDLL]:
    chosen = os.environ.get(OVERRIDE)
    if chosen:
        try:
            return chosen, ctypes.CDLL(chosen)
        except OSError as error:
            raise TierUnavailableError(f"{OVERRIDE}={chosen} does not load: {error}") from None
    # torch loads CUPTI for its profiler, and two copies in one process collide.
    import torch  # noqa: F401

    for name in NAMES:
        library = _load(name, os.RTLD_NOLOAD)
        if library is not None:
            return name, library
    for name in _candidates():
        library = _load(name)
        if library is not None:
            return name, library
    raise TierUnavailableError(
        f"CUPTI ({' or '.join(NAMES)}) is not installed: pip install nvidia-cuda-cupti, or name "
        f"the library in the environment variable {OVERRIDE}"
    )


def _load(name: str, mode: int = 0) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_LAZY | mode)
    except OSError:
        return None


def _candidates() -> Iterator[str]:
    """In this order: the result of NVIDIA's own finder, the wheels, the toolkit, the system."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-not-found]

        path = load_nvidia_dynamic_lib("cupti").abs_path
        if path:
            yield path
    except Exception:  # not installed, does not know cupti, or does not find it
        pass
    folders = [
        Path(place) / "nvidia" / part / "lib"
        for place in sys.path
        for part in ("cu13", "cuda_cupti")
    ]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    folders += [Path(home) / part for part in ("lib64", "extras/CUPTI/lib64", "lib")]
    for folder in folders:
        for name in NAMES:
            if (folder / name).exists():
                yield str(folder / name)
    yield from NAMES


def _driver() -> int:
    """A handle of the driver's library; 0 if there is none."""
    library = _load(os.environ.get(DRIVER_OVERRIDE) or "libcuda.so.1")
    return 0 if library is None else library._handle
