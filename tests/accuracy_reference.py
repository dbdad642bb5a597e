"""Accuracy from its definitions: one position after the other, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor


def ranking(scores: list[float]) -> list[int]:
    """Class indices, best first: NaN before all else, equal scores by index."""
    return sorted(
        range(len(scores)),
        key=lambda c: (not math.isnan(scores[c]), 0.0 if math.isnan(scores[c]) else -scores[c], c),
    )


def fraction(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def mean(values: list[Fraction], weights: list[int]) -> Fraction:
    total = sum(weights)
    return (
        sum(map(lambda v, w: v * w, values, weights), Fraction(0)) / total if total else Fraction(0)
    )


def _groups(samplewise: bool, samples: int, per_sample: int) -> Iterator[list[tuple[int, int]]]:
    everything = [[(n, s) for s in range(per_sample)] for n in range(samples)]
    yield from everything if samplewise else [[p for sample in everything for p in sample]]


def _array(values: list[list[Fraction]], scalar: bool, samplewise: bool) -> np.ndarray:
    array = np.array([[float(v) for v in row] for row in values], dtype=np.float64)
    array = array.reshape(len(values), -1)
    array = array[:, 0] if scalar else array
    return array if samplewise else array[0]


def multiclass(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    average: str | None,
    top_k: int = 1,
    samplewise: bool = False,
    ignore_index: int | None = None,
) -> np.ndarray:
    """`multiclass_accuracy` for labels that are all in range or ignored."""
    samples = target.shape[0]
    labels = target.cpu().reshape(samples, -1).long().tolist()
    if preds.ndim > target.ndim:
        rows = preds.cpu().double().reshape(samples, preds.shape[1], -1).transpose(1, 2).tolist()
        order = [[ranking(row) for row in sample] for sample in rows]
    else:
        order = [
            [[p] for p in sample] for sample in preds.cpu().reshape(samples, -1).long().tolist()
        ]
    values = []
    for group in _groups(samplewise, samples, math.prod(target.shape[1:])):
        tp, support, predicted = ([0] * num_classes for _ in range(3))
        for n, s in group:
            label = labels[n][s]
            if label == ignore_index:
                continue
            support[label] += 1
            tp[label] += label in order[n][s][:top_k]
            predicted[order[n][s][0]] += 1
        score = [fraction(t, n) for t, n in zip(tp, support, strict=True)]
        if average == "micro":
            values.append([fraction(sum(tp), sum(support))])
        elif average == "weighted":
            values.append([mean(score, support)])
        elif average == "macro":
            occurs = [
                n > 0 or (top_k == 1 and p > 0) for n, p in zip(support, predicted, strict=True)
            ]
            values.append([mean(score, [int(o) for o in occurs])])
        else:
            values.append(score)
    return _array(values, average not in ("none", None), samplewise)


def positive(scores: Tensor, threshold: float) -> Tensor:
    """Binary predictions of floating scores, with torch's arithmetic in the scores' dtype."""
    if bool(((scores < 0) | (scores > 1)).any()):
        scores = scores.sigmoid()
    return scores > threshold


def elementwise(
    preds: Tensor,
    target: Tensor,
    average: str | None,
    threshold: float = 0.5,
    samplewise: bool = False,
    ignore_index: int | None = None,
) -> np.ndarray:
    """`multilabel_accuracy`, or `binary_accuracy` where the tensors are given as (N, 1, ...)."""
    samples, labels = target.shape[:2]
    preds = preds.cpu()
    decided = positive(preds, threshold) if preds.is_floating_point() else preds
    predicted = decided.reshape(samples, labels, -1).long().tolist()
    truth = target.cpu().reshape(samples, labels, -1).double().tolist()
    values = []
    for group in _groups(samplewise, samples, math.prod(target.shape[2:])):
        right, counted, positives = ([0] * labels for _ in range(3))
        for n, s in group:
            for label in range(labels):
                if truth[n][label][s] not in (0, 1) or truth[n][label][s] == ignore_index:
                    continue
                counted[label] += 1
                positives[label] += truth[n][label][s] == 1
                right[label] += truth[n][label][s] == predicted[n][label][s]
        score = [fraction(r, c) for r, c in zip(right, counted, strict=True)]
        if average == "micro":
            values.append([fraction(sum(right), sum(counted))])
        elif average == "weighted":
            values.append([mean(score, positives)])
        elif average == "macro":
            values.append([mean(score, [1] * labels)])
        else:
            values.append(score)
    return _array(values, average not in ("none", None), samplewise)


def check(got: Tensor, want: np.ndarray, device: str) -> None:
    """Float32, on the device, shaped as ``want``, and no further from it than one rounding."""
    assert got.dtype == torch.float32
    assert got.device.type == device
    assert tuple(got.shape) == want.shape
    rounded = want.astype(np.float32)
    np.testing.assert_array_max_ulp(got.cpu().numpy(), rounded, maxulp=1)
