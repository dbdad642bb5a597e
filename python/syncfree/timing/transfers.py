"""Times copies between host and GPU as regions of their own, without changes to the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from syncfree.timing.samples import Kind
from syncfree.timing.timer import EventTimer

Arguments = tuple[Any, ...]
Options = Mapping[str, Any]
Move = tuple[Kind, int]
"""Direction and bytes."""


@contextmanager
def tracking(timer: EventTimer) -> Iterator[None]:
    """See :meth:`EventTimer.track_transfers`."""
    with _Tracking(timer):
        yield


class _Tracking(TorchFunctionMode):
    def __init__(self, timer: EventTimer) -> None:
        super().__init__()
        self._timer = timer

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Options | None = None
    ) -> Any:
        options = kwargs or {}
        known = _MOVES.get(func)
        if known is not None:
            name, look = known
            move = look(args, options)
            if move is not None:
                with self._timer.region(name, move[0], bytes=move[1]):
                    return func(*args, **options)
        return func(*args, **options)


def direction(source: torch.device, target: torch.device) -> Kind | None:
    """The direction of a copy; None if it is not between host and GPU.

    Example:
        >>> direction(torch.device("cpu"), torch.device("cuda", 0))
        'h2d'
    """
    ends = source.type, target.type
    return "h2d" if ends == ("cpu", "cuda") else "d2h" if ends == ("cuda", "cpu") else None


def _move(tensor: Tensor, source: torch.device, target: torch.device) -> Move | None:
    way = direction(source, target)
    return None if way is None else (way, tensor.numel() * tensor.element_size())


def _to(args: Arguments, options: Options) -> Move | None:
    tensor = args[0]
    place = options.get("device", options.get("other", args[1] if len(args) > 1 else None))
    if isinstance(place, Tensor):
        place = place.device
    if place is None or isinstance(place, torch.dtype):
        return None
    return _move(tensor, tensor.device, _device(place))


def _cuda(args: Arguments, options: Options) -> Move | None:
    return _move(args[0], args[0].device, torch.device("cuda"))


def _read(args: Arguments, options: Options) -> Move | None:
    return _move(args[0], args[0].device, torch.device("cpu"))


def _copy(args: Arguments, options: Options) -> Move | None:
    source = options.get("src", options.get("other", args[1] if len(args) > 1 else None))
    if not isinstance(source, Tensor):
        return None
    return _move(source, source.device, args[0].device)


def _make(args: Arguments, options: Options) -> Move | None:
    data = options.get("data", args[0] if args else None)
    place = options.get("device")
    if place is None:
        place = _default_device()
    if place is None:
        return None
    if isinstance(data, Tensor):
        return _move(data, data.device, _device(place))
    way = direction(torch.device("cpu"), _device(place))
    # The dtype that a list's elements will get is known only afterwards.
    return None if way is None else (way, int(getattr(data, "nbytes", 0)))


def _default_device() -> torch.device | None:
    """What `set_default_device` or `with torch.device(...)` will add to the call; None for nothing.

    Torch does so in modes of its own, which see a call after this one. `torch.get_default_device`
    does not tell a default of the CPU, to which a tensor of a GPU is copied, from none.
    """
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return mode.device
    return None


def _device(place: Any) -> torch.device:
    return torch.device("cuda", place) if isinstance(place, int) else torch.device(place)


_MOVES: dict[Any, tuple[str, Callable[[Arguments, Options], Move | None]]] = {
    Tensor.to: ("Tensor.to", _to),
    Tensor.cuda: ("Tensor.cuda", _cuda),
    Tensor.cpu: ("Tensor.cpu", _read),
    Tensor.copy_: ("Tensor.copy_", _copy),
    Tensor.item: ("Tensor.item", _read),
    Tensor.tolist: ("Tensor.tolist", _read),
    Tensor.__bool__: ("bool(Tensor)", _read),
    Tensor.__float__: ("float(Tensor)", _read),
    Tensor.__int__: ("int(Tensor)", _read),
    torch.tensor: ("torch.tensor", _make),
    torch.as_tensor: ("torch.as_tensor", _make),
}
