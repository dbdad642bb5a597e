"""Options of the accuracy classes: how they are made, refused and changed later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm

import syncfree
from syncfree import classification, functional


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("binary",), "BinaryAccuracy"),
        (("MULTICLASS", 0.5, 3), "MulticlassAccuracy"),
        (("Multilabel", 0.3, None, 4), "MultilabelAccuracy"),
    ],
)
def test_task_names_the_class(arguments: tuple, kind: str) -> None:
    ours, theirs = (module.Accuracy(*arguments) for module in (classification, tm))
    assert type(ours) is getattr(classification, kind)
    for name in ("threshold", "num_classes", "num_labels", "average", "top_k", "ignore_index"):
        assert getattr(ours, name, None) == getattr(theirs, name, None)
    assert issubclass(classification.Accuracy, tm.Accuracy)


BAD_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("Accuracy", {"task": "ternary"}, "Invalid Classification: expected one of"),
    ("Accuracy", {"task": "multiclass"}, "`num_classes` must be type `int`"),
    ("Accuracy", {"task": "multiclass", "num_classes": 3, "top_k": None}, "`top_k` must be type"),
    ("Accuracy", {"task": "multilabel"}, "`num_labels` must be type `int`"),
    ("MulticlassAccuracy", {}, "`num_classes` can only be `None`"),
    ("MulticlassAccuracy", {"num_classes": 1}, "`num_classes` to be an integer larger than 1"),
    ("MulticlassAccuracy", {"num_classes": 3, "top_k": 4}, "`top_k` to be smaller or equal"),
    ("MulticlassAccuracy", {"num_classes": 3, "top_k": 0}, "`top_k` to be an integer larger than"),
    ("MulticlassAccuracy", {"num_classes": 3, "average": "mean"}, "`average` to be one of"),
    ("MultilabelAccuracy", {"num_labels": 3, "threshold": 2.0}, "`threshold` to be a float"),
    ("MultilabelAccuracy", {"num_labels": 1}, "`num_labels` to be an integer larger than 1"),
    ("BinaryAccuracy", {"multidim_average": "all"}, "`multidim_average` to be one of"),
    ("BinaryAccuracy", {"ignore_index": 1.5}, "`ignore_index` to either be `None` or an integer"),
    ("BinaryAccuracy", {"nonsense": 1}, "Unexpected keyword arguments: `nonsense`"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(classification, name)(**options)


@pytest.mark.parametrize("value", [np.int64(2), np.uint8(2), np.array(2)], ids=repr)
def test_integers_of_numpy_as_top_k(value: Any, device: str) -> None:
    preds, target = torch.rand(16, 5, device=device), torch.arange(16, device=device) % 5
    ours, theirs = (
        module.MulticlassAccuracy(5, top_k=value).to(device) for module in (classification, tm)
    )
    torch.testing.assert_close(ours(preds, target), theirs(preds, target))
    got = functional.multiclass_accuracy(preds, target, 5, top_k=value)
    torch.testing.assert_close(got, ours.compute())
    with pytest.raises(ValueError, match=r"Convert it with `int\(top_k\)`"):
        classification.MulticlassAccuracy(5, top_k=torch.tensor(2))


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"average": "macro"}, {"average": "micro"}),
        ({"average": "micro"}, {"average": "none"}),
        ({"average": "micro"}, {"top_k": 2}),
    ],
    ids=str,
)
def test_options_changed_before_the_first_batch(
    options: dict[str, Any], changed: dict[str, Any], device: str
) -> None:
    """The states take the size that is wanted; later they cannot, and nothing changes."""
    preds, target = torch.rand(16, 5, device=device), torch.arange(16, device=device) % 5
    late, fresh = (
        classification.MulticlassAccuracy(5, **{**options, **more}).to(device)
        for more in ({}, changed)
    )
    before = late(preds, target)
    ((name, value),) = changed.items()
    with pytest.raises(ValueError, match=rf"`{name}` to be changed before the first.*`reset\(\)`"):
        setattr(late, name, value)
    torch.testing.assert_close(late(preds, target), before)
    late.reset()
    setattr(late, name, value)
    torch.testing.assert_close(late(preds, target), fresh(preds, target))
    late.reset()
    late.update(preds, target)
    torch.testing.assert_close(late.compute(), fresh.compute())
    torch.testing.assert_close(late.metric_state, fresh.metric_state)


@pytest.mark.parametrize("options", [{}, {"multidim_average": "samplewise"}], ids=str)
def test_counts_for_several_k_are_not_added_up(options: dict[str, Any], device: str) -> None:
    """Also where states for one k have the size of those for another."""
    preds = torch.rand(16, 4, 3, device=device)
    target = torch.arange(48, device=device).reshape(16, 3) % 4
    metric, alone = (classification.MulticlassAccuracy(4, **options).to(device) for _ in range(2))
    metric.top_k = 2
    metric.top_k = 1
    for each in (metric, alone):
        each.update(preds, target)
    metric.top_k = 1  # as it is
    with pytest.raises(ValueError, match=r"`top_k` to be changed before the first.*`reset\(\)`"):
        metric.top_k = 2
    for each in (metric, alone):
        each.update(preds, target)
    torch.testing.assert_close(metric.compute(), alone.compute())
    metric.reset()
    metric.top_k = 2
    expected = functional.multiclass_accuracy(preds, target, 4, top_k=2, **options)
    torch.testing.assert_close(metric(preds, target), expected)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("BinaryAccuracy", "threshold", 0.8),
        ("BinaryAccuracy", "ignore_index", 0),
        ("MulticlassAccuracy", "average", "weighted"),
        ("MulticlassAccuracy", "ignore_index", 2),
        ("MultilabelAccuracy", "threshold", 0.2),
    ],
)
def test_options_of_which_each_batch_has_its_own(
    name: str, option: str, value: Any, device: str
) -> None:
    """What they count still adds up, as for data sets with different labels of no class."""
    made = {"BinaryAccuracy": (), "MulticlassAccuracy": (4,), "MultilabelAccuracy": (4,)}[name]
    ours, theirs = (getattr(module, name)(*made).to(device) for module in (classification, tm))
    preds = torch.rand(32, 4, device=device)
    if name == "MulticlassAccuracy":
        target = torch.randint(4, (32,), device=device)
    else:
        target = torch.randint(2, (32, 4), device=device)
    for metric in (ours, theirs):
        metric.update(preds, target)
        setattr(metric, option, value)
        metric.update(preds, target)
    torch.testing.assert_close(ours.compute(), theirs.compute())


@pytest.mark.parametrize("came_by", ["merge_state", "load_state_dict"])
def test_options_changed_after_counts_that_no_update_made(came_by: str, device: str) -> None:
    full, late = (classification.MulticlassAccuracy(5, average="micro") for _ in range(2))
    full.persistent(True)
    full.update(torch.rand(16, 5), torch.arange(16) % 5)
    full, late = full.to(device), late.to(device)
    getattr(late, came_by)(full if came_by == "merge_state" else full.state_dict())
    with pytest.raises(ValueError, match=r"`average` to be changed before the first"):
        late.average = "macro"
    torch.testing.assert_close(late.metric_state, full.metric_state)
    late.reset()
    late.average = "macro"
    assert late.tp.shape == (5,)


def test_changed_options_do_not_make_the_host_wait() -> None:
    tier = 2 if torch.cuda.is_available() else 0
    with syncfree.detect_syncs(tier=tier):
        metric = classification.MulticlassAccuracy(5).to("cuda")
        with syncfree.detect_syncs(tier=tier) as report:
            metric.average = "micro"
    assert report.count == 0, str(report)
    assert metric.tp.shape == (1,)


@pytest.mark.parametrize("made", ["global", "samplewise"])
def test_samples_are_not_set_apart_later(made: str, device: str) -> None:
    metric = classification.BinaryAccuracy(multidim_average=made).to(device)
    labels = torch.tensor([[0, 1], [1, 1]], device=device)
    before = metric(labels, labels)
    with pytest.raises(ValueError, match=r"`multidim_average` to stay as it was made"):
        metric.multidim_average = "global" if made == "samplewise" else "samplewise"
    assert metric.multidim_average == made
    torch.testing.assert_close(metric(labels, labels), before)


@pytest.mark.parametrize(
    ("name", "options", "foreign"),
    [
        ("BinaryAccuracy", {}, ("num_classes", "num_labels", "top_k", "average")),
        ("MulticlassAccuracy", {"num_classes": 3}, ("threshold", "num_labels")),
        ("MultilabelAccuracy", {"num_labels": 3}, ("num_classes", "top_k")),
    ],
)
def test_names_of_other_tasks_options_are_free(
    name: str, options: dict[str, Any], foreign: tuple[str, ...]
) -> None:
    """For attributes of a subclass or a user, which mean nothing to the metric."""

    class Subclass(getattr(classification, name)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(**options)
            for each in foreign:
                setattr(self, each, "one's own")

    metric, plain = Subclass(), getattr(classification, name)(**options)
    preds, target = torch.rand(4, 3), torch.randint(2, (4, 3))
    batch = (preds, target[:, 0]) if name == "MulticlassAccuracy" else (preds, target)
    for each in foreign:
        setattr(metric, each, 2)
        assert getattr(metric, each) == 2
    assert torch.equal(metric(*batch), plain(*batch))
    for each in foreign:
        setattr(metric, each, 3)
    assert torch.equal(metric(*batch), plain(*batch))
    assert torch.equal(metric.compute(), plain.compute())
