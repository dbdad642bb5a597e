"""Python stacks as a user wants to read them: without frames of torch, syncfree and the runner."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType

from syncfree.detector.findings import Frame

# Frames of these are left out of every stack.
MACHINERY = ("syncfree", "torch", "warnings", "_py_warnings", "contextlib")
# torch's Python code that reads values for its own purposes, and does not only pass a call on.
READERS = ("torch.amp", "torch.distributions", "torch.nn", "torch.optim")
# The same for copies to the GPU: other code of torch copies only what the program passed to it.
COPIERS = ("torch.optim",)
_FROZEN = "<frozen"
# What started the program: a stack ends there.
_RUNNERS = ("_pytest", "pluggy", "runpy", "threading", "concurrent", "asyncio", "syncfree.cli")

_folders: dict[tuple[str, ...], tuple[str, ...]] = {}


def stack_here() -> tuple[Frame, ...]:
    """The stack of the calling thread, innermost first; never empty."""
    return clean(_walk(sys._getframe(1)))


def stack_of(frame: FrameType | None) -> tuple[Frame, ...]:
    """The stack from a frame outwards; never empty."""
    return clean(_walk(frame))


def reader_here(packages: tuple[str, ...] = READERS) -> Frame | None:
    """The innermost frame of `packages` among the frames of torch inside of the program's line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_inside(frame.f_code.co_filename, MACHINERY):
        file = frame.f_code.co_filename
        # Every call of a module passes through these files.
        if is_inside(file, packages) and not file.endswith(("module.py", "_contextlib.py")):
            return Frame(file, frame.f_lineno, _name(frame.f_code))
        frame = frame.f_back
    return None


def stack_of_error(traceback: TracebackType | None) -> tuple[Frame, ...]:
    """The stack in which an error was raised, up to the frame that caught it; innermost first."""
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(Frame(code.co_filename, traceback.tb_lineno, _name(code)))
        traceback = traceback.tb_next
    return clean(reversed(frames))


def clean(frames: Iterator[Frame]) -> tuple[Frame, ...]:
    """The frames without those of torch and syncfree, up to the runner of the program.

    If nothing is left, the innermost frame is kept.
    """
    kept: list[Frame] = []
    first = Frame("<unknown>", 0, "<unknown>")
    for number, frame in enumerate(frames):
        if number == 0:
            first = frame
        if kept and is_inside(frame.file, _RUNNERS):
            break
        if is_inside(frame.file, MACHINERY):
            continue
        kept.append(frame)
    return tuple(kept) or (first,)


def machinery() -> list[str]:
    """The path prefixes of files that no stack shows."""
    return [_FROZEN, *_folders_of(MACHINERY)]


def is_inside(file: str, packages: tuple[str, ...]) -> bool:
    """Whether a file belongs to one of the packages or modules, or is frozen."""
    return file.startswith((_FROZEN, *_folders_of(packages)))


def _folders_of(packages: tuple[str, ...]) -> tuple[str, ...]:
    if packages not in _folders:
        _folders[packages] = tuple(place for name in packages for place in _places(name))
    return _folders[packages]


def _places(name: str) -> list[str]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [f"{Path(place)}/" for place in spec.submodule_search_locations]
    return [spec.origin] if spec.origin and spec.has_location else []


def _walk(frame: FrameType | None) -> Iterator[Frame]:
    while frame is not None:
        yield Frame(frame.f_code.co_filename, frame.f_lineno, _name(frame.f_code))
        frame = frame.f_back


def _name(code: object) -> str:
    # Code objects have no qualified name in Python 3.10.
    name: str = getattr(code, "co_qualname", None) or code.co_name  # type: ignore[attr-defined]
    return name
