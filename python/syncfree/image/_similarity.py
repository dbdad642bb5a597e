"""The base of the SSIM classes: their options, and a mean over images in two states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat

from syncfree._metric import SyncFreeMetric
from syncfree._state_reduction import by_process
from syncfree.functional._arguments import require_tensors
from syncfree.functional.image._options import check_ssim_options
from syncfree.functional.image._preset import Window
from syncfree.functional.image._ssim_arguments import Reduction


class SimilarityMetric(SyncFreeMetric):
    """A mixin that comes before a TorchMetrics class with the states ``similarity`` and ``total``.

    Options are read anew at each call, as TorchMetrics reads them.
    """

    preset = "torchmetrics"

    if TYPE_CHECKING:
        gaussian_kernel: bool
        sigma: float | Sequence[float]
        kernel_size: int | Sequence[int]
        reduction: Reduction
        data_range: float | tuple[float, float] | None
        k1: float
        k2: float
        similarity: Any  # a tensor, or without a reduction a list of them
        total: Tensor
        _enable_grad: bool  # whether states are to carry gradients

    def _window(self) -> Window:
        return Window(self.gaussian_kernel, self.sigma, self.kernel_size)

    def _follows_torchmetrics(self) -> bool:
        return self.preset == "torchmetrics"

    def extra_repr(self) -> str:
        """The preset, if it is not TorchMetrics'."""
        return "" if self._follows_torchmetrics() else f"preset={self.preset!r}"

    def _check_options(self) -> None:
        """Raises at construction the errors that otherwise the first batch would raise."""
        window = self.gaussian_kernel, self.sigma, self.kernel_size
        check_ssim_options(self.data_range, *window, self.k1, self.k2)

    def _options(self, reduction: Reduction) -> tuple[Any, ...]:
        """The options that `ssim_arguments` takes."""
        window = self.gaussian_kernel, self.sigma, self.kernel_size
        return self.data_range, *window, reduction, self.k1, self.k2, self.preset

    def _keeps_values(self) -> bool:
        """Whether there is no reduction, so that each image's value is kept."""
        return self.reduction is None or self.reduction == "none"

    def _add_with_gradient(self, values: Tensor) -> None:
        if self._keeps_values():
            self.similarity.append(values)
        else:
            # This state holds the batch alone; it is added to a total of this dtype later.
            added = self.similarity + values.sum()
            self.similarity = added.to(self.similarity.dtype)

    def _reductions_of_states(self) -> dict[str, Any]:
        # By process, as maps and contrasts come in TorchMetrics too: each stays with its image.
        reductions = super()._reductions_of_states()
        if reductions["similarity"] is None:
            reductions["similarity"] = by_process
        return reductions

    def _reduced(self) -> Tensor:
        """The similarity of everything added since the last reset."""
        if self._keeps_values():
            return dim_zero_cat(self.similarity)
        if self.reduction == "sum":
            return self.similarity.clone()  # type: ignore[no-any-return]
        return self.similarity / self.total  # type: ignore[no-any-return]


def wants_gradient(preds: Tensor, target: Tensor) -> bool:
    """Whether autograd would record an op on these images."""
    if not torch.is_grad_enabled():
        return False
    require_tensors(preds, target)
    return preds.requires_grad or target.requires_grad


def as_result(kept: Tensor) -> Tensor:
    """A copy, for the caller, of a tensor that a list state keeps; one element becomes a scalar."""
    copy = kept.clone()
    return copy.squeeze() if copy.numel() == 1 else copy
