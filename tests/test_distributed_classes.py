"""Classes in several processes: TorchMetrics' answers, with fewer collectives and no wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torchmetrics.classification as tm
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from class_cases import CASES, ClassCase
from processes import in_processes
from syncfree import MetricCollection, classification, image

# What is kept of images one by one comes in the order of the processes; in TorchMetrics' first the
# first batch of each, then the second, for which all must have equally many.
ORDERED = [case for case in CASES if None not in case.ours(**case.options)._reductions.values()]
BY_PROCESS = [case for case in CASES if case not in ORDERED]


def parts(case: ClassCase, world: int) -> list[list[tuple[Tensor, Tensor]]]:
    """Batches for each process, not equally many, of lengths that differ."""
    batches = [batch for seed in range(world) for batch in case.batches("cpu", seed)]
    return [batches[rank :: world + 1] for rank in range(world)]


@contextmanager
def counted_collectives(seen: list[str]) -> Any:
    names = ["all_reduce", "all_gather", "all_gather_into_tensor", "barrier", "all_gather_object"]
    kept = {name: getattr(dist, name) for name in names}

    def counting(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return kept[name](*args, **kwargs)

        return call

    for name in names:
        setattr(dist, name, counting(name))
    try:
        yield
    finally:
        for name in names:
            setattr(dist, name, kept[name])


def same(got: Any, want: Any, rtol: float = 1e-6) -> None:
    torch.testing.assert_close(got, want, rtol=rtol, atol=1e-7)


def _compute_in_all(rank: int, world: int) -> None:
    for case in ORDERED:
        ours, theirs = case.pair("cpu")
        for batch in parts(case, world)[rank]:
            ours.update(*batch)
            theirs.update(*batch)
        local = {
            name: state.clone() if isinstance(state, Tensor) else list(state)
            for name, state in ours.metric_state.items()
        }
        seen: list[str] = []
        with counted_collectives(seen):
            value = ours.compute()
        same(value, theirs.compute())
        if any(isinstance(state, list) for state in local.values()):
            lists = {s.dtype for state in local.values() if isinstance(state, list) for s in state}
            # One for the lengths, one for each dtype, and the tensors; hidden sums with them.
            assert seen.count("all_gather") == 1 + len(lists), case
            assert seen.count("all_reduce") == 1, case
        else:
            dtypes = {s.dtype for s in ours._states_to_reduce().values()}
            reductions = len(set(ours._reductions_of_states().values()))
            assert seen.count("all_reduce") <= len(dtypes) * reductions, case
            assert set(seen) == {"all_reduce"}, case
        assert "barrier" not in seen
        torch.testing.assert_close(ours.metric_state, local, rtol=0, atol=0)
        ours.update(*parts(case, world)[rank][0])
        theirs.update(*parts(case, world)[rank][0])
        same(ours.compute(), theirs.compute())


@pytest.mark.parametrize("world", [2, 4])
def test_compute_in_all_processes(world: int, tmp_path: Path) -> None:
    in_processes(world, _compute_in_all, tmp_path)


def _images_one_by_one(rank: int, world: int) -> None:
    for case in BY_PROCESS:
        ours, alone = (case.ours(**case.options) for _ in range(2))
        alone.sync_on_compute = alone._to_sync = False
        for other in range(world):
            for batch in parts(case, world)[other][: other + 1]:
                alone.update(*batch)
                if other == rank:
                    ours.update(*batch)
        same(ours.compute(), alone.compute())


def test_images_one_by_one(tmp_path: Path) -> None:
    in_processes(2, _images_one_by_one, tmp_path)


def _options_of_syncing(rank: int, world: int) -> None:
    group = dist.new_group([0])
    for case in ORDERED:
        batches = parts(case, world)[rank]

        def filled(**more: Any) -> tuple[Metric, Metric]:
            ours, theirs = case.pair("cpu", **more)  # noqa: B023
            for batch in batches:  # noqa: B023
                ours.update(*batch)
                theirs.update(*batch)
            return ours, theirs

        alone = [metric.compute() for metric in filled(sync_on_compute=False)]
        same(*alone)
        same(*(metric.compute() for metric in filled(dist_sync_fn=gather_all_tensors)))
        same(*(metric.compute() for metric in filled(distributed_available_fn=lambda: False)))
        if rank == 0:
            same(*(metric.compute() for metric in filled(process_group=group)))
            same(filled(process_group=group)[0].compute(), alone[0])

        ours, theirs = filled(dist_sync_fn=lambda x, group=None: [x, x])
        same(ours.compute(), theirs.compute())

        ours, theirs = filled()
        want = ours.compute()
        before = {name: id(state) for name, state in ours.metric_state.items()}
        for metric in (ours, theirs):
            metric.sync()
            assert metric._is_synced
            with pytest.raises(TorchMetricsUserError, match="already been synced"):
                metric.sync()
            with pytest.raises(TorchMetricsUserError, match="shouldn't be synced"):
                metric(*batches[0])
        for name, state in theirs.metric_state.items():
            got = getattr(ours, name)
            same(got if isinstance(got, Tensor) else list(got), state)
        for metric in (ours, theirs):
            metric.unsync()
            with pytest.raises(TorchMetricsUserError, match="already been un-synced"):
                metric.unsync()
        if not any(isinstance(state, list) for state in ours.metric_state.values()):
            assert {name: id(state) for name, state in ours.metric_state.items()} == before
        for metric in (ours, theirs):
            metric._computed = None
            with metric.sync_context():
                metric._to_sync = False
                same(metric.compute(), want)
            metric._to_sync = True
            assert not metric._is_synced

        ours, theirs = case.pair("cpu", dist_sync_on_step=True)
        places = [id(state) for state in ours.metric_state.values()]
        for _ in range(2):  # as many steps in each process
            same(ours(*batches[0]), theirs(*batches[0]))
        same(ours.compute(), theirs.compute())
        if not any(isinstance(state, list) for state in ours.metric_state.values()):
            assert [id(state) for state in ours.metric_state.values()] == places


def _states_of_a_subclass_in_each_step(rank: int, world: int) -> None:
    def made(base: type[Metric], reduction: Any) -> Metric:
        def update(self: Any, preds: Tensor, target: Tensor) -> None:
            base.update(self, preds, target)
            self.seen = self.seen + target.float().mean() + 1

        methods = {"update": update, "compute": lambda self: self.seen.clone()}
        metric = type("Own", (base,), methods)(3, dist_sync_on_step=True)
        metric.add_state("seen", torch.tensor(0.0), dist_reduce_fx=reduction)
        return metric

    labels = torch.arange(12).reshape(3, 4) * (rank + 1) % 3
    for reduction in ("sum", "mean", "max", "min", None):
        ours, theirs = (
            made(c.MulticlassAccuracy, reduction)  # type: ignore[attr-defined]
            for c in (classification, tm)
        )
        for batch in labels:
            same(ours(batch, batch), theirs(batch, batch))
        same(ours.metric_state, theirs.metric_state)
        same(ours.compute(), theirs.compute())


def test_states_of_a_subclass_in_each_step(tmp_path: Path) -> None:
    in_processes(2, _states_of_a_subclass_in_each_step, tmp_path)


def _list_states_that_are_synced(rank: int, world: int) -> None:
    images = torch.rand(2, 3, 8, 8)
    psnr = image.PeakSignalNoiseRatio(data_range=1.0, dim=(1, 2, 3))
    samplewise = classification.BinaryAccuracy(multidim_average="samplewise")
    for metric, batch in ((psnr, images), (samplewise, images.round().long())):
        metric.update(batch, batch)
        with metric.sync_context(), pytest.raises(TypeError, match=r"synced.*call `unsync\(\)`"):
            metric.update(batch, batch)
        metric.update(batch, batch)
        assert len(next(iter(metric.metric_state.values()))) == 2


def test_list_states_that_are_synced(tmp_path: Path) -> None:
    in_processes(2, _list_states_that_are_synced, tmp_path)


def test_options_of_syncing(tmp_path: Path) -> None:
    in_processes(2, _options_of_syncing, tmp_path)


def _reset_while_synced(rank: int, world: int) -> None:
    for case in ORDERED:
        ours, theirs = case.pair("cpu")
        for metric in (ours, theirs):
            metric.update(*parts(case, world)[rank][0])
            metric.sync()
            if metric is theirs:
                metric.unsync()  # it cannot reset lists that are synced
            metric.reset()
            metric.update(*parts(case, world)[rank][1])
        same(ours.compute(), theirs.compute())


def test_reset_while_synced(tmp_path: Path) -> None:
    in_processes(2, _reset_while_synced, tmp_path)


def _one_process_saw_a_bad_label(rank: int, world: int) -> None:
    """The value is NaN everywhere, and the states are each process' own again."""
    for mode in ("global", "samplewise"):
        metric = classification.MulticlassAccuracy(3, multidim_average=mode)
        labels = torch.tensor([[0, 1, 2], [2, 1, 0]])
        metric.update(labels, labels)
        # As a kernel on CUDA leaves it; on CPU the call would have raised.
        metric._bad += rank
        for _ in range(2):
            metric._computed = None
            assert metric.compute().isnan().all()
        assert metric._bad.item() == rank
        metric.reset()
        metric.update(labels, labels)
        assert metric.compute().eq(1).all()


def test_one_process_saw_a_bad_label(tmp_path: Path) -> None:
    in_processes(2, _one_process_saw_a_bad_label, tmp_path)


def _an_error_of_an_earlier_batch(rank: int, world: int) -> None:
    """One process raises it; what they compute next they compute together."""
    labels = torch.tensor([0, 1, 2])
    first, second = (classification.MulticlassAccuracy(3) for _ in range(2))
    first.update(labels, labels)
    second.update(labels, labels if rank == 0 else labels.flip(0))
    pending = [RuntimeError("7 at flat index 3")]

    def raise_pending() -> None:  # as where a kernel has left a record
        if rank == 1 and pending:
            raise pending.pop()

    first._raise_pending = raise_pending
    try:
        assert first.compute() == 1
        assert rank == 0
    except RuntimeError as error:
        assert rank == 1
        assert "7 at" in str(error)  # noqa: PT017
    assert first.compute() == 1
    torch.testing.assert_close(second.compute(), torch.tensor(4 / 6))


def test_an_error_of_an_earlier_batch(tmp_path: Path) -> None:
    in_processes(2, _an_error_of_an_earlier_batch, tmp_path)


class _Refusing(classification.MulticlassAccuracy):
    def compute(self) -> Tensor:
        raise RuntimeError("not now")


def _an_error_in_compute(rank: int, world: int) -> None:
    """Comes after the collective, so that no process waits for this one; nothing stays synced."""
    kind = _Refusing if rank == 0 else classification.MulticlassAccuracy
    metric = kind(3)
    labels = torch.tensor([0, 1, 2])
    metric.update(labels, labels)
    if rank == 0:
        with pytest.raises(RuntimeError, match="not now"):
            metric.compute()
    else:
        assert metric.compute() == 1
    assert not metric._is_synced
    assert metric.tp.tolist() == [1, 1, 1]
    metric.update(labels, labels)


def test_an_error_in_compute(tmp_path: Path) -> None:
    in_processes(2, _an_error_in_compute, tmp_path)


class _Alone(Metric):
    """Syncs in a way of its own: not at all, where `alone` says so."""

    alone = True

    @contextmanager
    def sync_context(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        if self.alone:
            kwargs["distributed_available"] = lambda: False
        with super().sync_context(*args, **kwargs):
            yield


def _another_base(rank: int, world: int) -> None:
    for case in CASES:
        metric, usual = (
            type("Mixed", (case.ours, _Alone), {})(**case.options),
            case.ours(**case.options),
        )
        collection = MetricCollection({"mixed": metric.clone(), "usual": usual.clone()})
        single = case.ours(**case.options, sync_on_compute=False)
        for batch in case.batches("cpu", rank):
            for each in (metric, collection, usual, single):
                each.update(*batch)
        mine, all_of_them = single.compute(), usual.compute()
        torch.testing.assert_close(metric.compute(), mine)
        got = collection.compute()
        torch.testing.assert_close(got["mixed"], mine)
        torch.testing.assert_close(got["usual"], all_of_them)
        metric.alone, metric._computed = False, None
        torch.testing.assert_close(metric.compute(), all_of_them)
        with pytest.raises(KeyError), metric.sync_context():
            raise KeyError
        assert not metric._is_synced


def test_another_base_syncs_in_its_own_way(tmp_path: Path) -> None:
    in_processes(2, _another_base, tmp_path)
