"""The image classes beside TorchMetrics' over all options: the same stream of batches to both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from drawing import examples
from similarity_classes import same_stream
from syncfree import image

pytestmark = pytest.mark.fuzz

Batches = list[tuple[Tensor, Tensor]]

REDUCTIONS = st.sampled_from(["elementwise_mean", "sum", "none", None])


def draw_batches(data: st.DataObject, sizes: st.SearchStrategy[list[int]], device: str) -> Batches:
    """In float64, in which TorchMetrics' SSIM is right, too."""
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    shape = [data.draw(st.integers(1, 3), "channels"), *data.draw(sizes, "sizes")]
    noise = data.draw(st.sampled_from([0.05, 0.3, 1.0]), "noise")
    batches = []
    for n in data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3), "batches"):
        target = torch.rand(n, *shape, dtype=torch.float64)
        preds = target + noise * (torch.rand_like(target) - 0.5)
        batches.append((preds.to(device), target.to(device)))
    return batches


def follow(name: str, options: dict[str, Any], batches: Batches) -> None:
    ours, theirs = (getattr(module, name)(**options) for module in (image, tm))
    same_stream(ours.to(batches[0][0].device), theirs, batches)


def draw_window(
    data: st.DataObject, dims: int, sigmas: list[float], sizes: list[int]
) -> dict[str, Any]:
    def one_or_each(values: st.SearchStrategy) -> st.SearchStrategy:
        return values | st.lists(values, min_size=dims, max_size=dims).map(tuple)

    return {
        "gaussian_kernel": data.draw(st.booleans(), "gaussian_kernel"),
        "sigma": data.draw(one_or_each(st.sampled_from(sigmas)), "sigma"),
        "kernel_size": data.draw(one_or_each(st.sampled_from(sizes)), "kernel_size"),
    }


def draw_shared(data: st.DataObject) -> dict[str, Any]:
    return {
        "reduction": data.draw(REDUCTIONS, "reduction"),
        "data_range": data.draw(st.sampled_from([None, 1.0, 2, (0.1, 0.8)]), "data_range"),
        "k1": data.draw(st.sampled_from([0.01, 0.05]), "k1"),
        "k2": data.draw(st.sampled_from([0.03, 0.1]), "k2"),
    }


def sizes(dims: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=dims, max_size=dims)


@examples(60)
@given(data=st.data())
def test_peak_signal_noise_ratio(data: st.DataObject, device: str) -> None:
    dims = [None, 0, 1, -1, (2, 3), (0, 1), (1, 2, 3), ()]
    dim = data.draw(st.sampled_from(dims), "dim")
    options = {
        "data_range": data.draw(st.sampled_from([1.0, 3, (0.0, 1.0), (0.2, 0.7)]), "data_range"),
        "base": data.draw(st.sampled_from([10.0, 2.0]), "base"),
        # Without `dim` TorchMetrics warns of another reduction and takes none into account.
        "reduction": "elementwise_mean" if dim is None else data.draw(REDUCTIONS, "reduction"),
        "dim": dim,
    }
    follow("PeakSignalNoiseRatio", options, draw_batches(data, sizes(2, 1, 12), device))


@examples(20)
@given(data=st.data())
def test_structural_similarity(data: st.DataObject, device: str) -> None:
    dims = data.draw(st.sampled_from([2, 2, 3]), "dims")
    extra = data.draw(
        st.sampled_from([None, None, "return_full_image", "return_contrast_sensitivity"]), "extra"
    )
    options = {**draw_window(data, dims, [0.3, 0.8, 1.5], [3, 5, 7]), **draw_shared(data)}
    if extra is not None:
        options[extra] = True
    # The last side of a volume is padded for `kernel_size`, where the window is as wide as `sigma`
    # wants: 9 + 2 hold its 11 taps.
    volume = st.tuples(st.integers(6, 10), st.integers(6, 10), st.integers(9, 11)).map(list)
    area = sizes(2, 6, 24) if dims == 2 else volume
    follow("StructuralSimilarityIndexMeasure", options, draw_batches(data, area, device))


@examples(8)
@given(data=st.data())
def test_multiscale_structural_similarity(data: st.DataObject, device: str) -> None:
    dims = data.draw(st.sampled_from([2, 2, 3]), "dims")
    options = {
        **draw_window(data, dims, [0.3, 0.8], [3, 5]),
        **draw_shared(data),
        "betas": data.draw(st.sampled_from([(1.0,), (0.4, 0.6), (0.2, 0.3, 0.5)]), "betas"),
        "normalize": data.draw(st.sampled_from(["relu", "simple", None]), "normalize"),
    }
    area = sizes(dims, 20, 26)
    follow("MultiScaleStructuralSimilarityIndexMeasure", options, draw_batches(data, area, device))
