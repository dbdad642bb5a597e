"""Bad labels: errors that TorchMetrics lacks, at once on CPU, without a wait on CUDA."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import syncfree
from syncfree.functional.classification import (
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
    raises_bad_label(
        lambda: call(ignore_index=9), r"at flat index 1300, but .* or ignore_index=9", device
    )
    kept = call(validate_args=False)
    if average == "micro":
        assert kept.item() == pytest.approx(2098 / 2100)
    else:
        assert torch.equal(kept, torch.ones_like(kept))
    per_sample = call(validate_args=False, multidim_average="samplewise")
    want = [1, 699 / 700, 699 / 700] if average == "micro" else [1, 1, 1]
    assert per_sample.reshape(3, -1).amin(1).tolist() == pytest.approx(want)


def test_padding_of_losses_is_told_of_ignore_index(device: str) -> None:
    preds = torch.rand(4, 3, device=device)
    target = torch.tensor([0, -100, 2, -100], device=device)
    call = partial(multiclass_accuracy, preds, target, 3)
    raises_bad_label(call, r"-100 at flat index 1, .* Pass `ignore_index=-100` to leave", device)
    raises_bad_label(lambda: call(ignore_index=7), r"or ignore_index=7\.(?! Pass `)", device)
    assert not call(ignore_index=-100).isnan()


@pytest.mark.parametrize(
    ("label", "advice"),
    [
        (-1, "Pass `ignore_index=-1` to leave such elements out."),
        (255, "Pass `ignore_index=255` to leave such elements out."),
        (3, "Labels begin at 0: if these begin at 1, subtract 1."),
        (4, ""),
    ],
)
def test_other_bad_labels_are_told_what_helps(label: int, advice: str, device: str) -> None:
    preds = torch.rand(2, 3, device=device)
    target = torch.tensor([0, label], device=device)
    text = re.escape(f"range [0, 2]. {advice}".rstrip())
    raises_bad_label(lambda: multiclass_accuracy(preds, target, 3), rf"{text}$", device)


@pytest.mark.parametrize("label", [-1, 255])
def test_other_names_of_two_classes(label: int, device: str) -> None:
    """Leaving one of two classes out gives a number, and a wrong one."""
    scores = torch.tensor([0.1, 0.2, 0.9, 0.3], device=device)
    target = torch.tensor([0, label, label, 0], device=device)
    advice = (
        f"Pass `ignore_index={label}` to leave such elements out, "
        f"or map the labels to 0 and 1 if {label} is one of the two."
    )
    raises_bad_label(lambda: binary_accuracy(scores, target), rf"{advice}$", device)
    two = torch.stack([1 - scores, scores], 1)
    raises_bad_label(lambda: multiclass_accuracy(two, target, 2), rf"{advice}$", device)
    assert binary_accuracy(scores, (target == label).long()).item() == 0.75


def test_predicted_label_out_of_range(device: str) -> None:
    preds = torch.tensor([0, 3, 7, 1, 9], device=device)
    target = torch.tensor([0, 1, 2, 1, -100], device=device)

    def call(**options: object) -> Tensor:
        return multiclass_accuracy(preds, target, 3, ignore_index=-100, **options)

    # Not -100: in `preds` that would be bad too.
    message = r"in `preds`: 3 at flat index 1, the first of 2, .* in the range \[0, 2\]\."
    raises_bad_label(call, message, device)
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
        raises_bad_label(
            lambda call=call: call(ignore_index=-1),
            "in `target`: 2 at flat index 3, but expected",
            device,
        )
        assert call(validate_args=False).item() == 1.0
        assert call(validate_args=False, ignore_index=2).item() == 1.0


def test_nan_where_labels_are_predicted(device: str) -> None:
    preds = torch.tensor([1.0, math.nan, math.nan], device=device)
    target = torch.tensor([0, 1, 2], device=device)
    raises_bad_label(
        lambda: multiclass_accuracy(preds, target, 3),
        r"in `preds`: a value that is no whole number at flat index 1, the first of 2, .* "
        r"`preds` of the shape of `target` are labels; scores of classes have shape \(N, C",
        device,
    )


def test_bad_binary_predictions(device: str) -> None:
    preds, target = (
        torch.tensor([0, 2, 1, 5], device=device),
        torch.tensor([0, 1, 1, -1], device=device),
    )
    raises_bad_label(
        lambda: binary_accuracy(preds, target, ignore_index=-1),
        "in `preds`: 2 at flat index 1, but expected",
        device,
    )
    assert binary_accuracy(preds, target, ignore_index=-1, validate_args=False).item() == 1.0


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf])
def test_targets_that_are_no_labels(value: float, device: str) -> None:
    target = torch.tensor([0.0, 1.0, value], device=device)
    preds = torch.tensor([0.1, 0.9, 0.8], device=device)
    raises_bad_label(
        lambda: binary_accuracy(preds, target),
        "in `target`: a value that is no whole number at flat index 2",
        device,
    )
    assert binary_accuracy(preds, target, validate_args=False).item() == 1.0


# ---- Integers that a floating tensor cannot hold stand for NaN and fractions inside.

LOWEST = [-(2**63) + offset for offset in range(6)]


@pytest.mark.parametrize("low", LOWEST)
def test_lowest_integers_are_labels_like_any_other(low: int, device: str) -> None:
    preds = torch.tensor([low, low, 3, 4], device=device)
    target = torch.tensor([low, 5, 3, low], device=device)
    assert multiclass_accuracy(preds, target, average="micro").item() == 0.5
    kept = multiclass_accuracy(preds, target, average="micro", ignore_index=low)
    assert kept.item() == 0.5

    def micro(preds: list[int], target: list[int], **options: object) -> Tensor:
        pair = torch.tensor(preds, device=device), torch.tensor(target, device=device)
        return multiclass_accuracy(*pair, 3, "micro", **options)

    raises_bad_label(
        lambda: micro([0, 1], [low, 1]),
        f"in `target`: {low} at flat index 0, but expected",
        device,
    )
    raises_bad_label(
        lambda: micro([low, 1], [0, 1]),
        f"in `preds`: {low} at flat index 0, but expected",
        device,
    )
    unchecked = {"validate_args": False}
    assert micro([low, 1, 1], [-100, 1, 0], ignore_index=-100, **unchecked).item() == 0.5
    assert micro([low, 1], [7, 1], **unchecked).item() == 0.5
    assert micro([low, 1], [low, 1], **unchecked).item() == 0.5


@pytest.mark.parametrize("low", LOWEST)
def test_what_is_no_integer_equals_none(low: int, device: str) -> None:
    scores = torch.tensor([0.1, 0.9], device=device)
    for value in (math.nan, 0.5):
        target = torch.tensor([value, 1.0], device=device)
        raises_bad_label(
            lambda target=target: binary_accuracy(scores, target, ignore_index=low),
            "in `target`: a value that is no whole number at flat index 0, but expected",
            device,
        )
    preds = torch.tensor([math.nan, 2.5, 3.0], device=device)
    target = torch.tensor([low, low, 3], device=device)
    assert multiclass_accuracy(preds, target, average="micro").item() == pytest.approx(1 / 3)
    same = torch.tensor([0.5, 1.0], device=device)
    assert multiclass_accuracy(same, same, average="micro").item() == 0.5


def test_lowest_integer_as_a_float(device: str) -> None:
    lowest = -(2**63)
    preds = torch.tensor([float(lowest), 2.5, 3.0], device=device)
    target = torch.tensor([lowest, lowest, 3], device=device)
    assert multiclass_accuracy(preds, target, average="micro").item() == pytest.approx(2 / 3)
    kept = multiclass_accuracy(target, preds.double(), average="micro", ignore_index=lowest)
    assert kept.item() == 0.5


# ---- CUDA's record.


@pytest.mark.parametrize("kind", ["probabilities", "logits", "labels"])
def test_bad_labels_among_many_samples(kind: str, device: str) -> None:
    """Scores that turn out to be logits are counted twice, their bad labels once."""
    target = torch.randint(0, 2, (50_000, 3), device=device)
    preds = {"probabilities": target * 0.5, "logits": target * 8.0 - 4, "labels": target}[kind]
    bad = target.clone()
    bad[7, 1], bad[49_999, 2] = 9, 5

    def call() -> None:
        assert binary_accuracy(preds, bad, multidim_average="samplewise").isnan().all()
        syncfree.check_errors()

    with pytest.raises(RuntimeError, match=r"`target`.* 9 at flat index 22, the first of 2"):
        call()
    syncfree.check_errors()


@pytest.mark.needs_cuda
def test_records_of_two_streams_do_not_mix() -> None:
    """One of two launches that end together is reported, whole."""
    preds = torch.zeros(8, dtype=torch.int64, device="cuda")
    first, second = preds.clone(), preds.clone()
    first[1] = 7
    second[3:6] = 9
    gate, streams = torch.cuda.Stream(), (torch.cuda.Stream(), torch.cuda.Stream())
    torch.cuda.synchronize()
    together = 0

    def launch_both() -> None:
        nonlocal together
        with torch.cuda.stream(gate):
            torch.cuda._sleep(100_000_000)
            opened = gate.record_event()
        for stream, target in zip(streams, (first, second), strict=True):
            stream.wait_event(opened)
            with torch.cuda.stream(stream):
                # Raises what the first one found if this host was held up for those 50 ms.
                multiclass_accuracy(preds, target, 3)
        together += 1
        syncfree.check_errors()

    whole = r"(7 at flat index 1, but|9 at flat index 3, the first of 3)\b"
    for _ in range(100):
        with pytest.raises(RuntimeError, match=whole):
            launch_both()
        syncfree.check_errors()
    assert together > 50


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(40000,), (700, 45)], ids=str)
def test_bad_binary_labels_among_many(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    """The first of them in row-major order, wherever threads meet it; ignored ones are none."""
    preds = torch.rand(shape, device=device)
    target = (preds > 0.5).to(dtype)
    flat = target.view(-1)
    flat[31000], flat[29000], flat[17], flat[25000] = 3, 2, 7, 2

    def call(**options: object) -> Tensor:
        if len(shape) == 1:
            return binary_accuracy(preds, target, **options)
        return multilabel_accuracy(preds, target, 45, **options)

    raises_bad_label(call, "in `target`: 7.* at flat index 17, the first of 4", device)
    message = "in `target`: 2.* at flat index 25000, the first of 3"
    raises_bad_label(lambda: call(ignore_index=7), message, device)
    assert call(validate_args=False).item() == 1.0
