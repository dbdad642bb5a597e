"""Wrong arguments and shapes of accuracy: TorchMetrics' error types and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)


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
        ({"top_k": "1"}, "Expected argument `top_k` to be an integer larger than or equal to 1"),
        ({"average": 3}, "Expected argument `average` to be one of"),
        ({"average": np.array([1, 2])}, "Expected argument `average` to be one of"),
        ({"multidim_average": np.array([1, 2])}, "`multidim_average` to be one of"),
        ({"num_classes": "3"}, "Expected argument `num_classes` to be an integer larger than 1"),
        ({"num_classes": 2**70}, "Expected argument `num_classes` to be at most 2147483647"),
        ({"num_classes": np.int64(3)}, r"Convert it with `int\(num_classes\)`"),
        ({"ignore_index": torch.tensor(1)}, r"Convert it with `int\(ignore_index\)`"),
        ({"num_classes": None, "average": np.array([1, 2])}, "`num_classes` can only be `None`"),
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
        ({"threshold": None}, "Expected argument `threshold` to be a float"),
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
    with pytest.raises(ValueError, match="Expected argument `num_labels` to be at most 2147483647"):
        multilabel_accuracy(preds, target, 2**70)
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


def test_absurd_number_of_classes(device: str) -> None:
    labels = torch.tensor([0, 1, 2], device=device)
    for count in (2**31, 2**62, 6148914691236517206):
        with pytest.raises(ValueError, match="`num_classes` to be at most 2147483647"):
            multiclass_accuracy(labels, labels, count)


def test_threshold_must_be_a_number(device: str) -> None:
    scores = torch.rand(4, device=device)
    with pytest.raises(ValueError, match="`threshold` to be a float"):
        binary_accuracy(scores, scores > 0.5, torch.tensor(0.5))


def test_ignore_index_that_no_tensor_holds(device: str) -> None:
    labels = torch.tensor([0, 1, 2], device=device)
    with pytest.raises(ValueError, match="`ignore_index` to either be"):
        multiclass_accuracy(labels, labels, 3, ignore_index=2**63)


def test_unvalidated_arguments_still_compute(device: str) -> None:
    """What TorchMetrics lets pass without validation and has a meaning."""
    preds, target = torch.tensor([0.2, 0.8], device=device), torch.tensor([0, 1], device=device)
    assert binary_accuracy(preds, target, threshold=1, validate_args=False).item() == 0.5
    assert binary_accuracy(preds, target, threshold=-1.0, validate_args=False).item() == 0.5
    one = torch.zeros(3, 1, device=device)
    assert multiclass_accuracy(one, one[:, 0].long(), 1, validate_args=False).item() == 1.0
    assert multilabel_accuracy(one, one.long(), 1, validate_args=False).item() == 1.0


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ([0, 1, 2, 0], "as_tensor"),
        (np.array([0, 1, 2, 0]), "as_tensor"),
        (1, "as_tensor"),
        (None, "returns its result"),
        ("preds", r"Pass a tensor\."),
        ({"logits": torch.zeros(4)}, "Pass the tensor in it"),
        (
            (torch.zeros(4), torch.zeros(4)),
            r"Pass the tensor in it .* `torch\.stack\((preds|target)",
        ),
    ],
    ids=lambda v: type(v).__name__,
)
def test_inputs_that_are_no_tensors(value: object, advice: str, validate: bool) -> None:
    labels = torch.tensor([0, 1, 2, 0])
    kind = "None" if value is None else type(value).__name__
    for call in (
        lambda p, t: binary_accuracy(p, t, validate_args=validate),
        lambda p, t: multiclass_accuracy(p, t, 3, validate_args=validate),
        lambda p, t: multilabel_accuracy(p, t, 3, validate_args=validate),
        lambda p, t: accuracy(p, t, "multiclass", num_classes=3, validate_args=validate),
    ):
        with pytest.raises(
            TypeError, match=rf"`preds` to be a tensor, but got {kind}\. .*{advice}"
        ):
            call(value, labels)
        with pytest.raises(
            TypeError, match=rf"`target` to be a tensor, but got {kind}\. .*{advice}"
        ):
            call(labels, value)


ONE_MORE = "If `preds` have one dimension more than `target`, "


@pytest.mark.parametrize(
    ("preds", "target", "options", "message"),
    [
        ((4, 2), (4,), {}, ONE_MORE + r"`preds.shape\[1\]` should be equal to number of classes"),
        ((4, 3, 5), (4, 6), {}, ONE_MORE + "the shape of `preds` should be"),
        ((5, 3), (4,), {}, ONE_MORE + "the shape of `preds` should be"),
        ((4, 0), (4,), {"num_classes": None, "average": "micro"}, "at least one class"),
        ((3,), (), {}, ONE_MORE + "`target` should be at least 1D"),
        ((4,), (5,), {}, "The `preds` and `target` should have the same shape"),
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
        with pytest.raises(RuntimeError, match="complex64"):
            function(preds.to(torch.complex64), target)
        with pytest.raises(ValueError, match="at least"):
            function(preds[0, 0], target[0, 0])
    with pytest.raises(ValueError, match="Expected input to be at least 2D"):
        binary_accuracy(preds[0], target[0], multidim_average="samplewise")
    with pytest.raises(ValueError, match="Expected input to be at least 3D"):
        multilabel_accuracy(preds, target, 3, multidim_average="samplewise")
    with pytest.raises(ValueError, match=ONE_MORE + ".* at least 3D"):
        multiclass_accuracy(preds, target[:, 0], 3, multidim_average="samplewise")
    with pytest.raises(ValueError, match=r"When `preds` and `target` .* 2D"):
        multiclass_accuracy(target[:, 0], target[:, 0], 3, multidim_average="samplewise")
    with pytest.raises(
        ValueError, match=r"Expected both `target.shape\[1\]` and `preds.shape\[1\]`"
    ):
        multilabel_accuracy(preds, target, 4)
