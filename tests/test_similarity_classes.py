"""Both SSIM classes beside TorchMetrics: values, gradients, subclasses, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from cases import DTYPES
from similarity_classes import (
    SimilarityClass,
    bounded,
    each_class,
    each_reduction,
    exact_stream,
    flat_states,
    same,
    same_stream,
)


@each_class
def test_class_attributes(kind: SimilarityClass) -> None:
    ours, theirs = kind.pair("cpu")
    assert isinstance(ours, kind.theirs)
    assert type(ours).__name__ == kind.name
    for name in ("higher_is_better", "is_differentiable", "full_state_update"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert (ours.plot_lower_bound, ours.plot_upper_bound) == (0.0, 1.0)
    assert ours._reductions == theirs._reductions
    assert str(ours) == str(theirs)


@each_class
@each_reduction
@pytest.mark.parametrize("data_range", [1.0, 2, (0.1, 0.8), None], ids=str)
@pytest.mark.parametrize("gaussian_kernel", [True, False])
def test_same_stream_as_torchmetrics(
    kind: SimilarityClass, gaussian_kernel: bool, data_range: Any, reduction: Any, device: str
) -> None:
    options = {"gaussian_kernel": gaussian_kernel, "kernel_size": 7}
    pair = kind.pair(device, data_range=data_range, reduction=reduction, **options)
    same_stream(*pair, kind.batches(device))


@each_class
@pytest.mark.parametrize(
    "options",
    [
        {"sigma": 0.8, "kernel_size": 5},
        {"sigma": (0.8, 1.2), "kernel_size": [5, 7]},
        {"gaussian_kernel": False, "kernel_size": (3, 9)},
        {"k1": 0.02, "k2": 0.1},
    ],
    ids=str,
)
def test_windows_and_constants(kind: SimilarityClass, options: dict, device: str) -> None:
    same_stream(*kind.pair(device, **options), kind.batches(device))


@each_class
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
@pytest.mark.parametrize("kernel_size", [5, (5, 3, 7)], ids=str)
def test_volumes(kind: SimilarityClass, kernel_size: Any, reduction: str, device: str) -> None:
    pair = kind.pair(device, sigma=0.8, kernel_size=kernel_size, reduction=reduction)
    shapes = [(2, 10, 15, 17), (1, 10, 15, 17)]
    batches = [
        tuple(x.reshape(shape[0], 1, *shape[1:]) for x in batch)
        for shape, batch in zip(shapes, kind.batches(device, shapes=shapes), strict=True)
    ]
    same_stream(*pair, batches)


@each_class
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_are_wide_whatever_the_dtype(
    kind: SimilarityClass, dtype: torch.dtype, device: str
) -> None:
    ours, theirs = kind.pair(device, **bounded(dtype))
    batches = kind.batches(device, dtype)
    exact = exact_stream(theirs, batches)
    for batch in batches[:-1]:
        ours.update(*batch)
    value = ours(*batches[-1])
    assert value.dtype == ours.compute().dtype == ours.similarity.dtype == torch.float32
    torch.testing.assert_close(ours.compute().double(), exact, rtol=0, atol=2e-7)


@each_class
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_closer_than_torchmetrics(kind: SimilarityClass, dtype: torch.dtype) -> None:
    batches = kind.batches("cpu", dtype)
    ours, theirs = kind.pair("cpu")
    exact = exact_stream(kind.pair("cpu")[1], batches)
    for batch in batches:
        ours.update(*batch)
        theirs.update(*batch)
    assert 100 * abs(ours.compute() - exact) < abs(theirs.compute() - exact)


@each_class
@each_reduction
def test_gradient_of_the_batch_value(kind: SimilarityClass, reduction: Any, device: str) -> None:
    batches = kind.batches(device, torch.float64)
    gradients = []
    for metric in kind.pair(device, reduction=reduction):
        metric.update(*batches[1])
        leaves = [x.clone().requires_grad_() for x in batches[0]]
        value = metric(*leaves)
        with torch.no_grad():
            assert not metric(*leaves).requires_grad
        weights = torch.arange(1.0, 1.0 + value.numel(), device=device).reshape(value.shape)
        (value * weights).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)


@each_class
@pytest.mark.parametrize("preset", ["torchmetrics", "pytorch-msssim"])
def test_update_saves_nothing_for_a_backward(
    kind: SimilarityClass, preset: str, device: str
) -> None:
    """Checkpointed code runs again up to the last tensor that it saved, updates included."""
    metric = kind.ours(**dict(kind.options), preset=preset).to(device)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
        metric.update(*(torch.rand(1, 1, 40, 40, device=device, requires_grad=True),) * 2)
    assert not saved


@each_class
def test_options_may_change_later(kind: SimilarityClass, device: str) -> None:
    ours, theirs = kind.pair(device)
    batches = kind.batches(device)
    for metric in (ours, theirs):
        metric.update(*batches[0])
        metric.data_range, metric.k2 = 4.0, 0.1
        metric.update(*batches[1])
    same(ours.compute(), theirs.compute())


def halved(base: type[Metric]) -> type[Metric]:
    class Halved(base):  # type: ignore[misc, valid-type]
        def compute(self) -> Any:
            return super().compute() / 2

    return Halved


def brightened(base: type[Metric]) -> type[Metric]:
    class Brightened(base):  # type: ignore[misc, valid-type]
        def update(self, preds: Tensor, target: Tensor) -> None:
            super().update(preds + 0.1, target)

    return Brightened


@each_class
@each_reduction
@pytest.mark.parametrize("change", [halved, brightened])
def test_subclasses_are_heeded(
    kind: SimilarityClass, change: Callable[..., type[Metric]], reduction: Any, device: str
) -> None:
    options = {**dict(kind.options), "reduction": reduction}
    pair = [change(base)(**options).to(device) for base in (kind.ours, kind.theirs)]
    same_stream(*pair, kind.batches(device))


@each_class
@each_reduction
@pytest.mark.parametrize("change", [halved, brightened])
def test_batch_values_of_subclasses_have_a_gradient(
    kind: SimilarityClass, change: Callable[..., type[Metric]], reduction: Any, device: str
) -> None:
    options = {**dict(kind.options), "reduction": reduction}
    pair = [change(base)(**options).to(device) for base in (kind.ours, kind.theirs)]
    gradients = []
    for metric in pair:
        preds, target = kind.batches(device, torch.float64)[0]
        leaf = preds.clone().requires_grad_()
        metric(leaf, target).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)
    same(pair[0].compute(), pair[1].compute())


# ---- Errors.

BAD_OPTIONS = [
    ({"reduction": "mean"}, ValueError, "Argument `reduction` must be one of"),
    ({"data_range": -1.0}, ValueError, "`data_range` to be positive"),
    ({"data_range": "1"}, TypeError, "`data_range` to be a number"),
    ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
    ({"kernel_size": 4}, ValueError, "Expected `kernel_size` to have odd positive number. Got 4"),
    ({"kernel_size": (3, -1)}, ValueError, "Expected `kernel_size` to have odd positive number"),
    ({"sigma": 0.0}, ValueError, "Expected `sigma` to have positive number. Got 0.0"),
    ({"sigma": (1.0, -2.0)}, ValueError, "Expected `sigma` to have positive number"),
    ({"sigma": "wide"}, TypeError, "`sigma` to be a number"),
    ({"k1": None}, TypeError, "`k1` to be a number"),
    ({"colour": True}, ValueError, "Unexpected keyword arguments: `colour`"),
]


@each_class
@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS, ids=str)
def test_bad_options_raise_at_construction(
    kind: SimilarityClass, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind.pair("cpu", **options)


BAD_BATCHES: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (lambda p, t: (p, t[..., :-1]), RuntimeError, "same shape"),
    (lambda p, t: (p[0], t[0]), ValueError, "BxCxHxW or BxCxDxHxW"),
    (lambda p, t: (p.int(), t), TypeError, "both images as integers or both as floats"),
    (lambda p, t: (p.bool(), t), RuntimeError, "`preds` to be .* but got bool"),
    (lambda p, t: (p, t.to("meta")), RuntimeError, "same device"),
    (lambda p, t: (p.to("meta"), t.to("meta")), RuntimeError, "on the device of the images"),
    (lambda p, t: (p.tolist(), t), TypeError, "to be a tensor"),
]


@each_class
@pytest.mark.parametrize(("spoil", "error", "message"), BAD_BATCHES)
def test_bad_batches_raise_and_change_nothing(
    kind: SimilarityClass, spoil: Any, error: type[Exception], message: str, device: str
) -> None:
    metric = kind.pair(device)[0]
    batch = kind.batches(device)[0]
    metric.update(*batch)
    before = [state.clone() for state in flat_states(metric)]
    for step in (metric, metric.update):
        with pytest.raises(error, match=message):
            step(*spoil(*batch))
    assert all(map(torch.equal, flat_states(metric), before))
    assert metric.update_count == 1
