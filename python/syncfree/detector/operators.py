"""Which operators of torch a thread is inside of, and which line made a node of autograd.

torch reports its operators only to C++ (``at::RecordFunction``), and that interface is compatible
only within one minor version. So a small library (csrc/record) is built for the torch that is
present at build time, and is loaded only into the same minor version:
``lib/libsyncfree_record-2.13.so``, for example. Without it everything else works, and reports say
what is missing.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Sequence

from syncfree import _runtime
from syncfree.detector.findings import FORWARD_NOT_KEPT, Frame
from syncfree.detector.stack import machinery

_MISSING = "operators around waits and forward lines are not known: "
_BUILD_AGAIN = "build it again with this torch installed: pip install --force-reinstall --no-deps ."

# The engine's own entry around each node, which repeats the node's name.
_ENGINE = "autograd::engine::evaluate_function: "
# Entries for torch's calls of Python handlers, such as those of tier 0, which are no operators.
_HANDLERS = ("PythonDispatchMode", "PythonSubclass")

_loaded: dict[str, ctypes.CDLL] = {}


class Listening:
    """While entered, torch reports which operators run. At most one is active in a process.

    Attributes:
        missing: What will not be known and why; empty if everything will.
    """

    def __init__(self) -> None:
        self.missing = ""
        self._library: ctypes.CDLL | None = None

    def __enter__(self) -> Listening:
        try:
            self._library = _library()
        except _NotThereError as error:
            self.missing = f"{_MISSING}{error}"
            return self
        listener = _runtime.listen_to_operators(machinery())
        self._library.syncfree_record_start(ctypes.c_void_p(listener))
        atexit.register(self._stop)
        if not _runtime.can_walk_python_stack():
            self.missing = (
                "forward lines are not known: this version of Python is not known well enough to "
                "read its stacks inside of operators"
            )
        return self

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self._stop)
        self._stop()

    def _stop(self) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.syncfree_record_stop()


def operators_here() -> tuple[tuple[str, ...], Frame | None]:
    """The operators that the calling thread is inside of, innermost first, and its forward line."""
    names, forward, is_backward = _runtime.running_operators()
    return operator_stack(names), forward_line(forward, is_backward)


def forward_line(place: tuple[str, int, str] | None, is_backward: bool) -> Frame | None:
    """The forward line of a node of autograd; None outside of a backward pass."""
    if place is not None:
        return Frame(*place)
    return FORWARD_NOT_KEPT if is_backward else None


def operator_stack(names: Sequence[str]) -> tuple[str, ...]:
    """The entries that torch reported, without those that add no information."""
    kept: list[str] = []
    for name in names:
        if name not in _HANDLERS and not (kept and name == _ENGINE + kept[-1]):
            kept.append(name)
    return tuple(kept)


def library_name(torch_version: str) -> str:
    """The name of the library for a version of torch.

    Example:
        >>> from syncfree.detector.operators import library_name
        >>> library_name("2.13.1+cu130"), library_name("2.14.0a0+git1234")
        ('syncfree_record-2.13', 'syncfree_record-2.14.0a0+git1234')
    """
    from syncfree._libraries import minor_version

    return f"syncfree_record-{minor_version(torch_version)}"


class _NotThereError(Exception):
    """There is no library for this torch; the message says why."""


def _library() -> ctypes.CDLL:
    import torch

    from syncfree._libraries import find

    name = library_name(torch.__version__)
    if name in _loaded:
        return _loaded[name]
    path = find(name)
    if path is None:
        built = _runtime.build_info()["torch"]
        if library_name(built) == name:
            raise _NotThereError(f"lib{name}.so was left out of this build, which warned of it")
        raise _NotThereError(
            f"this syncfree was built for torch {built}, but torch {torch.__version__} is "
            f"installed; {_BUILD_AGAIN}"
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise _NotThereError(f"{path} does not load: {error}; {_BUILD_AGAIN}") from None
    for function in (library.syncfree_record_start, library.syncfree_record_stop):
        function.restype = None
    return _loaded.setdefault(name, library)
