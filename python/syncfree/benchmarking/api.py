"""`benchmark`: the public function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import torch

from syncfree.benchmarking.arguments import (
    name_of,
    require_positive,
    require_share,
    require_whole_call,
)
from syncfree.benchmarking.backend import L2, Backend, Work
from syncfree.benchmarking.devices import backend_of, current, device_of, uuid_of
from syncfree.benchmarking.engine import GAP_OF_MODE, Plan, run
from syncfree.benchmarking.peaks import arithmetic_rate, read_bandwidth
from syncfree.benchmarking.result import Comparison, Result, result_of
from syncfree.benchmarking.rules import Mode
from syncfree.timing.nvml import Monitor
from syncfree.timing.verdicts import duration

EMPTY = 1.2  # a time of at most this many empty calls means that no GPU work was seen
CLOCK_SHARE = 0.05  # the share of a time on the CPU that reading the clock may take


@overload
def benchmark(
    fn: Callable[..., Any],
    *args: Any,
    mode: Mode = ...,
    gate: bool = ...,
    l2: L2 = ...,
    graph: bool = ...,
    bytes: float | None = ...,
    flops: float | None = ...,
    flops_dtype: torch.dtype = ...,
    setup: Callable[[], Any] | None = ...,
    streams: Sequence[Any] = ...,
    device: str | torch.device | None = ...,
    gap: float | None = ...,
    precision: float = ...,
    max_seconds: float = ...,
) -> Result: ...


@overload
def benchmark(
    fn: Mapping[str, Callable[..., Any]],
    *args: Any,
    mode: Mode = ...,
    gate: bool = ...,
    l2: L2 = ...,
    graph: bool = ...,
    bytes: float | None = ...,
    flops: float | None = ...,
    flops_dtype: torch.dtype = ...,
    setup: Callable[[], Any] | None = ...,
    streams: Sequence[Any] = ...,
    device: str | torch.device | None = ...,
    gap: float | None = ...,
    precision: float = ...,
    max_seconds: float = ...,
) -> Comparison: ...


def benchmark(
    fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    *args: Any,
    mode: Mode = "steady",
    gate: bool = True,
    l2: L2 = "flush",
    graph: bool = False,
    bytes: float | None = None,
    flops: float | None = None,
    flops_dtype: torch.dtype = torch.float32,
    setup: Callable[[], Any] | None = None,
    streams: Sequence[Any] = (),
    device: str | torch.device | None = None,
    gap: float | None = None,
    precision: float = 0.01,
    max_seconds: float = 10.0,
) -> Result | Comparison:
    """Measures what a call costs: GPU time by events, host time, memory, and what bounds it.

    Calls are repeated until neither time nor clock drifts any more, and then until the 95 %
    interval of the median is within ``precision`` of it. On a GPU each call is enqueued behind a
    gate, a bounded spin that hides how long the host takes to launch. A function that waits for the
    GPU cannot be measured this way; the result says so and names the line. On a CPU the clock is
    the host's, and the statistics are the same. docs/benchmark.md explains how to read the result.

    Args:
        fn: The function, or a mapping from names to functions, which are measured in turn in one
            run.
        *args: The positional arguments of each call. For keyword arguments, pass a lambda or a
            ``functools.partial``.
        mode: ``"steady"``: one call after another. ``"burst"``: a pause of ``gap`` before every
            eight calls, so that power limits of sustained work do not count. ``"idle_gap"``: a
            pause before each call, so that each is the first call after a pause.
        gate: Whether to hide the host's launch time. False measures the function as a program would
            call it, launch gaps included.
        l2: ``"flush"`` reads other data through the GPU's L2 cache before each call, ``"keep"``
            leaves the cache as the previous call left it. No effect on a CPU.
        graph: Capture the call into a CUDA graph and measure its replay.
        bytes: Bytes that a call must read and write, to report its share of the read bandwidth,
            which is measured on this device once per process.
        flops: Arithmetic operations of a call, to report its share of the rate of a large matrix
            product of ``flops_dtype``, which is measured likewise.
        flops_dtype: The dtype of that matrix product.
        setup: Called before each call, untimed. It returns None, or the tuple of the call's
            arguments; then ``args`` must be empty.
        streams: torch streams that the function uses besides the current one, without making them
            wait for it: the gate holds them too, and their work is part of the time.
        device: ``"cpu"`` or a CUDA device. The default is the device of the tensors in ``args``;
            without tensors, the current GPU if there is one. Functions that close over CPU tensors
            need ``device="cpu"`` on a machine with a GPU.
        gap: The pause of the other two modes in seconds; default 0.05 for ``"burst"``, 1 for
            ``"idle_gap"``.
        precision: Half-width of the median's interval at which to stop, as a share of the median.
        max_seconds: Longest time for the samples of each contender; the result says if it ended
            them. The warm-up before them may take half as much. Calls without the gate and loops
            follow, which take little, unless calls are slow: then as much again for the former and
            for the latter. While the host runs slowly, loops go on for up to half as much. A call
            that has begun is not interrupted: after the first call at least two more are made,
            however slow they are, one to see how long a call takes and one that counts.

    Returns:
        The figures: one :class:`~syncfree.benchmarking.Result`, or a
        :class:`~syncfree.benchmarking.Comparison`, a mapping from name to result.

    Raises:
        TypeError: ``fn`` is not callable, or a call does not run its code, as with a coroutine or
            generator function; ``setup`` returns neither None nor a tuple; an argument that must be
            a number is not one.
        ValueError: An argument is out of range, or contradicts another.
        BenchmarkError: A GPU was requested and there is none, or the call cannot be captured.

    Example:
        >>> import torch
        >>> import syncfree
        >>> x = torch.rand(1000)
        >>> result = syncfree.benchmark(torch.sum, x, max_seconds=0.2)
        >>> result.kind, result.device_us > 0
        ('cpu', True)
    """
    contenders = _contenders(fn)
    plan = _plan(mode, gate, gap, precision, max_seconds)
    if l2 not in ("flush", "keep"):
        raise ValueError(f"l2 is 'flush' or 'keep', but got {l2!r}")
    for what, value in (("bytes", bytes), ("flops", flops)):
        if value is not None:
            require_positive(what, value)
    place = device_of(device, args)
    works = {
        name: Work(each, args, setup, l2, graph, tuple(streams))
        for name, each in contenders.items()
    }
    with current(place):
        backend = backend_of(place)
        found = measure(
            works, plan, backend, place, bytes=bytes, flops=flops, flops_dtype=flops_dtype
        )
    return found if isinstance(fn, Mapping) else next(iter(found.values()))


def measure(
    works: Mapping[str, Work],
    plan: Plan,
    backend: Backend,
    device: torch.device,
    *,
    bytes: float | None = None,
    flops: float | None = None,
    flops_dtype: torch.dtype = torch.float32,
) -> Comparison:
    """As `benchmark`, with checked arguments and on the current device."""
    memory_us = compute_us = None
    if bytes is not None:
        memory_us = bytes / read_bandwidth(device) * 1e6
    if flops is not None:
        compute_us = flops / arithmetic_rate(device, flops_dtype) * 1e6
    probes = {name: backend.probe(work) for name, work in works.items()}
    with Monitor(uuid_of(device)) as monitor:
        runs = run(probes, plan, backend.clock, monitor.latest, backend.host)
    results = {
        name: result_of(
            each,
            name=name,
            kind=backend.kind,
            device=backend.describe(),
            mode=plan.mode,
            l2=works[name].l2,
            graph=works[name].graph,
            notes=(monitor.note,) if monitor.note else (),
            memory_share_of_us=memory_us,
            compute_share_of_us=compute_us,
        )
        for name, each in runs.items()
    }
    return Comparison(
        {name: _warned(each, backend, works[name].setup) for name, each in results.items()}
    )


def _warned(result: Result, backend: Backend, setup: object) -> Result:
    """Adds a note if all or much of the time is that of the measurement itself."""
    note = ""
    if result.gated:
        # For example, a function that closes over CPU tensors.
        empty_us = backend.empty_us()
        if result.device_us <= EMPTY * empty_us:
            note = (
                f"no GPU work was seen: the events are {duration(result.device_us)} apart, and "
                f"{duration(empty_us)} with nothing between them. A function of the CPU needs "
                "device='cpu', one that works on other streams streams=[...]"
            )
    elif result.kind == "cpu" and (setup is not None or result.mode == "idle_gap"):
        empty_us = backend.empty_us()
        if empty_us > CLOCK_SHARE * result.device_us:
            note = (
                "each sample is of a single call between two readings of the clock, which take "
                f"{duration(empty_us)} around a call that does nothing: more than "
                f"{CLOCK_SHARE:.0%} of the time"
            )
    return replace(result, notes=(*result.notes, note)) if note else result


def _contenders(
    fn: Callable[..., Any] | Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    if isinstance(fn, Mapping):
        contenders = dict(fn)
        if not contenders:
            raise ValueError("fn is a function or a mapping of at least one, but it is empty")
    else:
        if not callable(fn):
            raise TypeError(f"fn is a function or a mapping of functions, but got {fn!r}")
        contenders = {name_of(fn): fn}
    for name, each in contenders.items():
        if not callable(each):
            raise TypeError(
                f"fn is a function or a mapping of functions, but that of {name!r} is {each!r}"
            )
        require_whole_call(each)
        if not isinstance(name, str):
            raise TypeError(f"the names of contenders are texts, but got {name!r}")
    return contenders


def _plan(mode: Mode, gate: bool, gap: float | None, precision: float, max_seconds: float) -> Plan:
    if mode not in GAP_OF_MODE:
        raise ValueError(f"mode is one of {', '.join(map(repr, GAP_OF_MODE))}, but got {mode!r}")
    if gap is not None and mode == "steady":
        raise ValueError("gap is the pause of the modes 'burst' and 'idle_gap'; 'steady' has none")
    if gap is not None:
        require_positive("gap", gap, "seconds")
    require_share("precision", precision)
    require_positive("max_seconds", max_seconds, "seconds", endless=True)
    return Plan(mode, GAP_OF_MODE[mode] if gap is None else gap, bool(gate), precision, max_seconds)
