"""The base of the accuracy classes: counts of true and false positives and negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torchmetrics.utilities.data import _squeeze_if_scalar, dim_zero_cat

from syncfree import _error_records
from syncfree._metric import SyncFreeMetric
from syncfree._ops import accuracy as ops
from syncfree._side_stream import PLACE
from syncfree._states import require_list
from syncfree.functional.classification._call import call, stepping

_OPTIONS = frozenset(
    (
        "threshold",
        "num_classes",
        "num_labels",
        "top_k",
        "average",
        "multidim_average",
        "ignore_index",
        "validate_args",
    )
)

_STATES = ("tp", "fp", "tn", "fn")

_COUNTED = *_STATES, "_bad"
_GIVEN = "_op_own", "_batch_options", "_op_ignore_index"

# The quick step of each task. A metric that is not prepared yet has the task None.
_UPDATE: dict[str | None, Any] = {None: lambda *_: NotImplemented}
_FORWARD = _UPDATE.copy()
_UPDATE |= {task: stepping(op, _COUNTED, _GIVEN) for task, op in ops.UPDATE.items()}
_FORWARD |= {task: stepping(op, _COUNTED, _GIVEN) for task, op in ops.FORWARD.items()}

_OF_SLOT = frozenset(("_error_slot", "_batch_options"))


class CountingMetric(SyncFreeMetric):
    """A mixin that comes before a TorchMetrics class with states ``tp``, ``fp``, ``tn``, ``fn``."""

    if TYPE_CHECKING:
        tp: Any  # tensors, or lists of them where samples are counted separately
        fp: Any
        tn: Any
        fn: Any
        top_k: int
        _bad: Tensor
        _op_task: str
        _op_own: tuple[Any, ...]
        _op_options: int
        _op_ignore_index: int
        _is_samplewise: bool
        _batch_options: int
        _validates: bool

    def _op_arguments(self) -> tuple[str, int, tuple[Any, ...]]:
        """The task, `top_k`, and the options as `_accuracy_arguments` checks and packs them."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Sets what the ops need, once the options are known and whenever one is changed."""
        task, top_k, (own, options, ignore_index) = self._op_arguments()
        self.__dict__.update(
            _op_task=task,
            _op_own=own,
            _op_options=options | ops.task_bits(task, top_k),
            _op_ignore_index=ignore_index,
            _is_samplewise=self.multidim_average == "samplewise",
            _is_scalar=ops.gives_scalar(options),
            _validates=ops.validates(options),
        )
        is_new = "_error_slot" not in self.__dict__
        if is_new or (self._validates and not self._error_slot):
            self._take_error_slot()
        else:
            self._set_batch_options()
        if is_new:
            # The number of labels left out as errors: unless it is 0, the value is NaN. It goes to
            # the device of the states, which a subclass that is prepared late may have moved.
            bad = torch.zeros(1, dtype=torch.int64, device=self.device)
            self._add_hidden_state("_bad", bad)

    def _be_prepared(self) -> None:
        """Prepares a metric whose subclass calls TorchMetrics' `__init__` and not ours."""
        if "_op_task" not in self.__dict__:
            self._prepare()

    def _hidden_states(self) -> dict[str, Tensor]:
        self._be_prepared()
        return super()._hidden_states()

    def _reductions_of_states(self) -> dict[str, Any]:
        self._be_prepared()  # a process that has no batch needs it too
        return super()._reductions_of_states()

    def __setattr__(self, name: str, value: Any) -> None:
        # Only the options of this task: any other name is the user's own attribute.
        if not (name in _OPTIONS and "_op_task" in self.__dict__ and name in self.__dict__):
            super().__setattr__(name, value)
            return
        before = getattr(self, name)
        super().__setattr__(name, value)
        try:
            self._prepare()
            self._fit_states(name, before)
        except ValueError:
            super().__setattr__(name, before)
            self._prepare()
            raise

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        sizes = {
            name: (state_dict[prefix + name].numel(), default.numel())
            for name, default in self._defaults.items()
            if name in _STATES and isinstance(default, Tensor) and prefix + name in state_dict
        }
        for name, (given, own) in sizes.items():
            if given == own:
                continue
            *_, error_messages = args  # as torch's own modules report a size mismatch
            error_messages.append(
                f"size mismatch for {prefix}{name}: the checkpoint has {given} counts, and this "
                f"metric {own}. Make it with the checkpoint's number of classes and its `average`."
            )
        if all(given == own for given, own in sizes.values()):
            super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _fit_states(self, option: str, before: Any) -> None:
        """Gives the states the size that a changed option needs, if they have counted nothing.

        Every `average` of the same size has the same counts. `threshold` and `ignore_index` may
        differ from batch to batch, as between data sets; counts for several k must not be added.
        """
        if option == "multidim_average" and self._is_samplewise != isinstance(
            self._defaults["tp"], list
        ):
            raise ValueError(
                "Expected argument `multidim_average` to stay as it was made, since states of "
                "samples apart are lists. Make another metric."
            )
        arguments = *self._op_own, self._op_options, self._op_ignore_index
        size = ops.counts_per_state(self._op_task, arguments)
        fits = self._is_samplewise or self.tp.numel() == size
        if fits and (option != "top_k" or self._op_task != "multiclass" or self.top_k == before):
            return
        if self._has_counted():
            raise ValueError(
                f"Expected argument `{option}` to be changed before the first batch, but the "
                f"states have counted for {before!r}. Call `reset()` before, or make another "
                "metric."
            )
        for state in () if fits else _STATES:
            default = getattr(self, state).new_zeros(size)
            self._defaults[state] = default
            setattr(self, state, default.clone())

    def _has_counted(self) -> bool:
        if self._update_count or self._is_replayed or self._is_merged or self._is_loaded:
            return True
        # Counts that a user has set are seen on the CPU only: the host would wait to read a GPU's.
        return any(
            bool(state) if isinstance(state, list) else state.device.type == "cpu" and state.any()
            for state in self._counts()
        )

    def _counts(self) -> tuple[Any, Any, Any, Any]:
        return self.tp, self.fp, self.tn, self.fn

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds a batch to the counts, in one launch.

        Args:
            preds: As in the function of the same task.
            target: As in the function of the same task.

        Raises:
            TypeError: If ``preds`` or ``target`` is no tensor.
            ValueError: If shapes do not fit the task.
            RuntimeError: If shapes or devices differ, or a label of this batch (on CPU) or of an
                earlier one (on CUDA) is bad.
        """
        own = self.__dict__
        if "_has_update_state" in own:  # defined by a subclass; TorchMetrics' `update` calls it
            self._update_as_theirs(preds, target)
        # Repeated in `_evaluate`: in a function shared by both, each would take 0.15 us more.
        elif (
            is_dynamo_compiling()
            or PLACE in own
            or _UPDATE[own.get("_op_task")](own, preds, target) is NotImplemented
        ):
            self._add_any(preds, target)

    def _add_any(self, preds: Tensor, target: Tensor) -> None:
        self._be_prepared()
        if self._is_samplewise:
            self._append(preds, target)
        elif self.tp.dtype is torch.int64:
            call(ops.UPDATE[self._op_task], *self._arguments(preds, target))
        else:  # after `set_dtype`
            self._update_as_theirs(preds, target)

    def _arguments(
        self, preds: Tensor, target: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...], int, int]:
        # States are read as attributes, so that a side stream sees it.
        tensors = preds, target, self.tp, self.fp, self.tn, self.fn, self._bad
        return tensors, self._op_own, self._batch_options, self._op_ignore_index

    def _update_as_theirs(self, preds: Tensor, target: Tensor) -> None:
        with torch.set_grad_enabled(self._enable_grad):
            super().update(preds, target)  # type: ignore[safe-super]

    def compute(self) -> Tensor:
        """The accuracy of everything added since the last reset; never waits.

        Raises:
            RuntimeError: If a label of an earlier batch is known to be bad.
        """
        if "_has_final_state" not in self.__dict__:
            counts = [dim_zero_cat(state) for state in self._counts()]
            if counts[0].dtype == torch.int64:
                return self._accuracy(counts)
        value: Tensor = super().compute()  # type: ignore[safe-super]
        return value

    def _evaluate(self, preds: Tensor, target: Tensor) -> Any:
        own = self.__dict__
        value: Any = NotImplemented
        if not (is_dynamo_compiling() or PLACE in own):
            value = _FORWARD[own.get("_op_task")](own, preds, target)
        if value is NotImplemented:
            self._be_prepared()
            if self._is_samplewise:
                value = self._accuracy(self._append(preds, target))
            elif self.tp.dtype is torch.int64:
                value = call(ops.FORWARD[self._op_task], *self._arguments(preds, target))
            else:  # after `set_dtype`
                return NotImplemented
        # Metrics pickled by earlier versions have no `_is_scalar`.
        return value if own.get("_is_scalar") else _squeeze_if_scalar(value)

    def _append(self, preds: Tensor, target: Tensor) -> Sequence[Tensor]:
        states = self._counts()
        for name, state in zip(_STATES, states, strict=True):
            require_list(name, state)
        if self._bad.is_meta:
            self._leave_meta(preds.device)
        counts: Sequence[Tensor] = call(
            ops.COUNTS[self._op_task],
            (preds, target, self._bad),
            self._op_own,
            self._batch_options,
            self._op_ignore_index,
        )
        for state, count in zip(states, counts, strict=True):
            state.append(count)
        return counts

    def _accuracy(self, counts: Sequence[Tensor]) -> Tensor:
        self._be_prepared()
        if self._bad.is_meta:
            self._leave_meta(counts[0].device)
        bad = self._bad
        if self.compute_on_cpu:
            bad = bad.to(counts[0].device)
        if self._validates and is_dynamo_compiling():
            options = self._batch_options
        else:
            # Errors of earlier batches are raised by `compute`, once the value is known.
            options = ops.without_validation(self._op_options)
        value: Tensor = ops.accuracy_from_counts(*counts, bad, options)
        return value

    def _take_error_slot(self) -> None:
        self._error_slot = _error_records.new_slot(self) if self._validates else 0
        self._set_batch_options()

    def _set_batch_options(self) -> None:
        """Sets the options of ops that take a batch and check the slot for earlier errors."""
        bits = _error_records.slot_bits(self._error_slot) if self._validates else 0
        self._batch_options = self._op_options | bits

    def _raise_pending(self) -> None:
        if self._validates and "_error_slot" in self.__dict__:
            _error_records.raise_pending(self._error_slot)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the error slot out, since a copy gets its own."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _OF_SLOT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_op_task" in state:
            self._take_error_slot()
