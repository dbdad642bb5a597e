"""Peak signal-to-noise ratio over many batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torchmetrics.image import PeakSignalNoiseRatio as _TorchMetricsPsnr
from torchmetrics.utilities.data import _squeeze_if_scalar
from torchmetrics.utilities.distributed import reduce

from syncfree._keywords import naming_unknown
from syncfree._metric import SyncFreeMetric
from syncfree._ops.psnr import psnr, psnr_from_errors, psnr_update, psnr_with_squared_error
from syncfree._ops.psnr_backward import PsnrWithGradient
from syncfree._ops.quick_calls import checking_images
from syncfree._ops.registry import reduction_code
from syncfree._states import is_half, require_list
from syncfree._torchmetrics import resolve
from syncfree.functional._arguments import require_summed, require_tensors, text_of
from syncfree.functional._gradients import refuse_forward_mode, with_gradient
from syncfree.functional.image._preset import PsnrPreset, check_psnr_preset, psnr_preset
from syncfree.functional.image._range import is_narrow, parse_data_range, warn_of_bytes
from syncfree.functional.image.psnr import dimensions, parse_base

__all__ = ["PeakSignalNoiseRatio"]


class PeakSignalNoiseRatio(SyncFreeMetric, _TorchMetricsPsnr):
    """Peak signal-to-noise ratio of all images seen since the last reset, in decibels.

    It has the arguments, states and results of TorchMetrics' class of the same name; the host never
    waits. Without ``dim`` the squared errors of all batches are pooled, which is not the mean of
    their ratios; `update`, `forward` and `compute` are one launch each. With ``dim`` each batch
    appends its sums of squared errors and its counts to lists, in two launches whatever the number
    of batches before, and `compute` joins the lists in two launches before its own. The sums are
    float32, or float64 if an input is. ``dim=(1, 2, 3)`` gives the mean of the images' ratios.

    Args:
        data_range: See :func:`syncfree.functional.image.peak_signal_noise_ratio`.
        base: Base of the logarithm.
        reduction: How the ratios are reduced, if ``dim`` leaves more than one.
        dim: Dimensions to sum over; ``None`` for all.
        preset: ``"skimage"`` keeps the ratio of each image of (B, C, H, W) or (B, C, D, H, W), as
            ``dim=(1, 2, 3)`` does, and gives their mean or what ``reduction`` says. Leave out
            ``dim``; ``data_range`` may be left out only for uint8, where it is 255.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If ``data_range``, ``base`` or ``reduction`` is out of range, ``preset`` is none
            of those named, or it comes with ``dim``.
        TypeError: If ``data_range`` is neither a number nor a tuple of two.

    Reference:
        Huynh-Thu and Ghanbari, "Scope of validity of PSNR in image/video quality assessment",
        Electronics Letters 44(13), 2008.

    Example:
        >>> import torch
        >>> from syncfree.image import PeakSignalNoiseRatio
        >>> metric = PeakSignalNoiseRatio(data_range=3.0)
        >>> preds = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        >>> target = torch.tensor([[3.0, 2.0], [1.0, 0.0]])
        >>> metric(preds, target)
        tensor(2.5527)
        >>> metric.update(target, target)
        >>> metric.compute()
        tensor(5.5630)
    """

    preset = "torchmetrics"
    _takes_bytes_alone = False

    if TYPE_CHECKING:  # torch.jit.script cannot read annotations that are text
        _range: float
        _interval: tuple[float, float] | None
        data_range: Tensor
        sum_squared_error: Any  # a tensor, or a list where `dim` is given
        total: Any
    else:
        # For a subclass that calls TorchMetrics' `__init__` and not ours: nothing is warned of.
        _range = math.inf
        _interval = None

    def __init__(
        self,
        data_range: float | tuple[float, float] | None = None,
        base: float = 10.0,
        reduction: Literal["elementwise_mean", "sum", "none"] | None = "elementwise_mean",
        dim: int | tuple[int, ...] | None = None,
        *,
        preset: PsnrPreset = "torchmetrics",
        **kwargs: Any,
    ) -> None:
        takes_bytes_alone = False
        if preset != "torchmetrics":
            check_psnr_preset(preset, dim)
            dim = _OF_AN_IMAGE
            takes_bytes_alone = data_range is None
            data_range = 255.0 if data_range is None else data_range
        with naming_unknown(kwargs):
            given = parse_data_range(data_range)
            parse_base(base)
            reduction_code(reduction)
        super().__init__(cast(Any, data_range), base, reduction, dim, **kwargs)
        self.preset = preset
        self._takes_bytes_alone = takes_bytes_alone
        # For warnings: the host would have to wait for the state `data_range` on a GPU.
        self._range, self._interval = given
        self._given_range = self._range
        if is_half(torch.get_default_dtype()):  # TorchMetrics has rounded the range to it
            for state in (self._defaults["data_range"], self.data_range):
                cast(Tensor, state).fill_(self._range)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "clamping_fn":
            self._interval = _interval_of(value)
        elif name == "data_range" and not isinstance(value, Tensor) and name in self.__dict__:
            raise TypeError(
                f"Expected `data_range` to be set to a tensor on {self.data_range.device}, where "
                f"the state is, but got {text_of(value)}. A range (low, high) is for a new metric."
            )
        super().__setattr__(name, value)

    def reset(self) -> None:
        """Sets the states to their defaults, in place, also a range from a checkpoint."""
        super().reset()
        own = self.__dict__
        own["_range"] = own.get("_given_range", self._range)  # earlier versions' pickles lack it

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds a batch of images of any shape.

        Args:
            preds: Estimated images.
            target: True images, same shape and device.
        """
        if self._enable_grad and _wants_gradient(preds, target):
            if len(self._dims(preds, target) or ()) > len(_OF_AN_IMAGE):
                preds, target = preds.flatten(1, 2), target.flatten(1, 2)
            super().update(preds, target)  # for a subclass whose `compute` is differentiated
        else:
            self._add(preds, target)

    def compute(self) -> Tensor:
        """The ratio of everything added since the last reset."""
        errors, total, reduction = self.sum_squared_error, self.total, None
        if self.dim is not None:
            errors, total, reduction = _flat(errors), _flat(total), self.reduction
        # With `compute_on_cpu` list states are on another device than the range.
        data_range = self.data_range.to(errors.device)
        has_graph = errors.requires_grad or total.requires_grad or data_range.requires_grad
        value: Tensor
        if has_graph and torch.is_grad_enabled():  # a subclass differentiates it
            nepers = 2 * torch.log(data_range) - torch.log(errors / total)
            value = reduce(nepers * (10 / math.log(self.base)), reduction)
        else:
            code = reduction_code(reduction)
            value = psnr_from_errors(errors, total, data_range, self.base, code)
        return value

    def _evaluate(self, preds: Tensor, target: Tensor) -> Tensor:
        value = self._add(preds, target)
        if _wants_gradient(preds, target):
            code = reduction_code(None if self.dim is None else self.reduction)
            options = _ANY_RANGE, self._interval, self.base, code, self._dims(preds, target)
            value = with_gradient(psnr, PsnrWithGradient, preds, target, value, *options)
        return _squeeze_if_scalar(value.flatten()) if value.ndim else value  # as in `compute`

    def _add(self, preds: Tensor, target: Tensor) -> Tensor:
        if self.dim is not None:
            _refuse_or_warn(preds, target, self._range)
            return self._append(preds, target)
        call = _update_of_any if is_dynamo_compiling() else _update
        states = self.sum_squared_error, self.total, self.data_range
        value: Tensor = call(preds, target, *states, self._range, self._interval, self.base)
        return value

    def extra_repr(self) -> str:
        """The preset, if it is not TorchMetrics'."""
        return "" if self.preset == "torchmetrics" else f"preset={self.preset!r}"

    def _dims(self, preds: Tensor, target: Tensor) -> Sequence[int] | None:
        if self.preset == "torchmetrics":
            return dimensions(self.dim)
        data_range = None if self._takes_bytes_alone else self._range
        return psnr_preset(self.preset, preds, target, data_range, None)[1]

    def _append(self, preds: Tensor, target: Tensor) -> Tensor:
        require_list("sum_squared_error", self.sum_squared_error)
        dims = self._dims(preds, target)
        options = self._interval, self.base, reduction_code(self.reduction), dims
        value: Tensor
        value, squared_error = psnr_with_squared_error(preds, target, self.data_range, *options)
        sizes = [target.shape[d] for d in dims] if dims else target.shape
        total = torch.full((), math.prod(sizes), dtype=torch.int64, device=target.device)
        self.sum_squared_error.append(squared_error)
        self.total.append(total.expand_as(squared_error))
        return value

    def _is_sum(self, name: str) -> bool:
        return name == "data_range" or super()._is_sum(name)  # an option, which no update changes

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # TorchMetrics averages the range over updates, which is 0/0 if there were none.
        data_range = self.data_range
        super()._reduce_states(incoming_state)
        self.data_range = data_range

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        given = state_dict.get(prefix + "data_range")
        if given is not None and given.numel() != 1:
            *_, error_messages = args  # as torch's own modules report a size mismatch
            error_messages.append(
                f"size mismatch for {prefix}data_range: expected one number, but the checkpoint "
                f"has shape {list(given.shape)}."
            )
            return
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if given is not None and not self.data_range.is_meta:
            # A number, for warnings. From a checkpoint in host memory it is read without a wait.
            on_host = given if given.device.type == "cpu" else self.data_range
            self._range = float(on_host.to(self.data_range.dtype))


def _refuse_or_warn(preds: Tensor, target: Tensor, value_range: float) -> None:
    """Refuses what is no tensor and dual tensors, and warns of uint8 images: no op does so."""
    require_tensors(preds, target)
    if forward_ad._current_level >= 0:
        refuse_forward_mode(psnr, preds, target)
    warn_of_bytes(value_range, preds, target)


def _update_of_any(
    preds: Tensor,
    target: Tensor,
    errors: Tensor,
    total: Tensor,
    data_range: Tensor,
    value_range: float,
    *options: Any,
) -> Any:
    require_summed(errors, total)
    _refuse_or_warn(preds, target, value_range)
    # `_op` saves the frame and two tuples of the overload, the form that torch.compile knows.
    op: Any = psnr_update if is_dynamo_compiling() else psnr_update._op  # type: ignore[attr-defined]
    return op(preds, target, errors, total, data_range, *options)


def _arguments_of_options(
    of_bytes: bool, value_range: float, interval: Any, base: Any
) -> tuple[Any, ...] | None:
    if of_bytes and is_narrow(value_range):
        return None
    return interval, float(base) if type(base) is int else base


_update = checking_images(psnr_update, _arguments_of_options, _update_of_any, 3, has_gradient=False)

# The gradient is the same for every range, and the host would wait to read the state.
_ANY_RANGE = 1.0


def _interval_of(clamping_fn: object) -> tuple[float, float] | None:
    """The interval of a new `clamping_fn`: the kernels clamp, and only to intervals."""
    if clamping_fn is None:
        return None
    if isinstance(clamping_fn, partial) and clamping_fn.func is torch.clamp:
        bounds = clamping_fn.keywords
        if not clamping_fn.args and bounds.keys() == {"min", "max"}:
            return parse_data_range((bounds["min"], bounds["max"]))[1]
    raise ValueError(
        "Expected `clamping_fn` to be None or functools.partial(torch.clamp, min=low, max=high), "
        f"but got {clamping_fn!r}. Other functions can be called on the images before they are "
        "passed."
    )


# Right for two-dimensional images. With a preset, `dim` only has to be given, so that the states
# are lists with one entry per image; `_dims` finds the dimensions of each batch.
_OF_AN_IMAGE = (1, 2, 3)


def _wants_gradient(preds: Tensor, target: Tensor) -> bool:
    return torch.is_grad_enabled() and (preds.requires_grad or target.requires_grad)


def _flat(state: Tensor | list[Tensor]) -> Tensor:
    """The one-dimensional tensor of a list state; reduction over processes may have made it."""
    return state if isinstance(state, Tensor) else torch.cat([entry.flatten() for entry in state])


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, with_private=True)
