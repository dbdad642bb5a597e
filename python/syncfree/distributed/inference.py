"""Runs a model and metrics over items on one device: loading, copying and computing overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from syncfree.distributed.busy import Busy, EventClock, Span
from syncfree.distributed.flight import BATCHES_IN_FLIGHT, Flight, free_bytes
from syncfree.distributed.items import tensors_of

Model = Callable[[Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor]

_AHEAD_PER_WORKER = 3
_MOST_TOGETHER = 64
_CPU_TOGETHER = 8
_NO_MORE = -1  # in place of an item's index
_WAITING_BATCHES = 4  # items for so many may wait in incomplete ones, so that results keep coming
_AS_SOME_DO = "SSIM with reduction='none', or PSNR with reduction='none' and dim=(1, 2, 3)"


@dataclass(frozen=True)
class Loaded:
    """An item on the host."""

    item: int
    input: Tensor
    target: Tensor

    @property
    def layout(self) -> tuple[Any, ...]:
        """What items must share to be in one batch."""
        return self.input.shape, self.input.dtype, self.target.shape, self.target.dtype


@dataclass(frozen=True)
class Values:
    """A batch under way: a row per metric, a column per item, on the host after `wait`."""

    items: Sequence[Loaded]
    values: Tensor
    landed: Callable[[], None] = lambda: None

    def wait(self) -> None:
        """Wait for this batch alone."""
        self.landed()


Result = tuple[int, "list[float] | Exception"]


class Inference:
    """A model and metrics on one device.

    Args:
        model: takes a batch of inputs.
        metrics: take a batch of outputs and one of targets, and give a value for each item.
        device: where all of this happens.
        batch: most items together; `None` chooses by free memory.
        workers: threads that load.
    """

    def __init__(
        self,
        model: Model,
        metrics: Mapping[str, Metric],
        device: torch.device,
        *,
        batch: int | None,
        workers: int,
    ) -> None:
        self.busy = Busy()
        self._model = model
        self._metrics = metrics
        self._device = device
        self._batch = batch
        self._workers = workers
        self._bytes_per_element: float | None = None
        self._together: dict[tuple[Any, ...], int] = {}
        if device.type == "cuda":
            self._upload: Any = torch.cuda.Stream(device)
            self._compute: Any = torch.cuda.Stream(device)
            # What the caller has queued, such as the model's weights, comes first.
            self._upload.wait_stream(torch.cuda.current_stream(device))
            self._compute.wait_stream(torch.cuda.current_stream(device))
            self._clock = EventClock(self._compute, self.busy)

    def run(self, items: Iterable[int | None], data: Any) -> Iterator[Result]:
        """Values of each item, or why it has none, in the order in which they are done.

        Args:
            items: indices, taken a few ahead; at None, items that are held are submitted first.
            data: gives an input and a target for an index.

        Raises:
            TypeError: a metric gave no tensor, or the model or a metric was called wrongly.
            RuntimeError: the device is broken, as after most CUDA errors.
        """
        on_gpu = self._device.type == "cuda"
        submit = self._submit_cuda if on_gpu else self._submit_cpu
        # On a CPU each batch lands at once: a process that is killed later must not lose it.
        flight = Flight[Loaded, Values](submit, BATCHES_IN_FLIGHT if on_gpu else 0)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="syncfree-load")
        try:
            for batch in self._batches(self._loaded(items, data, pool)):
                if isinstance(batch, tuple):
                    yield batch
                    continue
                if batch is None:
                    for landed in flight.land_all(but=1):
                        yield from self._results(landed)
                    continue
                for done in flight.send(batch):
                    yield from self._results(done)
            for landed in flight.land_all():
                yield from self._results(landed)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C nobody wants the others

    def _loaded(
        self, items: Iterable[int | None], data: Any, pool: ThreadPoolExecutor
    ) -> Iterator[Loaded | Result | None]:
        source = iter(items)
        waiting: deque[tuple[int, Future[Loaded]]] = deque()
        is_over = is_paused = False
        while True:
            while len(waiting) < self._workers * _AHEAD_PER_WORKER and not (is_over or is_paused):
                item = next(source, _NO_MORE)
                is_over, is_paused = item == _NO_MORE, item is None
                if item is not None and not is_over:
                    waiting.append((item, pool.submit(self._load, item, data)))
            if waiting:
                item, future = waiting.popleft()
                try:
                    yield future.result()
                except Exception as error:  # the data set's own; it costs one item
                    yield item, error
            elif is_paused:
                is_paused = False
                yield None
            else:
                return

    def _load(self, item: int, data: Any) -> Loaded:
        source, target = tensors_of(data[item])
        if self._device.type == "cuda":
            source, target = _pinned("input", source), _pinned("target", target)
        return Loaded(item, source, target)

    def _batches(
        self, loaded: Iterable[Loaded | Result | None]
    ) -> Iterator[list[Loaded] | Result | None]:
        groups: dict[tuple[Any, ...], list[Loaded]] = {}
        waiting = 0
        for each in loaded:
            if each is None:
                yield from groups.values()
                groups, waiting = {}, 0
            if each is None or isinstance(each, tuple):
                yield each
                continue
            group = groups.setdefault(each.layout, [])
            group.append(each)
            waiting += 1
            most = self._most_together(each)
            full = len(group) >= most
            if full or waiting >= _WAITING_BATCHES * most:
                layout = each.layout if full else max(groups, key=lambda key: len(groups[key]))
                batch = groups.pop(layout)
                waiting -= len(batch)
                yield batch
        yield from groups.values()

    def _most_together(self, item: Loaded) -> int:
        if self._batch is not None:
            return self._batch
        if self._device.type != "cuda":
            return _CPU_TOGETHER
        if self._bytes_per_element is None:
            return 1  # its memory tells how large batches may be
        if item.layout not in self._together:
            free = free_bytes(self._device) or 0
            each = max(1.0, self._bytes_per_element * item.input.numel())
            # One more than those in flight is being submitted; half of the memory is for others.
            most = free / (2 * (BATCHES_IN_FLIGHT + 1) * each)
            self._together[item.layout] = int(min(_MOST_TOGETHER, max(1.0, most)))
        return self._together[item.layout]

    def _submit_cpu(self, items: Sequence[Loaded]) -> Values:
        with self.busy.on_host():
            inputs = torch.stack([each.input for each in items])
            targets = torch.stack([each.target for each in items])
            return Values(items, self._measure(inputs, targets))

    def _submit_cuda(self, items: Sequence[Loaded]) -> Values:
        device = self._device
        measures_memory = self._batch is None and self._bytes_per_element is None
        if measures_memory:
            # Only a peak tells what the batch took beside what is left of it, and torch keeps one.
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        with torch.cuda.device(device):
            with torch.cuda.stream(self._upload):
                upload = Span(self._upload)
                inputs = _uploaded([each.input for each in items], device)
                targets = _uploaded([each.target for each in items], device)
                upload.close()
            self._compute.wait_stream(self._upload)
            with torch.cuda.stream(self._compute):
                compute = Span(self._compute)
                # The allocator must not hand this memory to the next upload while it is read here.
                inputs.record_stream(self._compute)
                targets.record_stream(self._compute)
                values = self._measure(inputs, targets)
                host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
                host.copy_(values, non_blocking=True)
                compute.close()
        if measures_memory:
            peak = torch.cuda.max_memory_allocated(device) - before
            self._bytes_per_element = max(1.0, peak / max(1, inputs.numel()))

        def landed() -> None:
            compute.end.synchronize()
            self._clock.add(upload, transfer=True)
            self._clock.add(compute)

        return Values(items, host, landed)

    def _measure(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.inference_mode():
            outputs = self._model(inputs)
            found = [metric(outputs, targets) for metric in self._metrics.values()]
        for name, values in zip(self._metrics, found, strict=True):
            if not isinstance(values, Tensor):
                raise TypeError(
                    f"metric {name!r} gave {type(values).__name__}; it must give a tensor with "
                    f"one value for each item, as {_AS_SOME_DO}"
                )
            if values.shape != inputs.shape[:1]:
                raise ValueError(
                    f"metric {name!r} gave shape {tuple(values.shape)} for {len(inputs)} items; "
                    f"it must give one value for each, as {_AS_SOME_DO}"
                )
        # Float64 holds every value of a narrower type, so nothing is lost on the way.
        return torch.stack([values.to(torch.float64) for values in found])

    def _results(self, done: Values | tuple[Sequence[Loaded], Exception]) -> Iterator[Result]:
        if isinstance(done, Values):
            for loaded, values in zip(done.items, done.values.T.tolist(), strict=True):
                yield loaded.item, values
            return
        items, error = done
        # A wrong call fails with every item, a broken device with whatever comes next.
        if isinstance(error, TypeError) or "CUDA error" in str(error):
            raise error
        for loaded in items:
            yield loaded.item, error


def _pinned(what: str, tensor: Tensor) -> Tensor:
    if tensor.device.type != "cpu":
        raise TypeError(
            f"the {what} of an item is on the CPU, from where it is copied while the GPU computes, "
            f"but got one on {tensor.device}; load it without .to(device), or call .cpu() there"
        )
    return tensor.pin_memory()


def _uploaded(samples: Sequence[Tensor], device: torch.device) -> Tensor:
    first = samples[0]
    batch = torch.empty((len(samples), *first.shape), dtype=first.dtype, device=device)
    # One call, since after each call the host queues for the GIL behind all loading threads.
    torch._foreach_copy_(batch.unbind(), list(samples), non_blocking=True)
    return batch
