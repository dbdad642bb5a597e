"""Metrics made on `meta`, as models are whose weights come from a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchmetrics import Metric

import syncfree as sf
from class_cases import CASES, ClassCase
from metric_contract import same_states, same_value


def is_summed(case: ClassCase) -> bool:
    states = case.ours(**case.options).metric_state.values()
    return all(isinstance(state, torch.Tensor) for state in states)


def on_meta(kind: type[Metric], made_there: bool, options: dict[str, Any]) -> Metric:
    if not made_there:
        return kind(**options).to("meta")
    with torch.device("meta"):
        return kind(**options)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("made_there", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_checkpoint_makes_them_real(
    case: ClassCase, made_there: bool, assign: bool, device: str
) -> None:
    first, second, *_ = case.batches(device)
    _, saved = case.pair(device)
    saved.persistent(True)
    saved.update(*first)
    loaded = []
    for kind in (case.ours, case.theirs):
        metric = on_meta(kind, made_there, case.options)
        metric.persistent(True)
        metric.load_state_dict(saved.clone().state_dict(), assign=assign)
        same_states(metric, saved)
        metric.update(*second)
        loaded.append(metric)
    same_states(*loaded)
    same_value(*(metric.compute() for metric in loaded))


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize("case", [case for case in CASES if is_summed(case)], ids=str)
def test_states_left_there_take_no_batch(case: ClassCase, method: str, device: str) -> None:
    batch, *_ = case.batches(device)
    for name, state in case.pair(device)[0].metric_state.items():
        metric, _ = case.pair(device)
        metric.__dict__[name] = state.to("meta")
        with pytest.raises(RuntimeError, match=r"on the (same )?device"):
            getattr(metric, method)(*batch)


# ---- States that are empty lists have no device: such a metric takes batches of any.


class Own(sf.BinaryAccuracy):
    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        super().update(preds, target)


def of_samples(kind: type[Metric] = sf.BinaryAccuracy, **options: Any) -> Any:
    return on_meta(kind, True, {"multidim_average": "samplewise", **options})


def batch(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    preds = torch.tensor([[0.9, 0.1], [0.8, 0.3]], device=device)
    return preds, torch.tensor([[1, 0], [0, 0]], device=device)


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (sf.BinaryAccuracy, {}),
        (sf.BinaryAccuracy, {"dist_sync_on_step": True}),
        (sf.BinaryAccuracy, {"compute_on_cpu": True}),
        (Own, {}),
    ],
)
def test_samples_counted_by_a_metric_made_there(
    kind: type[Metric], options: dict[str, Any], method: str, device: str
) -> None:
    metric = of_samples(kind, **options)
    for _ in range(2):
        getattr(metric, method)(*batch(device))
    assert metric.compute().tolist() == [1.0, 0.5] * 2
    metric.reset()
    metric.update(*batch(device))
    assert metric.compute().tolist() == [1.0, 0.5]


def test_a_collection_made_there(device: str) -> None:
    metrics = sf.MetricCollection({"a": of_samples(), "b": of_samples()})
    for _ in range(2):
        metrics(*batch(device))
    for value in metrics.compute().values():
        assert value.tolist() == [1.0, 0.5] * 2
    metrics["b"].reset()
    metrics["b"].update(*batch(device))
    assert metrics["b"].compute().tolist() == [1.0, 0.5]


def test_merged_with_one_made_there(device: str) -> None:
    real = sf.BinaryAccuracy(multidim_average="samplewise").to(device)
    real.update(*batch(device))
    real.merge_state(of_samples())
    metric = of_samples()
    metric.merge_state(real)
    for each in (real, metric):
        assert each.compute().tolist() == [1.0, 0.5]


def test_counts_and_errors_on_two_devices_are_refused() -> None:
    counts = [torch.ones(1, dtype=torch.int64) for _ in range(4)]
    with pytest.raises(RuntimeError, match="`bad` on the same device, but got cpu and meta"):
        torch.ops.syncfree.accuracy_from_counts(*counts, counts[0].to("meta"), 0)
