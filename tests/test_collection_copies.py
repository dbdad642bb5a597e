"""States of a collection: shared within a group, and apart in copies and checkpoints."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics as tm
import torchmetrics.classification as tc

import syncfree as sf
import syncfree.classification as sc
from collection_cases import CLASSES, alone, groups, make, same, scores
from syncs_command import python


def test_states_are_shared_until_looked_at(device: str) -> None:
    ours, theirs = make("multiclass", device)[0], alone("multiclass", device)
    modules = ours._modules
    ours.update(*scores(device, 0))
    assert modules["f1"].tp is modules["accuracy"].tp
    assert ours["f1"].tp is not modules["accuracy"].tp  # a copy
    ours.items()
    ours.update(*scores(device, 1))
    assert modules["f1"].tp is modules["accuracy"].tp
    place = modules["accuracy"].tp.data_ptr()
    ours.reset()
    assert modules["f1"].tp is modules["accuracy"].tp
    assert modules["accuracy"].tp.data_ptr() == place
    for metric in modules.values():
        assert metric.update_count == 0
    ours.update(*scores(device, 2))
    theirs.update(*scores(device, 2))
    same({k: m.compute() for k, m in ours.items()}, {k: m.compute() for k, m in theirs.items()})


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda c: pickle.loads(pickle.dumps(c)),
        lambda c: c.clone(prefix="other/"),
    ],
    ids=["deepcopy", "pickle", "clone"],
)
@pytest.mark.parametrize("seen", [0, 1])
def test_copies(duplicate: Callable[[Any], Any], seen: int, device: str) -> None:
    ours, theirs = make("multiclass", device)
    for seed in range(seen):
        ours.update(*scores(device, seed))
        theirs.update(*scores(device, seed))
    before = duplicate(ours), duplicate(theirs)
    for collection in before:
        collection.update(*scores(device, 5))
        collection(*scores(device, 6))
    same(before[0].compute(), before[1].compute())
    if seen:
        same(ours.compute(), theirs.compute())
    assert groups(before[0]) == {frozenset(g) for g in before[1].compute_groups.values()}


def test_checkpoints_both_ways(device: str) -> None:
    ours, theirs = make("multiclass", device)
    for collection in (ours, theirs):
        collection.persistent(True)
        collection.update(*scores(device, 0))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    for source in (ours, theirs):
        for loaded in make("multiclass", device):
            loaded.persistent(True)
            loaded.load_state_dict(source.state_dict())
            loaded.update(*scores(device, 1))
            whole = make("multiclass", device)[1]
            whole.update(*scores(device, 0))
            whole.update(*scores(device, 1))
            same(loaded.compute(), whole.compute())
            assert groups(loaded) == groups(whole)


@pytest.mark.parametrize("seen", [0, 1])
def test_checkpoint_of_metrics_that_went_apart(seen: int, device: str) -> None:
    def metrics() -> dict[str, Any]:
        kinds = sc.MulticlassAccuracy, sc.MulticlassAccuracy, tc.MulticlassF1Score
        return {name: kind(CLASSES) for name, kind in zip("abc", kinds, strict=True)}

    apart = metrics()
    for i, metric in enumerate(apart.values()):
        metric.persistent(True)
        metric.to(device).update(*scores(device, i // 2))
    saved = tm.MetricCollection(apart, compute_groups=False).state_dict()
    collection = sf.MetricCollection(metrics()).to(device)
    collection.persistent(True)
    for i in range(seen):
        collection.update(*scores(device, 10 + i))
    collection.load_state_dict(saved)
    collection.update(*scores(device, 5))
    for metric in apart.values():
        metric.update(*scores(device, 5))
    same(collection.compute(), {name: metric.compute() for name, metric in apart.items()})
    assert frozenset({"c"}) in groups(collection)


LOADS = """
import torch, syncfree as sf, syncfree.classification as sc

def metrics():
    kinds = {"a": sf.MulticlassAccuracy(5), "b": sc.MulticlassF1Score(5)}
    kinds |= {"c": sc.MulticlassPrecision(5), "d": sc.MulticlassRecall(5)}
    kinds |= {"e": sc.MulticlassConfusionMatrix(5), "f": sc.MulticlassJaccardIndex(5)}
    made = sf.MetricCollection(kinds).to("cuda")
    made.persistent(True)
    return made

one, other = metrics(), metrics()
labels = torch.arange(5, device="cuda")
one.update(labels, labels)
with sf.detect_syncs() as report:
    other.load_state_dict(one.state_dict())
other.update(labels, labels)
print(report.count, [sorted(names) for names in other.compute_groups.values()])
"""


def test_a_checkpoint_on_the_gpu_is_loaded_in_one_wait(tmp_path: Path) -> None:
    (tmp_path / "loads.py").write_text(LOADS)
    done = python(tmp_path, "-m", "syncfree", "syncs", "--warmup", "0", "loads.py")
    assert "1 [['a', 'b', 'c', 'd'], ['e', 'f']]" in done.stdout, done.stdout + done.stderr
