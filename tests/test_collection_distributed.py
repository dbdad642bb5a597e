"""MetricCollection in several processes: TorchMetrics' values from few collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import syncfree as sf
import syncfree.classification as sc
from collection_cases import CASES, CLASSES, make, multiclass, same, scores
from processes import in_processes
from syncfree._joint_sync import reduce_together


@contextmanager
def counting_collectives() -> Iterator[Counter[str]]:
    calls: Counter[str] = Counter()
    names = ["all_reduce", "all_gather", "all_gather_into_tensor", "barrier", "broadcast"]
    originals = {name: getattr(dist, name) for name in names}

    def counted(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return originals[name](*args, **kwargs)

        return call

    try:
        for name in names:
            setattr(dist, name, counted(name))
        yield calls
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def _same_values(rank: int, world: int) -> None:
    for case, (_, inputs) in CASES.items():
        ours, theirs = make(case, "cpu")
        for step in range(4):
            batch = inputs("cpu", 10 * rank + step)
            if step % 2:
                same(ours(*batch), theirs(*batch))  # of this process alone
            else:
                ours.update(*batch)
                theirs.update(*batch)
            if step:
                same(ours.compute(), theirs.compute())
            for name, metric in theirs._modules.items():
                assert not ours._modules[name]._is_synced
                for state, value in metric.metric_state.items():
                    torch.testing.assert_close(getattr(ours._modules[name], state), value)


def test_same_values(tmp_path: Path) -> None:
    in_processes(2, _same_values, tmp_path)


def _collectives(rank: int, world: int) -> None:
    collection = sf.MetricCollection(multiclass(sf, sc))
    collection.update(*scores("cpu", rank))
    with counting_collectives() as calls:
        first = collection.compute()
    assert calls == {"all_reduce": 1}  # of everything: counts, all of one dtype, all sums
    with counting_collectives() as calls:
        assert collection.compute() == first
    assert calls == {}
    collection["f1"]._computed = None
    with counting_collectives() as calls:
        torch.testing.assert_close(collection.compute(), first)
    assert calls == {"all_reduce": 1}
    ours, theirs = make("images", "cpu")
    batch = CASES["images"][1]("cpu", rank)
    ours.update(*batch)
    theirs.update(*batch)
    with counting_collectives() as calls:
        values = ours.compute()
    # Sums in float, with the mean of ranges, and in int; sizes, float and int values of the lists.
    assert calls == {"all_reduce": 2, "all_gather": 3}
    same(values, theirs.compute())


def test_one_collective_for_each_dtype_and_reduction(tmp_path: Path) -> None:
    in_processes(2, _collectives, tmp_path)


def _one_goes_on_alone(rank: int, world: int) -> None:
    metrics = {"macro": sc.MulticlassAccuracy(CLASSES), "f1": tc.MulticlassF1Score(CLASSES)}
    ours, both = sf.MetricCollection(metrics), tc.MulticlassF1Score(CLASSES, sync_on_compute=False)
    for seed in range(2 * world):
        batch = CASES["multiclass"][1]("cpu", seed)
        mine = seed // 2 == rank
        if mine and seed % 2:
            ours["f1"].update(*batch)
        elif mine:
            ours.update(*batch)
        both.update(*batch)
    assert torch.allclose(ours.compute()["f1"], both.compute())


def test_a_metric_that_left_its_group_keeps_what_it_saw_alone(tmp_path: Path) -> None:
    in_processes(2, _one_goes_on_alone, tmp_path)


COLLECTIVES = {
    "multiclass": {"all_reduce": 1},
    "multilabel": {"all_reduce": 1},
    "images": {"all_reduce": 2, "all_gather": 3},  # see above
}


def _four(rank: int, world: int) -> None:
    for case, expected in COLLECTIVES.items():
        ours, alone = make(case, "cpu")[0], make(case, "cpu")[0]
        for metric in alone._modules.values():
            metric.sync_on_compute = metric._to_sync = False
        for epoch in range(2):
            ours.reset()
            alone.reset()
            for other in range(world):
                # From none to three, and the other way round: a last batch may be missing.
                for seed in range(world - 1 - other if epoch else other):
                    batch = CASES[case][1]("cpu", 10 * other + seed)
                    alone.update(*batch)
                    if other == rank:
                        ours.update(*batch)
            assert expected == _exact_counts(ours, alone)
            with counting_collectives() as calls:
                values = ours.compute()
            assert calls == expected, case
            same(values, alone.compute())


def _exact_counts(ours: sf.MetricCollection, alone: sf.MetricCollection) -> Counter[str]:
    """Compares the reduced states that are counts; returns what reducing them called."""
    with counting_collectives() as calls:
        reduced = reduce_together(ours._modules, ours._teams_to_come())
    counts = 0
    for name, states in reduced.items():
        for attribute, state in states.items():
            if isinstance(state, Tensor) and not state.is_floating_point():
                own = getattr(alone._modules[name], attribute)
                assert torch.equal(state, torch.cat(own) if isinstance(own, list) else own)
                counts += int(state.sum())
    assert counts > 0
    return calls


def test_four_processes_give_the_values_of_one(tmp_path: Path) -> None:
    in_processes(4, _four, tmp_path)


class Failing(tc.MulticlassRecall):
    def compute(self) -> Tensor:
        raise ArithmeticError("no value")


def _each_by_its_own_rule(rank: int, world: int) -> None:
    own = [dist.new_group([r]) for r in range(world)][rank]
    gathered: list[int] = []

    def gather(state: Tensor, group: Any = None) -> list[Tensor]:
        gathered.append(state.numel())
        return gather_all_tensors(state, group)

    def metrics(c: Any) -> dict[str, Any]:
        return {
            "usual": c.MulticlassAccuracy(CLASSES),
            "local": c.MulticlassF1Score(CLASSES, sync_on_compute=False),
            "own group": c.MulticlassPrecision(CLASSES, process_group=own),
            "own function": c.MulticlassRecall(CLASSES, dist_sync_fn=gather),
            "alone": c.MulticlassSpecificity(CLASSES, distributed_available_fn=lambda: False),
            "every step": c.MulticlassAccuracy(CLASSES, average="micro", dist_sync_on_step=True),
        }

    ours, theirs = sf.MetricCollection(metrics(sc)), tm.MetricCollection(metrics(tc))
    for step in range(3):
        batch = scores("cpu", 10 * rank + step)
        if step:
            same(ours(*batch), theirs(*batch))
        ours.update(*batch)
        theirs.update(*batch)
        gathered.clear()
        values = ours.compute()
        assert len(gathered) == 4
        same(values, theirs.compute())

    broken = sf.MetricCollection([sc.MulticlassAccuracy(CLASSES), Failing(CLASSES)])
    broken.update(*scores("cpu", rank))
    before = broken._modules["Failing"].tp.clone()
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no value"):
            broken.compute()
        assert torch.equal(broken._modules["Failing"].tp, before)
        assert not broken._modules["Failing"]._is_synced
        broken._modules["MulticlassAccuracy"]._computed = None


def _wrapped(rank: int, world: int) -> None:
    """Wrappers and compositions fetch what they hold themselves."""

    def metrics(c: Any) -> dict[str, Any]:
        accuracy = c.MulticlassAccuracy(CLASSES, average="none")
        return {
            "each": tm.wrappers.ClasswiseWrapper(accuracy),
            "extremes": tm.wrappers.MinMaxMetric(c.MulticlassAccuracy(CLASSES)),
            "wrong": 1 - c.MulticlassAccuracy(CLASSES),
            "f1": c.MulticlassF1Score(CLASSES),
        }

    ours, theirs = sf.MetricCollection(metrics(sc)), tm.MetricCollection(metrics(tc))
    for step in range(2):
        batch = scores("cpu", 10 * rank + step)
        ours.update(*batch)
        theirs.update(*batch)
        same(ours.compute(), theirs.compute())


def _exceptions(rank: int, world: int) -> None:
    _each_by_its_own_rule(rank, world)
    _wrapped(rank, world)


def test_each_metric_by_its_own_rule(tmp_path: Path) -> None:
    in_processes(2, _exceptions, tmp_path)
