"""Multi-scale structural similarity over many batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torchmetrics.image import MultiScaleStructuralSimilarityIndexMeasure as _TorchMetricsMsSsim

from syncfree._ops.ms_ssim import multiscale_ssim_update
from syncfree._ops.registry import reduction_code
from syncfree._states import settle
from syncfree.functional._gradients import refuse_forward_mode
from syncfree.functional.image._images import as_images
from syncfree.functional.image._ms_ssim_call import ms_ssim_update_of
from syncfree.functional.image._preset import MsSsimPreset, check_ms_ssim_preset
from syncfree.functional.image._ssim_arguments import Reduction
from syncfree.functional.image.ms_ssim import (
    _BETAS,
    multiscale_structural_similarity_index_measure,
    reduced,
)
from syncfree.image._similarity import SimilarityMetric, as_result, wants_gradient


class MultiScaleStructuralSimilarityIndexMeasure(SimilarityMetric, _TorchMetricsMsSsim):
    """Multi-scale structural similarity of all images seen since the last reset.

    It has the arguments (``kernel_size`` comes before ``sigma``, unlike in the function), states
    and results of TorchMetrics' class of the same name. `update` and `forward` run the function's
    kernels; the one that multiplies the means also adds the batch to the states. The host never
    waits. What is added is the float64 sum over the batch. With ``reduction="none"`` the values of
    all images are kept.

    The batch's value that `forward` returns has the gradient of
    :func:`syncfree.functional.image.multiscale_structural_similarity_index_measure` if an image
    requires one; that function is then called as well.

    Args:
        gaussian_kernel: See the function, as for all that follow.
        kernel_size: Size of the uniform window; it also counts in the rule for sizes under a
            Gaussian.
        sigma: Standard deviation of the Gaussian window.
        reduction: How the images' values are reduced: ``"elementwise_mean"`` over the images of all
            batches, ``"sum"``, or ``"none"`` (``None``) for one value per image.
        data_range: A number, an interval ``(low, high)`` to clamp to, or ``None``: the range of
            each batch, found again at each scale.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.
        betas: Exponents from the finest scale to the coarsest.
        normalize: ``"relu"``, ``"simple"`` or ``None``.
        preset: Whose definition: ``"torchmetrics"``, ``"wang"`` or ``"pytorch-msssim"``, as in the
            function and with its launches; more launches then add the batch to the states.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If ``reduction``, ``data_range``, a window size, a ``sigma`` or ``normalize`` is
            out of range, ``betas`` is no tuple of floats, or ``preset`` is none of those named or
            comes with arguments that it sets.
        TypeError: If an argument is no number where one is expected.

    Reference:
        Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment",
        37th Asilomar Conference on Signals, Systems and Computers, 2003.

    Example:
        >>> import torch
        >>> from syncfree.image import MultiScaleStructuralSimilarityIndexMeasure
        >>> metric = MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0)
        >>> x = torch.linspace(0, 1, 3 * 192 * 192).reshape(1, 3, 192, 192)
        >>> metric(x, x)
        tensor(1.)
        >>> metric.update(0.75 * x, x)
        >>> metric.compute()
        tensor(0.9922)
    """

    if TYPE_CHECKING:
        betas: tuple[float, ...]
        normalize: Literal["relu", "simple"] | None

    def __init__(
        self,
        gaussian_kernel: bool = True,
        kernel_size: int | Sequence[int] = 11,
        sigma: float | Sequence[float] = 1.5,
        reduction: Reduction = "elementwise_mean",
        data_range: float | tuple[float, float] | None = None,
        k1: float = 0.01,
        k2: float = 0.03,
        betas: tuple[float, ...] = _BETAS,
        normalize: Literal["relu", "simple"] | None = "relu",
        *,
        preset: MsSsimPreset = "torchmetrics",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            gaussian_kernel,
            kernel_size,
            sigma,
            reduction,
            data_range,
            k1,
            k2,
            betas,
            normalize,
            **kwargs,
        )
        self.preset = preset
        self._check_options()
        if preset != "torchmetrics":
            check_ms_ssim_preset(preset, self._window(), normalize)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds a batch of images.

        Args:
            preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
                float64 or uint8, of the sizes that the function names. Other integers than uint8,
                on both sides, count as float32.
            target: True images, same shape and device; integers if ``preds`` are, else of any
                floating dtype.
        """
        if not wants_gradient(preds, target):
            self._add(preds, target)
        elif self._enable_grad:  # a subclass computes its value from the states
            self._add_with_gradient(self._differentiable(preds, target, "none"))
            self.total = self.total + len(preds)
        else:
            with torch.no_grad():
                self._add(preds, target)

    def compute(self) -> Tensor:
        """The similarity of everything added since the last reset.

        Returns:
            The value, or the values of all images in their order.
        """
        return self._reduced()

    def _evaluate(self, preds: Tensor, target: Tensor) -> Tensor:
        value = self._add(preds, target)
        if not self._follows_torchmetrics():
            return as_result(value) if self._keeps_values() else value
        if torch.is_grad_enabled() and (preds.requires_grad or target.requires_grad):
            value = self._differentiable(preds, target, self.reduction).to(value.dtype)
        return as_result(value) if self._keeps_values() else value

    def _add(self, preds: Tensor, target: Tensor) -> Tensor:
        if not self._follows_torchmetrics():
            return self._add_by_preset(preds, target)
        keeps_values = self._keeps_values()
        value: Tensor = ms_ssim_update_of(
            preds,
            target,
            None if keeps_values else self.similarity,
            self.total,
            *self._options(self.reduction),
            self.betas,
            self.normalize,
        )
        if keeps_values:
            self.similarity.append(value)
        return value

    def _add_by_preset(self, preds: Tensor, target: Tensor) -> Tensor:
        """Adds a batch in a preset's definition; the states keep their memory here too."""
        preds, target = as_images(preds, target)
        if forward_ad._current_level >= 0:
            refuse_forward_mode(multiscale_ssim_update, preds, target)
        values = self._differentiable(preds, target, "none")
        kept = values.detach()
        with torch.no_grad():
            self.total = settle(self.total, self.total + len(kept))
            if self._keeps_values():
                self.similarity.append(kept)
                return values
            added = self.similarity + kept.sum(dtype=torch.float64)
            self.similarity = settle(self.similarity, added.to(self.similarity.dtype))
        value = reduced(values, reduction_code(self.reduction))
        return value.to(self.similarity.dtype)

    def _differentiable(self, preds: Tensor, target: Tensor, reduction: Reduction) -> Tensor:
        return multiscale_structural_similarity_index_measure(
            preds,
            target,
            self.gaussian_kernel,
            self.sigma,
            self.kernel_size,
            reduction,
            self.data_range,
            self.k1,
            self.k2,
            self.betas,
            self.normalize,
            preset=self.preset,  # type: ignore[arg-type]
        )
