"""The dispatch mode that follows marks through every operation, and judges the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from syncfree.detector.tier0.recording import record, see, thread
from syncfree.detector.tier0.residence import Place, place_of, put, same_memory
from syncfree.detector.tier0.rules import RULES, Rule
from syncfree.detector.tier0.transfers import judge_copy, judge_indices


@dataclass(frozen=True)
class _Operation:
    """The properties of an operation that are the same for all its calls."""

    name: str
    why: str
    waits: Rule | None
    judge: Callable[[Sequence[Any], dict[str, Any]], None] | None
    makes_tensors: bool
    written: tuple[tuple[int, str], ...]

    def report(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Records the call, if the host would wait."""
        if self.waits is not None and self.waits(args, kwargs):
            record(self.name, self.why, op=self.name)
        if self.judge is not None:
            self.judge(args, kwargs)

    def written_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterable[Any]:
        """The arguments that the operation writes to."""
        for number, name in self.written:
            yield args[number] if number < len(args) else kwargs.get(name)


_JUDGES = {
    "aten::copy_": judge_copy,
    "aten::index": judge_indices,
    "aten::index_put_": judge_indices,
}
# The last result of these is always on the host.
_LENGTHS_LAST = ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence")
_PLAIN = Tensor.__torch_dispatch__
_known: dict[OpOverload, _Operation] = {}


def _look_up(function: OpOverload) -> _Operation:
    schema = function._schema
    why, waits = RULES.get(schema.name, ("", None))
    operation = _known[function] = _Operation(
        name=schema.name,
        why=why,
        waits=waits,
        judge=_JUDGES.get(schema.name),
        makes_tensors=any(result.alias_info is None for result in schema.returns),
        written=tuple(
            (number, argument.name)
            for number, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
    )
    return operation


class FollowMarks(TorchDispatchMode):
    """Marks the results of marked tensors, and records what would make the host wait."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Saves a fifth of the time: nothing is compiled while this mode is in use.
        return False

    # Such as flex_attention.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs one operation."""
        if isinstance(func, HigherOrderOperator):
            return _run_whole(func, args, kwargs or {})
        if any(issubclass(kind, FakeTensor) for kind in types):
            return func(*args, **kwargs or {})  # fake tensors have no memory
        if any(kind.__torch_dispatch__ is not _PLAIN for kind in types):  # type: ignore[attr-defined]
            # A subclass that dispatches itself (nested, distributed): the operations that it is
            # made of come back here one by one.
            return NotImplemented
        options = kwargs or {}
        operation = _known.get(func) or _look_up(func)
        tensors = _tensors(args, options)
        if not tensors:
            made = func(*args, **options)
            if operation.makes_tensors and not thread.factory:
                named = thread.scripted and options.get("device") is not None
                _put_all(made, Place.DEVICE if named else Place.OPEN)
            return made
        places = [place_of(tensor) for tensor in tensors]
        if Place.DEVICE not in places:
            return func(*args, **options)
        see()
        if not thread.quiet:
            operation.report(args, options)
        if Place.OPEN in places:
            _adopt(operation.written_of(args, options))
        result = func(*args, **options)
        if operation.makes_tensors:
            pairs = zip(tensors, places, strict=True)
            on_host = [tensor for tensor, place in pairs if place is not Place.DEVICE]
            made = result[:-1] if operation.name in _LENGTHS_LAST else result
            _put_all(made, Place.DEVICE, unless_memory_of=on_host)
        return result


def _run_whole(function: HigherOrderOperator, args: Any, kwargs: dict[str, Any]) -> Any:
    """Does not judge the operations inside: compiled, they would be one kernel."""
    result = function(*args, **kwargs)
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if any(place_of(tensor) is Place.DEVICE for tensor in given):
        see()
        on_host = [tensor for tensor in given if place_of(tensor) is not Place.DEVICE]
        _put_all(tree_leaves(result), Place.DEVICE, unless_memory_of=on_host)
    return result


def _adopt(written: Iterable[Any]) -> None:
    for tensor in written:
        if isinstance(tensor, Tensor) and place_of(tensor) is Place.OPEN:
            put(tensor, Place.DEVICE)


def _put_all(result: Any, place: Place, unless_memory_of: Sequence[Tensor] = ()) -> None:
    # `_unsafe_view` and similar ones share memory with an argument, although their schema does not
    # say so.
    for made in _tensors((result,), {}):
        if not made.is_meta and not any(same_memory(made, tensor) for tensor in unless_memory_of):
            put(made, place)


def _tensors(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in args:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(each for each in value if isinstance(each, Tensor))
    if kwargs:
        found += _tensors(kwargs.values(), {})
    return found
