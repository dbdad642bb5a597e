"""Wrong inputs of accuracy: TorchMetrics' error types and words, and what is better here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import syncfree
from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)

Call = Callable[[], Tensor]


def raises_bad_label(call: Call, message: str, device: str) -> None:
    """On CPU at once; on CUDA the value is NaN and the error waits for the next look."""
    if device == "cpu":
        with pytest.raises(RuntimeError, match=message):
            call()
    else:
        assert call().isnan().all()
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match=r"the following values in `(target|preds)`"):
            syncfree.check_errors()
        syncfree.check_errors()  # nothing is reported twice


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": "mean"}, "Expected argument `average` to be one of"),
        ({"average": ["micro"]}, "Expected argument `average` to be one of"),
        ({"multidim_average": "all"}, "Expected argument `multidim_average` to be one of"),
        ({"multidim_average": None}, "Expected argument `multidim_average` to be one of"),
        (
            {"ignore_index": 1.0},
            "Expected argument `ignore_index` to either be `None` or an integer",
        ),
        (
            {"ignore_index": "1"},
            "Expected argument `ignore_index` to either be `None` or an integer",
        ),
        ({"num_classes": 1}, "Expected argument `num_classes` to be an integer larger than 1"),
        ({"num_classes": 3.0}, "Expected argument `num_classes` to be an integer larger than 1"),
        ({"num_classes": None}, "Argument `num_classes` can only be `None` for `average='micro'`"),
        ({"top_k": 4}, "Expected argument `top_k` to be smaller or equal to `num_classes`"),
        ({"top_k": 0}, "Expected argument `top_k` to be an integer larger than or equal to 1"),
        ({"top_k": -1}, "Expected argument `top_k` to be an integer larger than or equal to 1"),
        ({"top_k": 1.5}, "Expected argument `top_k` to be an integer larger than or equal to 1"),
        (
            {"num_classes": None, "average": "micro", "top_k": 2},
            "Expected argument `top_k` to be smaller or equal to `num_classes`",
        ),
    ],
    ids=str,
)
def test_multiclass_arguments(options: dict, message: str) -> None:
    """A remembered good call never lets an equal value of another type pass."""
    preds, target = torch.rand(4, 3), torch.tensor([0, 1, 2, 0])
    for _ in range(2):
        multiclass_accuracy(preds, target, 3, ignore_index=1)
        with pytest.raises(ValueError, match=message):
            multiclass_accuracy(preds, target, **{"num_classes": 3, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1}, "Expected argument `threshold` to be a float"),
        ({"threshold": 1.5}, "Expected argument `threshold` to be a float"),
        ({"threshold": -0.1}, "Expected argument `threshold` to be a float"),
        ({"threshold": math.nan}, "Expected argument `threshold` to be a float"),
        ({"threshold": "0.5"}, "Expected argument `threshold` to be a float"),
        ({"multidim_average": "mean"}, "Expected argument `multidim_average` to be one of"),
        (
            {"ignore_index": 0.5},
            "Expected argument `ignore_index` to either be `None` or an integer",
        ),
    ],
    ids=str,
)
def test_binary_and_multilabel_arguments(options: dict, message: str) -> None:
    preds, target = torch.rand(4, 3), torch.ones(4, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        binary_accuracy(preds, target, **options)
    with pytest.raises(ValueError, match=message):
        multilabel_accuracy(preds, target, 3, **options)


def test_remaining_arguments() -> None:
    preds, target = torch.rand(4, 3), torch.ones(4, 3, dtype=torch.int64)
    with pytest.raises(
        ValueError, match=r"threshold` to be a float in the \[0,1\] range, but got 2"
    ):
        binary_accuracy(preds, target, 2.0)
    with pytest.raises(
        ValueError, match="Expected argument `num_labels` to be an integer larger than 1"
    ):
        multilabel_accuracy(preds, target, 1)
    with pytest.raises(ValueError, match="Expected argument `average` to be one of"):
        multilabel_accuracy(preds, target, 3, average="samples")
    for task in ("multi-class", "regression", None):
        with pytest.raises(ValueError, match="Invalid Classification: expected one of"):
            accuracy(preds, target, task)
    for options in ({}, {"num_classes": 3.0}, {"num_classes": 3, "top_k": None}):
        with pytest.raises(ValueError, match="must be type `int` when task is multiclass"):
            accuracy(preds, target[:, 0], "multiclass", **options)
    with pytest.raises(ValueError, match="`num_labels` must be type `int` when task is multilabel"):
        accuracy(preds, target, "multilabel", num_classes=3)


ONE_MORE = "If `preds` have one dimension more than `target`, "


@pytest.mark.parametrize(
    ("preds", "target", "options", "message"),
    [
        ((4, 2), (4,), {}, ONE_MORE + r"`preds.shape\[1\]` should be equal to number of classes"),
        ((4, 3, 5), (4, 6), {}, ONE_MORE + "the shape of `preds` should be"),
        ((5, 3), (4,), {}, ONE_MORE + "the shape of `preds` should be"),
        ((4, 3), (4,), {"multidim_average": "samplewise"}, ONE_MORE + ".* at least 3D"),
        ((4, 0), (4,), {"num_classes": None, "average": "micro"}, "at least one class"),
        ((3,), (), {}, ONE_MORE + "`target` should be at least 1D"),
        ((4,), (5,), {}, "The `preds` and `target` should have the same shape"),
        ((4,), (4,), {"multidim_average": "samplewise"}, "When `preds` and `target` .* 2D"),
        ((4,), (4,), {"top_k": 2}, "a score for each class"),
        ((), (), {}, "at least 1D"),
        ((4, 3, 2, 2), (4, 2), {}, "Either `preds` and `target` both should have the"),
        ((4,), (4, 3), {}, "Either `preds` and `target` both should have the"),
    ],
    ids=str,
)
@pytest.mark.parametrize("validate", [False, True])
def test_multiclass_shapes(
    preds: tuple, target: tuple, options: dict, message: str, validate: bool, device: str
) -> None:
    """Checked without `validate_args` too: it costs nothing, and memory is at stake."""
    arguments = {"num_classes": 3, **options, "validate_args": validate}
    with pytest.raises(ValueError, match=message):
        multiclass_accuracy(
            torch.zeros(preds, device=device),
            torch.zeros(target, dtype=torch.int64, device=device),
            **arguments,
        )


def test_other_shapes_and_types(device: str) -> None:
    preds = torch.rand(4, 3, device=device)
    target = torch.ones(4, 3, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match=ONE_MORE + "`preds` should be a float tensor"):
        multiclass_accuracy(preds.int(), target[:, 0], 3)
    for function in (binary_accuracy, lambda p, t: multilabel_accuracy(p, t, 3)):
        with pytest.raises(
            RuntimeError, match="Predictions and targets are expected to have the same"
        ):
            function(preds, target[:3])
        with pytest.raises(RuntimeError, match="ComplexFloat"):
            function(preds.to(torch.complex64), target)
        with pytest.raises(ValueError, match="at least"):
            function(preds[0, 0], target[0, 0])
    with pytest.raises(ValueError, match="Expected input to be at least 2D"):
        binary_accuracy(preds[0], target[0], multidim_average="samplewise")
    with pytest.raises(ValueError, match="Expected input to be at least 3D"):
        multilabel_accuracy(preds, target, 3, multidim_average="samplewise")
    with pytest.raises(
        ValueError, match=r"Expected both `target.shape\[1\]` and `preds.shape\[1\]`"
    ):
        multilabel_accuracy(preds, target, 4)


# ---- Bad labels.


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize("layout", ["rows", "planes"])
def test_target_out_of_range(layout: str, average: str, bad: int, device: str) -> None:
    """TorchMetrics counts unique values only, and none of float predictions' targets."""
    preds = torch.rand(3, 5, 700, device=device)
    preds = preds.transpose(1, 2).contiguous().transpose(1, 2) if layout == "rows" else preds
    target = preds.argmax(1)
    target[1, 600], target[2, 3] = bad, 9
    message = rf"in `target`: {bad} at flat index 1300, the first of 2, .* range \[0, 4\]"

    def call(**options: object) -> Tensor:
        return multiclass_accuracy(preds, target, 5, average, **options)

    raises_bad_label(call, message, device)
    raises_bad_label(lambda: call(top_k=3), message, device)
    raises_bad_label(lambda: call(multidim_average="samplewise"), message, device)
    raises_bad_label(lambda: call(ignore_index=9), r"the first of 1, .* or ignore_index=9", device)
    kept = call(validate_args=False)
    if average == "micro":
        assert kept.item() == pytest.approx(2098 / 2100)
    else:
        assert torch.equal(kept, torch.ones_like(kept))
    per_sample = call(validate_args=False, multidim_average="samplewise")
    want = [1, 699 / 700, 699 / 700] if average == "micro" else [1, 1, 1]
    assert per_sample.reshape(3, -1).amin(1).tolist() == pytest.approx(want)


def test_predicted_label_out_of_range(device: str) -> None:
    preds = torch.tensor([0, 3, 7, 1, 9], device=device)
    target = torch.tensor([0, 1, 2, 1, -100], device=device)

    def call(**options: object) -> Tensor:
        return multiclass_accuracy(preds, target, 3, ignore_index=-100, **options)

    raises_bad_label(call, "in `preds`: 3 at flat index 1, the first of 2", device)
    assert call(average="micro", validate_args=False).item() == 0.5
    assert call(average="none", validate_args=False).tolist() == [1, 1, 0]


def test_target_before_prediction(device: str) -> None:
    """At one position the target is judged first, and only one of the two is counted."""
    preds, target = torch.tensor([0, 8, 9], device=device), torch.tensor([0, 7, 1], device=device)
    raises_bad_label(
        lambda: multiclass_accuracy(preds, target, 3),
        "in `target`: 7 at flat index 1, the first of 2",
        device,
    )


@pytest.mark.parametrize("kind", ["scores", "logits", "labels"])
def test_bad_binary_labels(kind: str, device: str) -> None:
    right = torch.tensor([[0, 1, 1], [1, 0, 0]], device=device)
    preds = (
        right if kind == "labels" else right * 0.5 + 0.25 if kind == "scores" else right * 8.0 - 4
    )
    target = right.clone()
    target[1, 0], target[1, 2] = 2, -1
    message = r"in `target`: 2 at flat index 3, the first of 2, .* \[0, 1\]"
    for call in (
        lambda **options: binary_accuracy(preds, target, **options),
        lambda **options: multilabel_accuracy(preds, target, 3, **options),
    ):
        raises_bad_label(call, "Detected the following values " + message, device)
        raises_bad_label(lambda call=call: call(ignore_index=-1), "the first of 1", device)
        assert call(validate_args=False).item() == 1.0
        assert call(validate_args=False, ignore_index=2).item() == 1.0


def test_bad_binary_predictions(device: str) -> None:
    preds, target = (
        torch.tensor([0, 2, 1, 5], device=device),
        torch.tensor([0, 1, 1, -1], device=device),
    )
    raises_bad_label(
        lambda: binary_accuracy(preds, target, ignore_index=-1),
        "in `preds`: 2 at flat index 1, the first of 1",
        device,
    )
    assert binary_accuracy(preds, target, ignore_index=-1, validate_args=False).item() == 1.0


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf])
def test_targets_that_are_no_labels(value: float, device: str) -> None:
    target = torch.tensor([0.0, 1.0, value], device=device)
    preds = torch.tensor([0.1, 0.9, 0.8], device=device)
    raises_bad_label(
        lambda: binary_accuracy(preds, target),
        "in `target`: no whole number at flat index 2",
        device,
    )
    assert binary_accuracy(preds, target, validate_args=False).item() == 1.0


def test_unvalidated_arguments_still_compute(device: str) -> None:
    """What TorchMetrics lets pass without validation and has a meaning."""
    preds, target = torch.tensor([0.2, 0.8], device=device), torch.tensor([0, 1], device=device)
    assert binary_accuracy(preds, target, threshold=1, validate_args=False).item() == 0.5
    assert binary_accuracy(preds, target, threshold=-1.0, validate_args=False).item() == 0.5
    one = torch.zeros(3, 1, device=device)
    assert multiclass_accuracy(one, one[:, 0].long(), 1, validate_args=False).item() == 1.0
    assert multilabel_accuracy(one, one.long(), 1, validate_args=False).item() == 1.0


def test_more_dimensions_than_a_view_holds(device: str) -> None:
    """Nine for the scores and eight for the target: both must be merged, or neither."""
    scores = torch.randn(2, 3, 1, 2, 1, 2, 1, 1, 2, device=device)
    target = torch.randint(0, 3, (2, 1, 2, 1, 2, 1, 1, 2), device=device)
    for average in ("micro", "macro", "none"):
        got = multiclass_accuracy(scores, target, 3, average=average)
        flat = multiclass_accuracy(scores.flatten(2), target.flatten(1), 3, average=average)
        assert torch.equal(got, flat)


def test_absurd_number_of_classes(device: str) -> None:
    labels = torch.tensor([0, 1, 2], device=device)
    for count in (2**31, 2**62, 6148914691236517206):
        with pytest.raises(ValueError, match="`num_classes` to be at most 2147483647"):
            multiclass_accuracy(labels, labels, count)


def test_threshold_must_be_a_number(device: str) -> None:
    """Its check is remembered: a tensor whose value changes would go on with the old one."""
    scores = torch.rand(4, device=device)
    with pytest.raises(ValueError, match="`threshold` to be a float"):
        binary_accuracy(scores, scores > 0.5, torch.tensor(0.5), validate_args=False)


def test_ignore_index_that_no_tensor_holds(device: str) -> None:
    labels = torch.tensor([0, 1, 2], device=device)
    with pytest.raises(ValueError, match="`ignore_index` to either be"):
        multiclass_accuracy(labels, labels, 3, ignore_index=2**63)
