"""Calls of our operators past the work that torch does for operators of any signature.

Functions keep options that were checked there, too. Where a gradient is recorded, nodes of C++
stand in place of an autograd.Function's of Python.

A module of C++ (csrc/call) that was built for one minor version of torch and one of Python, and is
loaded only there. Elsewhere calls go torch's own way, which takes the host a microsecond more, and
20 to 50 for both passes of a gradient.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from syncfree import _libraries
from syncfree._installation import find_file


def module_file() -> str:
    """The name of the module's file for the torch and the Python that run.

    Example:
        >>> from syncfree._ops.quick_calls import module_file
        >>> module_file().startswith("syncfree_call-")
        True
    """
    minor = _libraries.minor_version(torch.__version__)
    return f"syncfree_call-{minor}{sysconfig.get_config_var('EXT_SUFFIX')}"


def quicken(overload: Any) -> None:
    """Has an overload of ours called the quick way, whoever calls it.

    Its ``with_groups`` takes tuples of arguments as Python would unpack them into a call.
    """
    module = _module()
    if module is not None:
        schema = overload._schema
        overload._op = module.quick(schema.name, schema.overload_name, overload._op)
    overload.with_groups = getattr(overload._op, "with_groups", None) or _unpacking(overload)


def stepping(
    overload: Any,
    states: tuple[str, ...],
    options: tuple[str, str, str],
    number: Callable[[int], int],
    has_number: int,
    failed: Callable[..., Any],
) -> Callable[..., Any]:
    """A metric's step without Python around an overload whose calls may get a number.

    Its arguments are the metric's attributes, and a batch. The overload gets the batch, the
    attributes that are named as ``states``, and those named as ``options``: a tuple of its own
    ones, flags, and the last one. Flags with the bit ``has_number`` get what ``number`` adds to
    them. Where the overload raises RuntimeError or ValueError, ``failed`` is called with that in
    front. NotImplemented where Python has to look: at states that are no tensors of int64, or at
    arguments of other types, or for one of its modes.
    """
    module = _module()
    if module is None:
        return _not_implemented
    names = overload._schema.name, overload._schema.overload_name
    quick: Callable[..., Any] = module.step(
        *names, states, options, number, has_number, failed, _not_implemented
    )
    return quick


def _not_implemented(*_: Any, **__: Any) -> Any:
    return NotImplemented


def checking(
    overload: Any,
    check: Callable[..., tuple[Any, ...]],
    number: Callable[[int], int],
    has_number: int,
    failed: Callable[..., Any],
    usual: Callable[..., Any],
) -> Callable[..., Any]:
    """``usual`` without Python around an overload, for a batch and the options behind it.

    Numbers and errors are as in `stepping`. The overload gets what ``check`` makes of the options,
    in a tuple. Of options that are constants the answer is kept.
    """
    module = _module()
    if module is None:
        return usual
    names = overload._schema.name, overload._schema.overload_name
    quick: Callable[..., Any] = module.checked(*names, check, number, has_number, failed, usual)
    return quick


def checking_images(
    overload: Any,
    check: Callable[..., tuple[Any, ...] | None],
    usual: Callable[..., Any],
    states: int = 0,
    has_gradient: bool = True,
) -> Callable[..., Any]:
    """``usual`` without Python around an overload, for images of which no gradient is recorded.

    Its arguments are two images, as many tensors as there are ``states``, and options. Of whether
    the images are bytes, and of the options, ``check`` makes in a tuple what the overload takes
    behind the tensors, or None where ``usual`` has to look at the images. Of options that are
    constants the answer is kept. For ``usual`` are options that ``check`` refuses, other integers
    than bytes, bytes beside floats, and images with a gradient, unless the overload has none.
    """
    module = _module()
    if module is None:
        return usual
    names = overload._schema.name, overload._schema.overload_name
    quick: Callable[..., Any] = module.images(*names, states, has_gradient, check, usual)
    return quick


def quicken_gradient(
    function: type[Any], forward: Any, backward: Any, states: int = 0, slots: tuple[int, ...] = (0,)
) -> None:
    """Has ``function.quick`` do what its ``apply`` does, without Python in either pass.

    It calls the overload ``forward``, whose first results it returns, as many as there are
    ``slots``, and keeps the others. Its first two arguments get the gradients that ``backward``
    finds: from these two, what was kept, as many gradients as it takes, of which that of each
    result stands at its slot, two flags for the two that are wanted, and the other arguments, but
    for the ``states`` that come first.
    """
    module = _module()
    if module is not None:
        names = forward._schema.name, backward._schema.name
        function.quick = module.differentiable(*names, states, slots, function.apply)


def quicken_ssim_loss(function: type[Any]) -> None:
    """As `quicken_gradient`, for the loss of SSIM."""
    module = _module()
    if module is not None:
        function.quick = module.ssim_loss(function.apply)


def _unpacking(overload: Any) -> Callable[..., Any]:
    def with_groups(*groups: Any) -> Any:
        arguments = [group if type(group) is tuple else (group,) for group in groups]
        return overload._op(*chain.from_iterable(arguments))

    return with_groups


@lru_cache(maxsize=1)
def _module() -> ModuleType | None:
    path = find_file(f"lib/{module_file()}")
    return None if path is None else _load(path)


def _load(path: Path) -> ModuleType | None:
    name = "syncfree._call"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:  # a torch of that version, but built in another way
        return None
    return module
