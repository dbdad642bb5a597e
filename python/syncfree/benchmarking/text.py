"""A result in a few lines of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncfree.timing.verdicts import duration

if TYPE_CHECKING:
    from syncfree.benchmarking.result import Result

IN_A_LOOP = (
    "the host's time per call when calls follow one another without a pause: what a loop pays for "
    "each"
)
SINGLE = (
    "until a single call returned, before which the GPU was drained and, unless kept, its L2 cache "
    "flushed; several times as much, as the host's caches and clocks forget too"
)


def as_text(result: Result) -> str:
    """The figures of one function, how they were taken, and what bounds it."""
    head = f"{result.name}: {duration(result.device_us)} ({precision_text(result)})"
    return "\n  ".join([head, *_lines(result)])


def precision_text(result: Result) -> str:
    """How sure the median is."""
    if result.half_width is None:
        return f"n = {result.n}, too few for an interval, MAD {duration(result.mad_us)}"
    return f"+-{result.half_width:.2%}, n = {result.n}, MAD {duration(result.mad_us)}"


def manner_text(result: Result) -> str:
    """How it was measured: by which clock, with or without a gate."""
    if result.kind == "cpu":
        return "CPU clock"
    gate = "behind a gate" if result.gated else "without a gate"
    graph = ", CUDA graph" if result.graph else ""
    cache = "flushed" if result.l2 == "flush" else "kept"
    return f"GPU events {gate}, L2 {cache}{graph}"


def surroundings_text(result: Result) -> str:
    """Clock, power, temperature and throttle reasons, as far as they are known."""
    parts = [
        f"{value:.0f} {unit}"
        for value, unit in (
            (result.megahertz, "MHz"),
            (result.watts, "W"),
            (result.celsius, "C"),
        )
        if value is not None
    ]
    if result.throttle:
        parts.append(f"held down by {', '.join(result.throttle)}")
    return ", ".join(parts)


def host_text(result: Result) -> str:
    """The host time of a call back to back, if it is known, and of a single call."""
    single = duration(result.host_us)
    if result.kind == "cpu":
        return single
    if result.loop_host_us is None:
        return f"{single} a single call"
    whole = "" if result.loop_us is None else f" of {duration(result.loop_us)}"
    return f"{duration(result.loop_host_us)}{whole} back to back, {single} a single call"


def _lines(result: Result) -> list[str]:
    lines = [
        f"{manner_text(result)}, mode {result.mode}, on {result.device}; host {host_text(result)}"
    ]
    if result.plain_us is not None:
        lines[0] += f", without the gate {duration(result.plain_us)}"
    if result.extra_bytes is not None:
        lines[0] += f", memory {result.extra_bytes / 2**20:.3g} MiB"
    surroundings = surroundings_text(result)
    if surroundings:
        lines.append(surroundings)
    lines.append(str(result.verdict))
    if result.not_gateable and result.verdict.kind != "waits":
        lines.append(f"not gateable: {result.not_gateable}")
    if result.no_loop and result.kind == "cuda":
        lines.append(f"no GPU time back to back: {result.no_loop}")
    lines += [f"discarded: {count}, {reason}" for reason, count in result.discards.items()]
    if result.stopped == "time limit":
        lines.append("stopped by the time limit, before the precision asked for")
    return [*lines, *(f"note: {each}" for each in result.notes)]
