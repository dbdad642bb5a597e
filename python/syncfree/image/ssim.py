"""Structural similarity over many batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics.image import StructuralSimilarityIndexMeasure as _TorchMetricsSsim
from torchmetrics.utilities.data import dim_zero_cat

from syncfree._states import require_list
from syncfree._torchmetrics import resolve
from syncfree.functional.image._preset import Preset, check_ssim_preset
from syncfree.functional.image._ssim_arguments import Reduction
from syncfree.functional.image._ssim_call import ssim_of, ssim_update_of
from syncfree.image._similarity import SimilarityMetric, as_result, wants_gradient
from syncfree.image.ms_ssim import MultiScaleStructuralSimilarityIndexMeasure

# TorchMetrics has both in the module of this name.
__all__ = ["MultiScaleStructuralSimilarityIndexMeasure", "StructuralSimilarityIndexMeasure"]

_Result = Tensor | tuple[Tensor, Tensor]


class StructuralSimilarityIndexMeasure(SimilarityMetric, _TorchMetricsSsim):
    """Structural similarity of all images seen since the last reset.

    It has the arguments, states and results of TorchMetrics' class of the same name. `update` and
    `forward` are one launch each (two where the range comes from the data), which computes the
    batch and adds it to the states; the host never waits. What is added is the float64 sum over the
    batch, also for half-precision images. With ``reduction="none"``, ``return_full_image`` or
    ``return_contrast_sensitivity``, results of all batches are kept.

    The batch's value that `forward` returns has a gradient if an image requires one, from the same
    launch.

    Args:
        gaussian_kernel: See :func:`syncfree.functional.image.structural_similarity_index_measure`,
            as for all that follow.
        sigma: Standard deviation of the Gaussian window.
        kernel_size: Size of the uniform window.
        reduction: How the images' values are reduced: ``"elementwise_mean"`` over the images of all
            batches, ``"sum"``, or ``"none"`` (``None``) for one value per image.
        data_range: A number, an interval ``(low, high)`` to clamp to, or ``None``: the range of
            each batch.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.
        return_full_image: `forward` and `compute` also return the maps.
        return_contrast_sensitivity: They also return each image's mean contrast term.
        preset: Whose definition: ``"torchmetrics"``, ``"wang"``, ``"pytorch-msssim"`` or
            ``"skimage"``, as in the function.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If ``reduction``, ``data_range``, a window size or a ``sigma`` is out of range,
            both extra results are asked for, ``preset`` is none of those named, or it comes with a
            window of other sizes than its own.
        TypeError: If an argument is no number where one is expected.

    Reference:
        Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to
        structural similarity", IEEE Transactions on Image Processing 13(4), 2004.

    Example:
        >>> import torch
        >>> from syncfree.image import StructuralSimilarityIndexMeasure
        >>> metric = StructuralSimilarityIndexMeasure(data_range=1.0)
        >>> x = torch.linspace(0, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
        >>> metric(x, x)
        tensor(1.)
        >>> metric.update(x, 1 - x)
        >>> metric.compute()
        tensor(0.7225)
    """

    if TYPE_CHECKING:
        image_return: list[Tensor]

    def __init__(
        self,
        gaussian_kernel: bool = True,
        sigma: float | Sequence[float] = 1.5,
        kernel_size: int | Sequence[int] = 11,
        reduction: Reduction = "elementwise_mean",
        data_range: float | tuple[float, float] | None = None,
        k1: float = 0.01,
        k2: float = 0.03,
        return_full_image: bool = False,
        return_contrast_sensitivity: bool = False,
        *,
        preset: Preset = "torchmetrics",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            gaussian_kernel,
            sigma,
            kernel_size,
            reduction,
            data_range,
            k1,
            k2,
            return_full_image,
            return_contrast_sensitivity,
            **kwargs,
        )
        self.preset = preset
        self._check_options()
        if preset != "torchmetrics":
            check_ssim_preset(preset, self._window())
        if return_full_image and return_contrast_sensitivity:
            raise ValueError(
                "Arguments `return_full_image` and `return_contrast_sensitivity` are mutually "
                "exclusive."
            )

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds a batch of images.

        Args:
            preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
                float64 or uint8. Other integers, on both sides, count as float32.
            target: True images, same shape and device; integers if ``preds`` are, else of any
                floating dtype.
        """
        if not wants_gradient(preds, target):
            self._add(preds, target)
        elif self._enable_grad:  # a subclass computes its value from the states
            values, extra = self._run(preds, target)
            self._add_with_gradient(values)
            if not self._keeps_values():  # without a reduction TorchMetrics counts no images
                self.total = self.total + len(values)
            if extra is not None:
                self.image_return.append(extra)
        else:
            with torch.no_grad():
                self._add(preds, target)

    def compute(self) -> _Result:
        """The similarity of everything added since the last reset.

        Returns:
            The value, or the values of all images in their order; with the maps or the contrast
            terms of all images where they were asked for.
        """
        similarity = self._reduced()
        if self.return_full_image or self.return_contrast_sensitivity:
            return similarity, dim_zero_cat(self.image_return)
        return similarity

    def _evaluate(self, preds: Tensor, target: Tensor) -> _Result:
        value, extra = self._add(preds, target)
        if self._keeps_values():
            value = as_result(value)
        return value if extra is None else (value, as_result(extra))

    def _add(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        keeps_values = self._keeps_values()
        if keeps_values:
            require_list("similarity", self.similarity)
        if self.return_full_image or self.return_contrast_sensitivity:
            require_list("image_return", self.image_return)
        states = () if keeps_values else (self.similarity, self.total)
        value, extra = self._run(preds, target, *states)
        if keeps_values:
            self.similarity.append(value.detach())
        if extra is not None:
            self.image_return.append(extra.detach())
        return value, extra

    def _run(self, preds: Tensor, target: Tensor, *states: Tensor) -> tuple[Tensor, Tensor | None]:
        """The images' values, or with ``states`` the batch's, which is added; the extra result."""
        extra = "contrast" if self.return_contrast_sensitivity else None
        if self.return_full_image:
            extra = "map"
        call, reduction = (ssim_update_of, self.reduction) if states else (ssim_of, None)
        result = call(extra, preds, target, *states, *self._options(reduction))
        return result if extra else (result, None)


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, with_private=True)
