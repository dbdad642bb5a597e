"""What every metric class must satisfy, beside TorchMetrics' class on the same batches."""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from class_cases import CASES, ClassCase
from metric_contract import every_case, same_states, same_value, without_lists


def places(metric: Metric) -> dict[str, int]:
    return {n: s.data_ptr() for n, s in metric.metric_state.items() if isinstance(s, Tensor)}


@every_case
def test_same_stream_same_values_and_states(case: ClassCase, device: str) -> None:
    ours, theirs = case.pair(device)
    for round_ in range(2):
        for i, batch in enumerate(case.batches(device, round_)):
            if i % 2:
                ours.update(*batch)
                theirs.update(*batch)
            else:
                same_value(ours(*batch), theirs(*batch))
                same_value(ours._forward_cache, theirs._forward_cache)
            assert ours.update_count == theirs.update_count
            assert ours.update_called
            if i == 2:
                same_value(ours.compute(), theirs.compute())
        same_states(ours, theirs)
        same_value(ours.compute(), theirs.compute())
        assert ours.compute() is ours.compute()
        ours.reset()
        theirs.reset()
        assert ours.update_count == 0
        same_states(ours, theirs)


@every_case
def test_declared_as_theirs(case: ClassCase) -> None:
    ours, theirs = case.ours, case.theirs
    assert issubclass(ours, theirs)
    assert ours.__name__ == theirs.__name__
    want = inspect.signature(theirs).parameters
    got = inspect.signature(ours).parameters
    assert list(got)[: len(want) - 1] == list(want)[:-1]
    expected = {n: p.default for n, p in want.items()}
    if ours.__name__ == "PeakSignalNoiseRatio":  # a preset may do without the range
        expected["data_range"] = None
    assert expected.items() <= {n: p.default for n, p in got.items()}.items()
    for name in (
        "is_differentiable",
        "higher_is_better",
        "full_state_update",
        "plot_lower_bound",
        "plot_upper_bound",
        "plot_legend_name",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    one, other = case.pair("cpu")
    assert one._reductions == other._reductions
    assert one._persistent == other._persistent
    assert repr(one) == repr(other)
    assert list(one._update_signature.parameters) == list(other._update_signature.parameters)


@every_case
def test_storage_stays_put(case: ClassCase, device: str) -> None:
    metric, theirs = case.pair(device)
    before = places(metric)
    batches = case.batches(device)
    state_dict = copy.deepcopy(theirs)
    state_dict.persistent(True)
    state_dict.update(*batches[0])
    metric.persistent(True)
    for step in (metric, metric.update):
        for batch in batches:
            step(*batch)
        metric.compute()
        metric.reset()
    with torch.inference_mode():
        metric.reset()
    metric.update(*batches[0])
    metric.load_state_dict(state_dict.state_dict())
    metric.merge_state(theirs.metric_state)
    metric.to(device)
    assert places(metric) == before


@every_case
def test_lists_are_neither_copied_nor_read(case: ClassCase, device: str) -> None:
    """The time of a step must not grow with the number of steps."""
    metric, _ = case.pair(device)
    lists = [name for name, state in metric.metric_state.items() if isinstance(state, list)]
    batches = case.batches(device)
    for batch in batches:
        before = {name: list(getattr(metric, name)) for name in lists}
        metric(*batch)
        for name in lists:
            after = getattr(metric, name)
            assert len(after) == len(before[name]) + 1
            assert all(a is b for a, b in zip(after, before[name], strict=False))


@every_case
def test_state_dicts_both_ways(case: ClassCase, device: str) -> None:
    ours, theirs = case.pair(device)
    assert ours.state_dict() == theirs.state_dict() == {}
    batches = case.batches(device)
    for metric in (ours, theirs):
        metric.persistent(True)
        for batch in batches[:2]:
            metric.update(*batch)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for source in (ours, theirs):
        for target in case.pair(device):
            saved = source.state_dict()
            unchanged = copy.deepcopy(saved)
            target.persistent(True)
            target.load_state_dict(saved)
            same_states(target, ours)
            target.update(*batches[2])
            if isinstance(target, case.ours):
                torch.testing.assert_close(saved, unchanged, rtol=0, atol=0)
    fresh, _ = case.pair(device)
    fresh.update(*batches[3])
    fresh.compute()
    fresh.persistent(True)
    fresh.load_state_dict(ours.state_dict())
    same_value(fresh.compute(), theirs.compute())


@every_case
def test_copies_are_independent(case: ClassCase, device: str) -> None:
    metric, theirs = case.pair(device)
    first, second, *_ = case.batches(device)
    metric.update(*first)
    theirs.update(*first)
    want = metric.compute()
    theirs.update(*second)
    for other in (metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert type(other) is case.ours
        same_value(other.compute(), want)
        other.update(*second)
        same_states(other, theirs)
        same_value(other.compute(), theirs.compute())
        assert (other.update_count, metric.update_count) == (2, 1)
        assert not set(places(other).values()) & set(places(metric).values())
    same_value(metric.compute(), want)
    assert len({metric, metric.clone()}) == 2


@every_case
@pytest.mark.parametrize("as_dict", [False, True])
def test_merge_state(case: ClassCase, as_dict: bool, device: str) -> None:
    first, second, third, _ = case.batches(device)
    merged = []
    for metric, other in zip(case.pair(device), case.pair(device), strict=True):
        metric.update(*first)
        metric.compute()
        other.update(*second)
        other.update(*third)
        before = copy.deepcopy(other.metric_state)
        metric.merge_state(other.metric_state if as_dict else other)
        torch.testing.assert_close(other.metric_state, before, rtol=0, atol=0)
        merged.append(metric)
    same_states(*merged)
    merged[1]._computed = None  # TorchMetrics goes on giving the value from before
    same_value(merged[0].compute(), merged[1].compute())


@every_case
def test_merge_state_refuses_others(case: ClassCase) -> None:
    metric, _ = case.pair("cpu")
    with pytest.raises(ValueError, match="dict or an instance of Metric"):
        metric.merge_state(3)
    with pytest.raises(ValueError, match="to be present in incoming state"):
        metric.merge_state({})


@every_case
def test_in_torchmetrics_collection(case: ClassCase, device: str) -> None:
    """Both end in one compute group, whose members share their states."""
    ours, theirs = case.pair(device)
    _, alone = case.pair(device)
    collection = MetricCollection({"ours": ours, "theirs": theirs}).to(device)
    for round_ in range(2):
        for i, batch in enumerate(case.batches(device, round_)):
            if i % 2:
                want = alone(*batch)
                for value in collection(*batch).values():
                    same_value(value, want)
            else:
                collection.update(*batch)
                alone.update(*batch)
            for value in collection.compute().values():
                same_value(value, alone.compute())
        assert len(collection.compute_groups) == 1
        collection.reset()
        alone.reset()


@every_case
def test_subclasses_with_methods_of_their_own(case: ClassCase, device: str) -> None:
    def flipped(metric: Metric, preds: Tensor, target: Tensor) -> None:
        super(type(metric), metric).update(preds.flip(-1), target)

    def halved(metric: Metric) -> Tensor:
        return super(type(metric), metric).compute() / 2

    for changes in ({"update": flipped}, {"compute": halved}):
        ours, theirs = (
            type("Own", (base,), changes)(**case.options).to(device)
            for base in (case.ours, case.theirs)
        )
        for batch in case.batches(device):
            same_value(ours(*batch), theirs(*batch))
        same_states(ours, theirs)
        same_value(ours.compute(), theirs.compute())


@every_case
def test_operators(case: ClassCase, device: str) -> None:
    (ours, theirs), (first, *_) = case.pair(device), case.batches(device)
    for combine in _COMBINATIONS:
        got, want = combine(ours), combine(theirs)
        got.update(*first)
        want.update(*first)
        same_value(got.compute(), want.compute())
        got.reset()
        want.reset()


_COMBINATIONS: list[Callable[[Any], Metric]] = [
    lambda m: m + 1,
    lambda m: 2 * m,
    lambda m: m / 4,
    lambda m: -m,
    lambda m: abs(m) ** 2,
]


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_set_dtype(case: ClassCase, dtype: torch.dtype, device: str) -> None:
    ours, theirs = (metric.set_dtype(dtype) for metric in case.pair(device))
    for casting in ("half", "double", "float"):
        getattr(ours, casting)()
    for name, want in theirs.metric_state.items():
        if isinstance(want, Tensor):
            assert getattr(ours, name).dtype == want.dtype
    first, second, *_ = case.batches(device)
    if "data_range" in case.options and dtype == torch.float16:
        return  # does not hold the number of pixels
    torch.testing.assert_close(ours(*first), theirs(*first), check_dtype=False)
    ours.update(*second)
    theirs.update(*second)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == torch.float16 else {}
    torch.testing.assert_close(ours.compute(), theirs.compute(), check_dtype=False, **tolerance)


@every_case
def test_compute_before_update_warns(case: ClassCase, device: str) -> None:
    metric, theirs = case.pair(device)
    outcomes = []
    for one in (metric, theirs):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                outcomes.append((repr(one.compute()), [str(w.message) for w in seen]))
            except ValueError as error:
                outcomes.append((str(error), [str(w.message) for w in seen]))
    assert outcomes[0] == outcomes[1]


def test_compute_before_update_names_the_line(device: str) -> None:
    """As shown by default, also after the first such metric: not TorchMetrics' own line."""
    metric = CASES[0].pair(device)[0]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        metric.compute()
        MetricCollection([metric]).compute()
    assert [w.filename for w in seen] == [__file__, __file__]


@every_case
def test_arguments_of_metric(case: ClassCase, device: str) -> None:
    with pytest.raises(ValueError, match="Unexpected keyword argument"):
        case.pair(device, nonsense=1)
    ours, theirs = case.pair(device, compute_with_cache=False, sync_on_compute=False)
    for batch in case.batches(device):
        same_value(ours(*batch), theirs(*batch))
    assert ours.compute() is not ours.compute()
    for more in ({"compute_on_cpu": True}, {"dist_sync_on_step": True}):
        ours, theirs = case.pair(device, **more)
        before = places(ours)
        for batch in case.batches(device):
            same_value(ours(*batch), theirs(*batch))
        same_states(ours, theirs)
        value = ours.compute()
        # Theirs does not take its own range along with `compute_on_cpu`.
        same_value(value, theirs.to(value.device).compute())
        assert places(ours) == before


@every_case
def test_a_synced_metric_takes_no_batch(case: ClassCase, device: str) -> None:
    metric, _ = case.pair(device)
    batch = case.batches(device)[0]
    metric._is_synced = True
    with pytest.raises(TorchMetricsUserError, match="shouldn't be synced"):
        metric(*batch)


@every_case
def test_compiled_updates_around_a_reset_in_inference_mode(case: ClassCase, device: str) -> None:
    """As validation has it: states of such a mode could not be written to outside of it."""
    metric, theirs = case.pair(device)
    batch = case.batches(device)[0]
    update = torch.compile(metric.update, backend="aot_eager")
    for mode in (torch.inference_mode, contextlib.nullcontext):
        with mode():
            metric.reset()
            update(*batch)
            metric.reset()
        update(*batch)
        metric.update(*batch)
    theirs.update(*batch)
    theirs.update(*batch)
    torch.testing.assert_close(metric.compute(), theirs.compute(), rtol=1e-5, atol=1e-6)


@every_case
def test_plot(case: ClassCase, device: str) -> None:
    metric, _ = case.pair(device)
    for batch in case.batches(device):
        metric.update(*batch)
    value = metric.compute()
    if value.ndim < 2:
        figure, axes = metric.plot()
        assert axes.get_ylim() is not None
        figure.clear()


@without_lists
@pytest.mark.parametrize("step", ["update", "forward"])
def test_compiles_once(case: ClassCase, step: str, device: str) -> None:
    metric, theirs = case.pair(device)
    batch = case.batches(device)[0]
    torch._dynamo.reset()
    run = torch.compile(getattr(metric, step), fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(20):
            value = run(*batch)
    for _ in range(20):
        want = getattr(theirs, step)(*batch)
    if step == "forward":
        same_value(value, want)
    same_states(metric, theirs)


@without_lists
@pytest.mark.parametrize("option", ["dist_sync_on_step", "compute_on_cpu"])
def test_compiles_once_with_options(case: ClassCase, option: str, device: str) -> None:
    metric, theirs = (
        kind(**case.options, **{option: True}).to(device) for kind in (case.ours, case.theirs)
    )
    batch = case.batches(device)[0]
    torch._dynamo.reset()
    run = torch.compile(metric.forward, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        same_value(run(*batch), theirs(*batch))
    same_states(metric, theirs)
