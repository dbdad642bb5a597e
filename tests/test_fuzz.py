"""Inputs of any kind, right and wrong: a clear error or TorchMetrics' answer, never anything else.

`make fuzz` draws thousands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torchmetrics.functional.classification as tm
import torchmetrics.functional.image as tm_image
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import syncfree
from drawing import examples
from syncfree import functional as sf

pytestmark = pytest.mark.fuzz

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
]

Options = dict[str, Any]

# What ours refuses and TorchMetrics takes, and when it may: rows of the compatibility table.
STRICTER: dict[str, Callable[[Tensor, Tensor, Options], bool]] = {
    r"Detected the following values in `target`": lambda p, t, o: has_bad_labels(t, o),
    r"Detected the following values in `preds`": lambda p, t, o: has_bad_labels(
        p, {**o, "ignore_index": None}
    ),
    r"to be a tensor of": lambda p, t, o: p.is_complex() or t.is_complex(),
    r"If `target` is one-hot, pass": lambda p, t, o: (
        p.is_floating_point() and p.ndim > 1 and p.shape[1] == o["num_classes"]
    ),
    r"`top_k` to be an integer larger": lambda p, t, o: o["top_k"] < 1,
    r"with a score for each class where `top_k`": lambda p, t, o: (
        o["top_k"] > 1 and p.ndim == t.ndim
    ),
    r"the same shape, but got": lambda p, t, o: p.shape != t.shape,
    r"images of a floating": lambda p, t, o: not p.is_floating_point(),
    r"`data_range` to be positive": lambda p, t, o: o["data_range"] == 0,
    r"`kernel_size` to be an integer or": lambda p, t, o: isinstance(o["kernel_size"], float),
    r"low < high": lambda p, t, o: o["data_range"] in ((1.0, 0.0), (0.7, 0.2)),
}


def has_bad_labels(labels: Tensor, options: Options) -> bool:
    classes = options.get("num_classes", 2) or math.inf
    whole = labels.cpu().double()
    bad = ~((whole >= 0) & (whole < classes) & (whole == whole.trunc()))
    if options["ignore_index"] is not None:
        bad &= whole != options["ignore_index"]
    return bool(bad.any())


@st.composite
def tensors(
    draw: st.DrawFn,
    device: str,
    like: Tensor | None = None,
    dtypes: Sequence[torch.dtype] = DTYPES,
) -> Tensor:
    """Of the shape of another one, or nearly so, or of any."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    if like is not None:
        kind = draw(st.sampled_from(["same", "same", "same", "scores", "labels", "any"]))
        if kind == "same":
            shape = tuple(like.shape)
        elif kind == "scores" and like.ndim:
            shape = (like.shape[0], draw(st.integers(1, 6)), *like.shape[1:])
        elif kind == "labels" and like.ndim > 1:
            shape = (like.shape[0], *like.shape[2:])
    dtype = draw(st.sampled_from(dtypes))
    values = draw(st.sampled_from(["labels", "unit", "wide", "odd"]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    if values == "labels":
        x = torch.randint(0, draw(st.integers(1, 6)), shape, generator=generator)
    elif values == "unit":
        x = torch.rand(shape, generator=generator, dtype=torch.float64)
    elif values == "wide":
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    else:
        pool = torch.tensor([0.0, 1.0, 0.5, -1.0, math.nan, math.inf, -math.inf, 7.0])
        x = pool[torch.randint(0, len(pool), shape, generator=generator)]
    x = x.to(dtype)
    if draw(st.booleans()) and x.ndim > 1:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    return x.to(device)


def outcome(function: Any, *args: Any, **options: Any) -> Tensor | Exception:
    try:
        value: Tensor = function(*args, **options)
    except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError) as error:
        return error
    return value


def agree(
    ours: Any, theirs: Any, preds: Tensor, target: Tensor, options: Options, rtol: float = 1e-6
) -> None:
    ours = outcome(told_at_once(ours), preds, target, **options)
    # On CUDA some inputs fail an assertion inside of theirs: the end of CUDA in this process.
    theirs = outcome(theirs, preds.cpu(), widened(target).cpu(), **options)
    if isinstance(ours, Exception):
        assert str(ours)
        stricter = any(
            re.search(pattern, str(ours)) and applies(preds, target, options)
            for pattern, applies in STRICTER.items()
        )
        assert isinstance(theirs, Exception) or stricter, f"{ours!r}, but theirs is {theirs!r}"
    elif not isinstance(theirs, Exception):
        torch.testing.assert_close(
            ours.squeeze().cpu(), theirs.squeeze(), rtol=rtol, atol=1e-6, equal_nan=True
        )


def told_at_once(function: Any) -> Any:
    """On CUDA bad labels are raised by a later call."""

    def call(*args: Any, **options: Any) -> Tensor:
        value: Tensor = function(*args, **options)
        syncfree.check_errors()
        return value

    return call


def widened(target: Tensor) -> Tensor:
    """TorchMetrics marks what it ignores by -1, which bools do not hold."""
    return target.long() if target.dtype == torch.bool else target


def has_nan(x: Tensor) -> bool:
    return x.is_floating_point() and bool(x.isnan().any())


AVERAGES = st.sampled_from(["micro", "macro", "weighted", "none", None, "mean"])
MODES = st.sampled_from(["global", "global", "samplewise", "all"])
IGNORED = st.sampled_from([None, None, 0, 1, -1, -100, 1.5])


@given(data=st.data())
def test_multiclass_accuracy(data: st.DataObject, device: str) -> None:
    target = data.draw(tensors(device), "target")
    preds = data.draw(tensors(device, target), "preds")
    options = {
        "num_classes": data.draw(st.sampled_from([None, 1, 2, 3, 5, 6]), "num_classes"),
        "average": data.draw(AVERAGES, "average"),
        "top_k": data.draw(st.sampled_from([1, 1, 2, 3, 0]), "top_k"),
        "multidim_average": data.draw(MODES, "multidim_average"),
        "ignore_index": data.draw(IGNORED, "ignore_index"),
    }
    # A fraction is cut off before it is compared with the ignored class; theirs, after. Without a
    # number of classes it is no error, and equals no other. Nor does an infinity.
    known = options["ignore_index"] is None and options["num_classes"] is not None
    assume(known or is_whole(target))
    # Which of equal scores torch.topk takes is not told.
    assume(options["top_k"] < 2 or no_ties(preds))
    agree(sf.multiclass_accuracy, tm.multiclass_accuracy, preds, target, options)


def is_huge(*tensors: Tensor) -> bool:
    return any(
        x.dtype == torch.int64 and bool((x.abs() > 2**40).any() | (x < -(2**40)).any())
        for x in tensors
    )


def is_whole(x: Tensor) -> bool:
    x = x.cpu()
    return not x.is_floating_point() or bool((x.isfinite() & (x == x.trunc())).all())


def no_ties(scores: Tensor) -> bool:
    if scores.ndim < 2 or has_nan(scores) or scores.is_complex():
        return False
    ordered = scores.cpu().sort(1).values
    return bool((ordered.diff(dim=1) != 0).all())


@given(data=st.data())
def test_binary_accuracy(data: st.DataObject, device: str) -> None:
    target = data.draw(tensors(device), "target")
    preds = data.draw(tensors(device, target), "preds")
    options = {
        "threshold": data.draw(st.sampled_from([0.5, 0.3, 0.0, 1.0, 2.0, None]), "threshold"),
        "multidim_average": data.draw(MODES, "multidim_average"),
        "ignore_index": data.draw(IGNORED, "ignore_index"),
    }
    assume(not has_nan(preds))  # a row of the compatibility table
    agree(sf.binary_accuracy, tm.binary_accuracy, preds, target, options)


@given(data=st.data())
def test_multilabel_accuracy(data: st.DataObject, device: str) -> None:
    target = data.draw(tensors(device), "target")
    preds = data.draw(tensors(device, target), "preds")
    labels = target.shape[1] if target.ndim > 1 else 3
    options = {
        "num_labels": data.draw(st.sampled_from([labels, labels, 1, 2]), "num_labels"),
        "threshold": data.draw(st.sampled_from([0.5, 0.3, 2.0, None]), "threshold"),
        "average": data.draw(AVERAGES, "average"),
        "multidim_average": data.draw(MODES, "multidim_average"),
        "ignore_index": data.draw(IGNORED, "ignore_index"),
    }
    assume(not has_nan(preds))
    agree(sf.multilabel_accuracy, tm.multilabel_accuracy, preds, target, options)


@given(data=st.data())
def test_peak_signal_noise_ratio(data: st.DataObject, device: str) -> None:
    # Of half tensors and of two dtypes ours is nearer to the truth.
    wide = [x for x in DTYPES if x not in (torch.float16, torch.bfloat16)]
    target = data.draw(tensors(device, dtypes=wide), "target")
    preds = data.draw(tensors(device, target, [target.dtype]), "preds")
    options = {
        "data_range": data.draw(
            st.sampled_from([1.0, 3, (0.0, 1.0), (0.2, 0.7), (1.0, 0.0), None]), "data_range"
        ),
        "base": data.draw(st.sampled_from([10.0, 2.0]), "base"),
        "reduction": data.draw(
            st.sampled_from(["elementwise_mean", "sum", "none", None, "mean"]), "reduction"
        ),
        "dim": data.draw(st.sampled_from([None, None, 0, 1, -1, (0, 1), (1, 2, 3), ()]), "dim"),
    }
    # Theirs overflows in float32 where a NaN was made an integer, the least there is.
    assume(preds.is_floating_point() or not is_huge(preds, target))
    theirs = tm_image.peak_signal_noise_ratio
    agree(sf.peak_signal_noise_ratio, theirs, preds, target, options, 1e-5)


@st.composite
def image_pairs(draw: st.DrawFn, device: str) -> tuple[Tensor, Tensor]:
    """Mostly images and volumes, of one dtype; the second one mostly of the first one's shape."""
    shape = draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    dims = draw(st.sampled_from([2, 2, 2, 2, 3, 1]))
    shape += draw(st.lists(st.integers(7, 16), min_size=dims, max_size=dims))
    other = list(shape)
    if rarely(draw):
        other[draw(st.integers(0, len(other) - 1))] += 1
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    scale = draw(st.sampled_from([1.0, 1.0, 200.0, 1e-3]))
    dtype = torch.int64 if rarely(draw) else torch.float64
    pair = [torch.rand(s, generator=generator, dtype=torch.float64) for s in (shape, other)]
    preds, target = ((x * scale).to(dtype).to(device) for x in pair)
    return preds, target


def rarely(draw: Any) -> bool:
    return bool(draw(st.integers(0, 9)) == 9)


GOOD: dict[str, list[Any]] = {
    "gaussian_kernel": [True, False],
    "sigma": [0.3, 0.8],
    "kernel_size": [3, 5],
    "reduction": ["elementwise_mean", "sum", "none", None],
    "data_range": [None, 1.0, 200.0, (0.2, 0.7)],
    "k1": [0.01, 0.1],
    "k2": [0.03, 0.1],
}
SCALES: dict[str, list[Any]] = {
    "betas": [(1.0,), (0.4, 0.6)],
    "normalize": ["relu", "simple", None],
}
BAD: dict[str, list[Any]] = {
    "sigma": [1.5, 0.0, -1.0, (0.8, 0.3), (0.8, 0.3, 0.3), "wide"],
    "kernel_size": [7, 4, 0, -3, (3, 5), (5, 3, 3), 3.0],
    "reduction": ["mean"],
    "data_range": [0.0, (0.7, 0.2), "1"],
    "betas": [[0.4, 0.6], (1, 2)],
    "normalize": ["mean"],
}


def draw_options(data: st.DataObject, good: Options) -> Options:
    """At most one that may be wrong."""
    options = {name: data.draw(st.sampled_from(values), name) for name, values in good.items()}
    if data.draw(st.integers(0, 3), "spoil") == 3:
        name = data.draw(st.sampled_from([name for name in BAD if name in good]), "which")
        options[name] = data.draw(st.sampled_from(BAD[name]), name)
    return options


@examples(60)
@given(data=st.data())
def test_structural_similarity(data: st.DataObject, device: str) -> None:
    preds, target = data.draw(image_pairs(device), "images")
    ours, theirs = (module.structural_similarity_index_measure for module in (sf, tm_image))
    agree(ours, theirs, preds, target, draw_options(data, GOOD), 2e-6)


@examples(60)
@given(data=st.data())
def test_multiscale_structural_similarity(data: st.DataObject, device: str) -> None:
    preds, target = data.draw(image_pairs(device), "images")
    ours, theirs = (
        module.multiscale_structural_similarity_index_measure for module in (sf, tm_image)
    )
    agree(ours, theirs, preds, target, draw_options(data, GOOD | SCALES), 2e-6)
