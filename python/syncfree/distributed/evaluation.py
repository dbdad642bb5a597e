"""Evaluates a model over a data set with all processes of a fleet."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from syncfree.distributed.channel import Channel
from syncfree.distributed.coordinator import Coordinator, Settled
from syncfree.distributed.environment import cores_of_each, numeric_variable
from syncfree.distributed.fleet import Fleet, connect
from syncfree.distributed.inference import Inference, Metric, Model
from syncfree.distributed.launcher import own_device
from syncfree.distributed.policy import SCHEDULES, TIMEOUT_SECONDS, Schedule
from syncfree.distributed.sampler import check_costs
from syncfree.distributed.statistics import FleetStatistics
from syncfree.distributed.worker import Worker
from syncfree.errors import DeviceError, EvaluationError, RankError

_ANY_GPU = torch.device("cuda")
_TERMS = "terms"


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found; the same on every rank.

    Args:
        values: float64, one value per item for each metric, NaN for an item that failed.
        failures: why an item has no values.
        statistics: what each rank did with its time.
    """

    values: dict[str, Tensor]
    failures: dict[int, str]
    statistics: FleetStatistics


def evaluate(
    model: Model,
    dataset: Any,
    metrics: Mapping[str, Metric],
    *,
    device: torch.device | str | None = None,
    batch: int | None = None,
    workers: int | None = None,
    costs: Sequence[float] | None = None,
    schedule: Schedule = "dynamic",
    timeout: float = TIMEOUT_SECONDS,
    strict: bool = True,
    fleet: Fleet | None = None,
) -> Evaluation:
    """Run a model and metrics over a data set, together with every process that calls this.

    Each rank loads items in threads, copies them on one CUDA stream and computes on another, and
    reads values back without making the device wait. Items of equal shape form batches. Items are
    handed out as ranks become free; if a rank fails or is stuck, the others do its part.

    Args:
        model: takes a batch of inputs; already on the device and in evaluation mode.
        dataset: has a length, and gives an input and a target for an index: tensors, numbers or
            numpy arrays, which become tensors as in a `DataLoader`. Threads read it.
        metrics: by name; each takes outputs and targets and gives one value per item.
        device: default: the one for which `launch` started this process, else this rank's GPU if
            there is one, else the CPU. `cuda` is this rank's GPU, too: the current device if
            `torch.cuda.set_device` has chosen one, else that of the rank's number on its host.
        batch: most items together; default: chosen by free memory on a GPU, 8 on a CPU. To choose,
            `torch.cuda.reset_peak_memory_stats` is called once. Batches that do not fit into memory
            are halved.
        workers: loading threads; default, and 0: this rank's part of the host's cores.
        costs: what each item costs, in any unit, such as its pixels; default: all the same.
        schedule: `dynamic`, or fixed shares: `equal` numbers, or about equal `cost`.
        timeout: seconds after which a rank that holds items and sends nothing is given up, and also
            rank 0, which leads; ranks have at least 300 to begin.
        strict: raise if any item failed. An exception of the model or a metric fails all items of
            its batch; with `batch=1` that is one item.
        fleet: default `connect()`.

    Returns:
        All values, on every rank.

    Raises:
        TypeError: metrics without names, a model or metric that cannot be called, a metric that
            gives no tensor, a data set without a length or an index, a batch or workers that are no
            whole number, or one that the model or a metric raises.
        ValueError: no metric, unknown schedule, wrong costs, numbers out of range, a model in
            training mode, or names of metrics or a length of the data set other than rank 0's; the
            others then do this rank's part.
        DeviceError: the device is neither the CPU nor a CUDA GPU of this machine.
        EvaluationError: items failed, and `strict`; it has the evaluation.
        RankError: rank 0, which leads, does not begin or is stuck.
        torch.distributed.DistError: the store is gone.

    Example:
        >>> import torch
        >>> from syncfree.distributed import evaluate
        >>> from syncfree.functional import peak_signal_noise_ratio
        >>> def psnr(preds, target):
        ...     return peak_signal_noise_ratio(
        ...         preds, target, data_range=1.0, reduction="none", dim=(1, 2, 3)
        ...     )
        >>> clean = torch.linspace(0, 0.9, 3 * 3 * 16 * 16).view(3, 3, 16, 16)
        >>> data = [(image + 0.1, image) for image in clean]
        >>> found = evaluate(lambda noisy: noisy - 0.05, data, {"psnr": psnr}, device="cpu")
        >>> found.values["psnr"].round(decimals=2).tolist()
        [26.02, 26.02, 26.02]
    """
    _check(model, dataset, metrics, schedule)
    _check_numbers(batch, workers, timeout)
    checked = check_costs(costs, len(dataset))
    fleet = fleet or connect()
    own = _device(device, fleet)
    channel = fleet.next_run("evaluate")
    # Values travel without their names, and a dict may have another order on each rank.
    names = sorted(metrics, key=str)
    terms = {"metrics": [str(name) for name in names], "items": len(dataset)}
    leader = None
    if fleet.rank == 0:
        channel.publish(_TERMS, terms)
        leader = _Leader(channel, fleet.world, checked, terms, schedule, timeout)
        leader.start()
    worker = Worker(channel, fleet.rank, fleet.world, timeout)
    try:
        inference = Inference(
            model,
            {name: metrics[name] for name in names},
            own,
            batch=batch,
            workers=workers or _cores_per_rank(fleet),
        )
        worker.ready(own, _name(own), inference.busy)
        for items in worker.rounds():
            _check_terms(channel.read(_TERMS), terms)
            for item, result in inference.run(items, dataset):
                worker.settle(item, _outcome(result))
    except RankError:  # nobody leads, so nobody can be told
        raise
    except Exception as error:
        # Before this rank raises, the others can finish, led from here if this is rank 0.
        worker.fail(error)
        for _ in worker.rounds():
            pass
        if leader is not None:
            leader.join()
        raise
    except BaseException as error:  # Ctrl-C waits for nobody
        with suppress(dist.DistError):
            worker.fail(error)
        if leader is not None:
            leader.stop()
            leader.join()  # a thread that outlives the interpreter's end aborts it
        raise
    if leader is not None:
        leader.join()
    # For a rank that got no round, because all was done before it began. The terms are read from
    # the result: the store may be gone with rank 0 by now.
    _check_terms(worker.result.get(_TERMS), terms)
    return _result(worker.result, names, list(metrics), strict)


class _Leader(threading.Thread):
    """A thread that leads the run, beside the work of rank 0."""

    def __init__(
        self,
        channel: Channel,
        world: int,
        costs: Sequence[float],
        terms: dict[str, Any],
        schedule: Schedule,
        timeout: float,
    ) -> None:
        super().__init__(name="syncfree-coordinator", daemon=True)
        self._coordinator = Coordinator(
            channel,
            world,
            costs,
            schedule=schedule,
            timeout=timeout,
            checkpoint=self._checkpoint,
        )
        self._channel = channel
        self._terms = terms
        self._values = [[math.nan] * len(costs) for _ in terms["metrics"]]
        self._failures: dict[int, str] = {}
        self._stopped = False

    def stop(self) -> None:
        """End the run for all ranks."""
        self._stopped = True

    def _checkpoint(self) -> None:
        if self._stopped:
            raise RuntimeError("it was interrupted")

    def run(self) -> None:
        try:
            for event in self._coordinator.run(range(len(self._values[0]))):
                if isinstance(event, Settled):
                    self._take(event.item, event.outcome)
        except Exception as error:  # sent to all ranks, which would wait forever otherwise
            self._coordinator.end({"error": f"{type(error).__name__}: {error}"})
            return
        failures = {**self._failures, **self._coordinator.unfinished}
        self._coordinator.end(
            {
                "values": self._values,
                "failures": sorted(failures.items()),
                "statistics": asdict(self._coordinator.statistics()),
                _TERMS: self._terms,
            }
        )
        with suppress(dist.DistError):  # a store may outlive many runs
            self._channel.forget(_TERMS)

    def _take(self, item: int, outcome: Any) -> None:
        if isinstance(outcome, str):
            self._failures[item] = outcome
            return
        for column, value in zip(self._values, outcome, strict=True):
            column[item] = value


def _check_terms(leading: dict[str, Any] | None, own: dict[str, Any]) -> None:
    """Raises ValueError unless this rank evaluates what rank 0 does, where that is known."""
    if leading not in (None, own):
        raise ValueError(
            "all ranks pass metrics of the same names and data sets of the same length: this one "
            f"has {own['metrics']} and {own['items']} items, rank 0 {leading['metrics']} and "
            f"{leading['items']}"
        )


def _outcome(result: list[float] | Exception) -> list[float] | str:
    return f"{type(result).__name__}: {result}" if isinstance(result, Exception) else result


def _result(
    document: dict[str, Any], names: Sequence[str], order: Sequence[str], strict: bool
) -> Evaluation:
    if "error" in document:
        raise RuntimeError(f"rank 0 could not lead the evaluation: {document['error']}")
    columns = dict(zip(names, document["values"], strict=True))
    values = {
        name: torch.tensor(columns[name], dtype=torch.float64, device="cpu") for name in order
    }
    failures = dict(document["failures"])
    statistics = FleetStatistics.from_json(document["statistics"])
    evaluation = Evaluation(values, failures, statistics)
    if strict and failures:
        raise EvaluationError(failures, evaluation)
    return evaluation


def _check(model: Model, dataset: Any, metrics: Mapping[str, Metric], schedule: str) -> None:
    if not hasattr(metrics, "items"):  # a MetricCollection has `items`, but is no Mapping
        raise TypeError(
            f"metrics is a mapping of names to functions, but got {type(metrics).__name__}"
        )
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            "dataset has a length and gives an input and a target for an index, but got "
            f"{type(dataset).__name__}; make it a list if it only iterates"
        )
    if not metrics:
        raise ValueError("evaluate needs at least one metric, got none")
    functions = {"model": model, **{f"metric {name!r}": it for name, it in metrics.items()}}
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} is a function or a module, but got {function!r}")
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}; got {schedule!r}")
    if isinstance(model, nn.Module) and model.training:
        raise ValueError(
            "the model is in training mode, where values may depend on the batch; call model.eval()"
        )


def _check_numbers(batch: int | None, workers: int | None, timeout: float) -> None:
    numbers: dict[str, Any] = {"batch": batch, "workers": workers}
    for name, number in numbers.items():
        if number is not None and not isinstance(number, Integral):
            raise TypeError(f"{name} is a whole number, got {number!r}")
    if batch is not None and batch < 1:
        raise ValueError(f"batch is at least 1, got {batch}")
    if workers is not None and workers < 0:
        raise ValueError(f"workers is at least 0, got {workers}")
    if not timeout > 0:
        raise ValueError(f"timeout is more than 0 seconds, got {timeout:g}")


def _device(wanted: torch.device | str | None, fleet: Fleet) -> torch.device:
    gpus = torch.cuda.device_count()
    if wanted is None:
        wanted = own_device() or ("cuda" if gpus else "cpu")
    try:
        device = torch.device("cuda", wanted) if isinstance(wanted, int) else torch.device(wanted)
    except (RuntimeError, TypeError):
        device = torch.device("meta")  # refused below
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"evaluate works on cuda and cpu devices, but was asked for {wanted!r}")
    if device.type == "cuda" and (device.index or 0) >= gpus:
        seen = f"only cuda:0 to cuda:{gpus - 1}" if gpus else "no GPU"
        raise DeviceError(
            f"evaluate was asked for {wanted}, but torch sees {seen} here; without `device` it "
            "takes this rank's GPU if there is one, else the CPU"
        )
    return _own_gpu(fleet, gpus) if device == _ANY_GPU else device


def _own_gpu(fleet: Fleet, gpus: int) -> torch.device:
    """This rank's GPU; by its number, as threads do not share the current device."""
    current = torch.cuda.current_device()
    # The first one is also the current one of a process in which nobody has chosen.
    is_chosen = current > 0 or own_device() == "cuda:0"
    return torch.device("cuda", current if is_chosen else fleet.local_rank % gpus)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _cores_per_rank(fleet: Fleet) -> int:
    local = numeric_variable("LOCAL_WORLD_SIZE", fleet.world)
    return cores_of_each(local)
