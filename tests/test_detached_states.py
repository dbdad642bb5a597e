"""What shares the memory of a state, without being that tensor, does not change either."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from class_cases import CASES, ClassCase
from metric_contract import same_states, same_value
from syncfree import MetricCollection, classification

TENSORS = [case for case in CASES if not case.has_lists]
COUNTS = [case for case in TENSORS if "tp" in case.ours(**case.options)._defaults]
every_case = pytest.mark.parametrize("case", TENSORS, ids=str)

ALIASES: dict[str, Callable[[Tensor], Any]] = {
    "detached": Tensor.detach,
    "data": lambda state: state.data,
    "flat": lambda state: state.reshape(-1),
    "array": lambda state: state.detach().cpu().numpy(),  # shares memory on the CPU alone
}


def numbers(kept: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.as_tensor(alias).tolist() for name, alias in kept.items()}


def merge(metric: Metric, batch: tuple[Tensor, Tensor]) -> None:
    other = metric.clone()
    other.update(*batch)
    metric.merge_state(other)


def load(metric: Metric, batch: tuple[Tensor, Tensor]) -> None:
    other = metric.clone()
    other.persistent(True)
    other.update(*batch)
    metric.persistent(True)
    metric.load_state_dict(other.state_dict())


STEPS: dict[str, Callable[[Metric, tuple[Tensor, Tensor]], Any]] = {
    "update": lambda metric, batch: metric.update(*batch),
    "forward": lambda metric, batch: metric(*batch),
    "reset": lambda metric, batch: metric.reset(),
    "merge_state": merge,
    "load_state_dict": load,
}


@every_case
@pytest.mark.parametrize("step", STEPS)
def test_a_step_leaves_what_was_kept(case: ClassCase, step: str, device: str) -> None:
    first, *_, last = case.batches(device)
    for make in ALIASES.values():
        metric, _ = case.pair(device)
        metric.update(*first)
        kept = {name: make(state) for name, state in metric.metric_state.items()}
        before = numbers(kept)
        STEPS[step](metric, last)
        assert numbers(kept) == before


@pytest.mark.parametrize("case", COUNTS, ids=str)
def test_a_history_of_states(case: ClassCase, device: str) -> None:
    """TorchMetrics makes a new tensor in each step."""
    ours, theirs = case.pair(device)
    histories: list[list[Any]] = [[], []]
    for batch in case.batches(device):
        for metric, history in zip((ours, theirs), histories, strict=True):
            metric.update(*batch)
            history.append({name: x.detach() for name, x in metric.metric_state.items()})
    torch.testing.assert_close(histories[0], histories[1], rtol=0, atol=0)
    same_states(ours, theirs)
    same_value(ours.compute(), theirs.compute())


@every_case
def test_states_stay_where_nobody_holds_them(case: ClassCase, device: str) -> None:
    """A captured graph counts there."""
    metric, _ = case.pair(device)
    batches = case.batches(device)
    metric.update(*batches[0])
    metric(*batches[0])
    places = [state.data_ptr() for state in metric.metric_state.values()]
    for batch in batches:
        [state.detach() for state in metric.metric_state.values()]  # held by nobody
        # What asks for the storages leaves objects of them.
        copy.deepcopy(metric)
        pickle.dumps(metric)
        metric.update(*batch)
        metric(*batch)
        metric.compute()
    metric.reset()
    assert [state.data_ptr() for state in metric.metric_state.values()] == places


@pytest.mark.parametrize("case", [case for case in TENSORS if case not in COUNTS], ids=str)
def test_gradients_hold_no_states(case: ClassCase, device: str) -> None:
    metric, _ = case.pair(device)
    (preds, target), *_ = case.batches(device)
    metric.update(preds, target)
    places = [state.data_ptr() for state in metric.metric_state.values()]
    leaf = preds.clone().requires_grad_()
    values = [metric(leaf, target) for _ in range(3)]
    assert [state.data_ptr() for state in metric.metric_state.values()] == places
    torch.stack(values).sum().backward()


@pytest.mark.parametrize("step", ["update", "forward"])
def test_a_compute_that_gives_a_state_away(step: str, device: str) -> None:
    class Own(classification.BinaryAccuracy):
        def compute(self) -> Tensor:
            return self.tp.detach()

    with torch.inference_mode():  # whose views do not know of their base
        metric = Own().to(device)
        labels = torch.ones(8, dtype=torch.int64, device=device)
        metric.update(labels, labels)
        value = metric.compute()
        STEPS[step](metric, (labels, labels))
        assert value.item() == 8


@pytest.mark.parametrize("step", ["update", "forward"])
def test_a_group(step: str, device: str) -> None:
    averages = ("macro", "weighted", "none")
    metrics = {x: classification.MulticlassAccuracy(5, average=x) for x in averages}
    collection = MetricCollection(metrics).to(device)
    labels = torch.randint(0, 5, (20,), device=device)
    collection.update(labels, labels)
    for name in averages:
        kept = collection[name].tp.detach()
        before = kept.tolist()
        (collection if step == "forward" else collection.update)(labels, labels)
        assert kept.tolist() == before
    assert all(metric.tp.sum() == 80 for metric in collection.values())
