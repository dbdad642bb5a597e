"""The ops of accuracy in torch: schema, fake tensors, tracing, compilation."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from accuracy_cases import (
    make_labels,
)
from syncfree._ops import accuracy as ops
from syncfree.functional.classification import (
    accuracy,
    multiclass_accuracy,
)

OPS = [
    (
        ops.ACCURACY["binary"],
        (12, 4, 3),
        (12, 4, 3),
        2,
        (0.5, *ops.pack_options("micro", False, None, True)),
    ),
    (
        ops.ACCURACY["binary"],
        (12, 4, 3),
        (12, 4, 3),
        2,
        (0.5, *ops.pack_options("micro", True, 0, False)),
    ),
    (
        ops.ACCURACY["multiclass"],
        (12, 4, 3),
        (12, 3),
        4,
        (4, 1, *ops.pack_options("macro", False, None, True)),
    ),
    (
        ops.ACCURACY["multiclass"],
        (12, 4, 3),
        (12, 3),
        4,
        (4, 2, *ops.pack_options("none", True, 1, False)),
    ),
    (
        ops.ACCURACY["multilabel"],
        (12, 4, 3),
        (12, 4, 3),
        2,
        (4, 0.5, *ops.pack_options("none", False, None, True)),
    ),
    (
        ops.ACCURACY["multilabel"],
        (1, 4, 3),
        (1, 4, 3),
        2,
        (4, 0.5, *ops.pack_options("macro", True, None, True)),
    ),
]


@pytest.mark.parametrize(
    ("op", "preds_shape", "target_shape", "classes", "arguments"), OPS, ids=str
)
def test_ops_keep_their_promises(
    op: Callable[..., Tensor],
    preds_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    classes: int,
    arguments: tuple[object, ...],
    device: str,
) -> None:
    """Schema, fake tensors and tracing; scores that require a gradient give a result without."""
    preds = torch.randn(preds_shape, device=device)
    target = make_labels(target_shape, classes, None, device)
    for scores in (preds, preds.clone().requires_grad_()):
        torch.library.opcheck(op, (scores, target, *arguments))
        assert not op(scores, target, *arguments).requires_grad
    on_meta = op(preds.to("meta"), target.to("meta"), *arguments)
    assert on_meta.shape == op(preds, target, *arguments).shape


def test_compiles_whole_for_any_batch(device: str) -> None:
    def step(preds: Tensor, target: Tensor) -> Tensor:
        hits = multiclass_accuracy(preds * 2, target, 5, "micro")
        return hits + accuracy(preds.amax(1), (target > 2).long(), "binary")

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for samples in (4, 9, 30):
        preds = torch.randn(samples, 5, device=device)
        target = make_labels((samples,), 5, None, device)
        assert torch.equal(compiled(preds, target), step(preds, target))


BAD_SHAPES = [
    ("binary", (4,), (5,), "global"),
    ("binary", (4, 2), (4,), "global"),
    ("binary", (), (), "global"),
    ("binary", (4,), (4,), "samplewise"),
    ("multilabel", (4, 3), (4, 2), "global"),
    ("multilabel", (4,), (4,), "global"),
    ("multilabel", (4, 2), (4, 2), "global"),
    ("multilabel", (4, 3), (4, 3), "samplewise"),
    ("multiclass", (4, 2), (4,), "global"),
    ("multiclass", (4, 3, 5), (4, 6), "global"),
    ("multiclass", (5, 3), (4,), "global"),
    ("multiclass", (4, 3), (4,), "samplewise"),
    ("multiclass", (3,), (), "global"),
    ("multiclass", (4,), (5,), "global"),
    ("multiclass", (4,), (4,), "samplewise"),
    ("multiclass", (), (), "global"),
    ("multiclass", (4, 3, 2, 2), (4, 2), "global"),
    ("multiclass", (4,), (4, 3), "global"),
]


@pytest.mark.parametrize(("task", "preds_shape", "target_shape", "multidim_average"), BAD_SHAPES)
def test_shapes_fail_alike_when_compiled(
    task: str,
    preds_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    multidim_average: str,
    device: str,
) -> None:
    def call(preds: Tensor, target: Tensor) -> Tensor:
        return accuracy(
            preds,
            target,
            task,
            num_classes=3,
            num_labels=3,
            multidim_average=multidim_average,
        )

    preds = torch.zeros(preds_shape, device=device)
    target = torch.zeros(target_shape, dtype=torch.int64, device=device)
    with pytest.raises((ValueError, RuntimeError)) as eager:
        call(preds, target)
    message = re.escape(str(eager.value))
    with pytest.raises(eager.type, match=f"^{message}$"):
        call(preds.to("meta"), target.to("meta"))
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=message):
        torch.compile(call, fullgraph=True, backend="aot_eager")(preds, target)


def test_other_arguments_fail_alike_when_compiled(device: str) -> None:
    scores = torch.zeros(4, 3, device=device)
    target = torch.zeros(4, dtype=torch.int64, device=device)
    options = ops.pack_options("micro", False, None, True)
    for arguments in (
        (scores.int(), target, 3, 1, *options),
        (scores[:, :0], target, 0, 1, *options),
        (target, target, 3, 2, *options),
    ):
        with pytest.raises(ValueError, match="`preds`") as eager:
            ops.ACCURACY["multiclass"](*arguments)
        with pytest.raises(ValueError, match=f"^{re.escape(str(eager.value))}$"):
            ops.ACCURACY["multiclass"](*(a.to("meta") for a in arguments[:2]), *arguments[2:])


@pytest.mark.parametrize(
    ("num_classes", "top_k", "average", "message"),
    [
        (3, 0, "micro", "to be an integer of 1 to `num_classes`, but got 0 and 3"),
        (3, -5, "macro", "but got -5 and 3"),
        (3, 4, "micro", "but got 4 and 3"),
        (3, 2**32 + 1, "micro", "but got 4294967297 and 3"),  # 1 in 32 bits
        (0, 2, "micro", "can only be `None`"),
        (0, 1, "macro", "can only be `None`"),
        (-1, 1, "micro", "or 0 where it is unknown, but got -1"),
        (2**31, 1, "micro", "at most 2147483647, or 0"),
    ],
)
def test_numbers_of_classes_are_refused(
    num_classes: int, top_k: int, average: str, message: str, device: str
) -> None:
    """By the ops themselves, which exported graphs call past the functions."""
    options = ops.pack_options(average, False, None, True)
    for where in (device, "meta"):
        scores = torch.rand(4, 3, device=where)
        target = torch.zeros(4, dtype=torch.int64, device=where)
        with pytest.raises(ValueError, match=message):
            ops.ACCURACY["multiclass"](scores, target, num_classes, top_k, *options)


def test_traces_with_fx(device: str) -> None:
    """Its tracer calls the functions with what is no tensor."""
    traced = torch.fx.symbolic_trace(lambda p, t: multiclass_accuracy(p, t, 3))
    scores, target = torch.rand(9, 3, device=device), torch.arange(9, device=device) % 3
    assert torch.equal(traced(scores, target), multiclass_accuracy(scores, target, 3))
