"""Quick calls: calls of our operators without the work that torch does for arbitrary signatures.

They also skip the check of options that were checked before, and record gradients with nodes in C++
in place of an autograd.Function in Python.

A C++ module (csrc/call) makes them. It is built for one minor version of torch and one of Python,
and loaded only with these. Elsewhere calls go torch's own way, which takes the host a microsecond
more, and 20 to 50 for both passes of a gradient.
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
    """Makes every call of an overload of ours a quick call.

    Also sets its ``with_groups``, which takes arguments and tuples of them, and unpacks the tuples.
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
    """A quick call of an overload as a step of a metric, with arguments from its attributes.

    It takes the metric's ``__dict__`` and a batch. The overload gets the batch, the attributes
    named in ``states``, and those named in ``options``: a tuple of the overload's own options, the
    flags, and its last argument. Flags with the bit ``has_number`` are replaced by
    ``number(flags)``, which adds the number of the call. If the overload raises RuntimeError or
    ValueError, ``failed`` is called with the error before the arguments. Returns NotImplemented
    if Python has to make the call: for states that are no int64 tensors, arguments of other types,
    or under a function or dispatch mode of torch.
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
    """A quick call of an overload in place of ``usual``, for a batch followed by options.

    Numbers and errors are as in `stepping`. The overload gets the batch and the tuple that
    ``check`` makes of the options. For options that are constants that tuple is cached.
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
    """A quick call of an overload in place of ``usual``, for images that record no gradient.

    Its arguments are two images, as many tensors as there are ``states``, and options. ``check``
    gets whether the images are bytes, and the options. It returns the tuple of arguments that the
    overload takes after the tensors, or None if ``usual`` has to look at the images. For options
    that are constants its answer is cached. ``usual`` also gets options that ``check`` refuses,
    integers other than bytes, bytes beside floats, and images that require a gradient, unless the
    overload has none.
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
    """Makes ``function.quick`` do what its ``apply`` does, without Python in either pass.

    The forward pass calls the overload ``forward``. It returns as many of the results as there are
    ``slots``, and saves the others. The backward pass calls the overload ``backward``, which gives
    the gradients of the first two arguments. That one takes these two, the saved results, as many
    incoming gradients as its schema has (the one of each result at its slot, None elsewhere), two
    flags for the gradients that are wanted, and the other arguments without the ``states``, which
    come first among them.
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
