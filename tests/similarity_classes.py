"""The two SSIM classes, ours and TorchMetrics', for tests that hold for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from torch import Tensor
from torchmetrics import Metric

from cases import image_pair, range_of
from syncfree import image

TWO = (0.4, 0.6)


@dataclass(frozen=True)
class SimilarityClass:
    """One class by its name, with the options of its plainest use."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return self.name

    @property
    def ours(self) -> type[Metric]:
        return getattr(image, self.name)

    @property
    def theirs(self) -> type[Metric]:
        return getattr(tm, self.name)

    def pair(self, device: str, **options: Any) -> tuple[Metric, Metric]:
        """Our metric and TorchMetrics'."""
        merged = {**dict(self.options), **options}
        return self.ours(**merged).to(device), self.theirs(**merged).to(device)

    def batches(
        self, device: str, dtype: torch.dtype = torch.float32, shapes: Iterable[Any] = ()
    ) -> list[tuple[Tensor, Tensor]]:
        shapes = list(shapes) or self.shapes
        return [image_pair(shape, dtype, device, seed) for seed, shape in enumerate(shapes)]


SSIM = SimilarityClass(
    "StructuralSimilarityIndexMeasure",
    ((2, 3, 20, 24), (3, 3, 20, 24), (1, 3, 17, 41)),
    (("data_range", 1.0),),
)
MS_SSIM = SimilarityClass(
    "MultiScaleStructuralSimilarityIndexMeasure",
    ((2, 3, 27, 24), (3, 3, 27, 24), (1, 3, 23, 41)),
    (("data_range", 1.0), ("betas", TWO)),
)
CLASSES = [SSIM, MS_SSIM]

each_class = pytest.mark.parametrize("kind", CLASSES, ids=str)
each_reduction = pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none", None])


def same(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    """Shapes, dtypes and numbers, of a tensor or of a tuple or list of them."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            same(x, y, tolerance)
    else:
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def same_states(ours: Metric, theirs: Metric, tolerance: float = 2e-6) -> None:
    for name, state in theirs.metric_state.items():
        same(getattr(ours, name), state, tolerance)


def same_stream(ours: Metric, theirs: Metric, batches: list) -> None:
    """Two rounds of `forward` and `update` in turns, with a reset in between.

    TorchMetrics computes on the CPU: its convolutions by cuDNN are 3.5e-6 off, as float64 tells.
    """
    theirs = theirs.cpu()
    device = batches[0][0].device
    for _ in range(2):
        for i, batch in enumerate(batches):
            there = [x.cpu() for x in batch]
            if i % 2:
                ours.update(*batch)
                theirs.update(*there)
            else:
                same(on_cpu(ours(*batch), device), theirs(*there))
            assert ours.update_count == theirs.update_count
        same_states_from(ours, theirs, device)
        same(on_cpu(ours.compute(), device), theirs.compute())
        assert ours.compute() is ours.compute()
        ours.reset()
        theirs.reset()
        same_states_from(ours, theirs, device)


def same_states_from(ours: Metric, theirs: Metric, device: torch.device) -> None:
    for name, state in theirs.metric_state.items():
        same(on_cpu(getattr(ours, name), device), state)


def on_cpu(value: Any, device: torch.device) -> Any:
    """A copy of what must have been on that device."""
    if isinstance(value, (tuple, list)):
        return [on_cpu(each, device) for each in value]
    assert value.device == device
    return value.cpu()


def exact_stream(theirs: Metric, batches: list) -> Any:
    """TorchMetrics' result in float64."""
    theirs.set_dtype(torch.float64)
    for preds, target in batches:
        theirs.update(preds.double(), target.double())
    return theirs.compute()


def bounded(dtype: torch.dtype) -> dict[str, float]:
    """The option that `cases.image_pair` needs."""
    return {"data_range": range_of(dtype)}


def flat_states(metric: Metric) -> list[Tensor]:
    states = metric.metric_state.values()
    return [x for state in states for x in (state if isinstance(state, list) else [state])]
