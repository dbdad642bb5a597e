"""Lists without a reduction keep their pieces when processes bring them together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor
from torchmetrics import Metric

import syncfree as sf
import syncfree.classification as sc
from processes import in_processes
from syncfree._state_reduction import reduce_states


class Batches(Metric):
    """A user's own, whose value depends on where each batch begins and ends."""

    full_state_update = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("batches", [], dist_reduce_fx=None)

    def update(self, *, batch: Tensor, **_: Any) -> None:
        self.batches.append(batch)

    def compute(self) -> Tensor:
        return torch.stack([batch.mean() for batch in self.batches])


class Sentences(Metric):
    """As ROUGEScore: numbers without dimensions, a list for each key."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for key in ("precision", "recall"):
            self.add_state(key, [], dist_reduce_fx=None)

    def update(self, *, batch: Tensor, **_: Any) -> None:
        for number in batch.flatten()[:3]:
            self.precision.append(number)
            self.recall.append(number.double() / 2)

    def compute(self) -> Tensor:
        return torch.tensor([float(x) for x in self.precision + self.recall])


class Boxes(Metric):
    """As IntersectionOverUnion: pieces of several lists and dtypes belong together."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for name in ("boxes", "labels", "matrices"):
            self.add_state(name, [], dist_reduce_fx=None)
        self.add_state("scores", [], dist_reduce_fx="cat")

    def update(self, *, batch: Tensor, labels: Tensor) -> None:
        self.boxes.append(batch)
        self.labels.append(labels)
        self.matrices.append(batch @ batch.T)
        self.scores.append(batch.amax(1))

    def compute(self) -> Tensor:
        scores = self.scores if isinstance(self.scores, Tensor) else torch.cat(self.scores)
        images = zip(self.boxes, self.labels, self.matrices, strict=True)
        values = [b[label > 1].sum() + m.trace() for b, label, m in images]
        return torch.cat([torch.stack(values), scores])


def batch_of(rank: int, step: int) -> dict[str, Tensor]:
    """With numbers of boxes that differ, none among them."""
    generator = torch.Generator().manual_seed(10 * rank + step)
    boxes = 2 * rank + step
    return {
        "batch": torch.rand(boxes, 4, generator=generator),
        "labels": torch.randint(0, 4, (boxes,), generator=generator),
    }


def metrics() -> dict[str, Metric]:
    return {"batches": Batches(), "sentences": Sentences(), "boxes": Boxes()}


def _same_as_torchmetrics(rank: int, world: int) -> None:
    ours, theirs = sf.MetricCollection(metrics()), tm.MetricCollection(metrics())
    for step in range(1, 4):
        for collection in (ours, theirs):
            collection.update(**batch_of(rank, step))
    got, want = ours.compute(), theirs.compute()
    assert got["batches"].shape == (3 * world,)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    # They go on from their own pieces.
    assert [len(piece) for piece in ours["boxes"].boxes] == [2 * rank + n for n in (1, 2, 3)]


def test_same_as_torchmetrics(tmp_path: Path) -> None:
    in_processes(2, _same_as_torchmetrics, tmp_path)


def _any_numbers_of_pieces(rank: int, world: int) -> None:
    """Where TorchMetrics waits for a piece that never comes."""
    own: dict[str, Any] = {"kept": [torch.full((n,), rank) for n in range(rank)], "none": []}
    own["mixed"] = [torch.tensor(rank, dtype=[torch.float64, torch.int64, torch.float32][rank])]
    got: dict[str, Any] = reduce_states(own, dict.fromkeys(own), torch.device("cpu"))
    assert [piece.tolist() for piece in got["kept"]] == [[], [], [2]]  # of 1, of 2, of 2 again
    assert got["none"] == []
    # Of whatever dtype, so that lists that belong together stay so.
    assert [piece.item() for piece in got["mixed"]] == [0, 1, 2]
    assert [piece.dtype for piece in got["mixed"]] == [torch.float64, torch.int64, torch.float32]


def test_any_numbers_of_pieces(tmp_path: Path) -> None:
    in_processes(3, _any_numbers_of_pieces, tmp_path)


def _subclasses_of_ours(rank: int, world: int) -> None:
    def made(base: type[Metric], **options: Any) -> Metric:
        def update(self: Any, preds: Tensor, target: Tensor) -> None:
            base.update(self, preds, target)
            self.seen.append(target)

        def compute(self: Any) -> Tensor:
            return torch.stack([base.compute(self), *(x.float().mean() for x in self.seen)])

        metric = type("Own", (base,), {"update": update, "compute": compute})(3, **options)
        metric.add_state("seen", [], dist_reduce_fx=None)
        return metric

    for options in ({}, {"dist_sync_on_step": True}):
        ours, theirs = (made(c.MulticlassAccuracy, **options) for c in (sc, tc))
        for length in (4, 6):
            labels = torch.arange(length + rank) % 3
            torch.testing.assert_close(ours(labels, labels), theirs(labels, labels))
        torch.testing.assert_close(ours.compute(), theirs.compute())
        with ours.sync_context(), theirs.sync_context():
            torch.testing.assert_close(ours.seen, theirs.seen, rtol=0, atol=0)


def test_subclasses_of_ours(tmp_path: Path) -> None:
    in_processes(2, _subclasses_of_ours, tmp_path)
