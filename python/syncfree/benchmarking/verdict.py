"""What bounds a function, in words, decided from its figures. Uses no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncfree.timing.verdicts import LAUNCH_BOUND, duration

CONFIRMED = 1.2  # plain time over gated time
NEAR_PEAK = 0.6
_MORE_THAN_MEMORY_GIVES = 1.1  # more than noise

Kind = Literal["waits", "launch-bound", "memory-bound", "compute-bound", "gpu-bound", "cpu"]


@dataclass(frozen=True)
class Verdict:
    """What bounds a function.

    Args:
        kind: The bound in one word.
        text: An explanation with figures, and what to do.
    """

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def judge(
    *,
    kind: Literal["cuda", "cpu"],
    device_us: float,
    host_us: float,
    plain_us: float | None = None,
    not_gateable: str = "",
    memory_share: float | None = None,
    compute_share: float | None = None,
) -> Verdict:
    """What bounds a function.

    Args:
        kind: The kind of device.
        device_us: Median time between the events.
        host_us: Median of the host's time for the call.
        plain_us: Median time of the call without a gate, alone or in a loop; None if unknown.
        not_gateable: Why the call cannot be enqueued behind a gate.
        memory_share: Share of the measured read bandwidth.
        compute_share: Share of the measured arithmetic rate.

    Example:
        >>> from syncfree.benchmarking.verdict import judge
        >>> judge(kind="cuda", device_us=90, host_us=520, plain_us=550).kind
        'launch-bound'
    """
    shares = _shares(memory_share, compute_share)
    if kind == "cpu":
        return Verdict("cpu", f"{duration(device_us)} a call on the CPU's clock{shares}")
    if not_gateable.startswith("waits"):
        return Verdict(
            "waits", f"not gateable: {not_gateable}; the time between the events holds the wait"
        )
    launch = _launch_bound(device_us, host_us, plain_us)
    if launch:
        return Verdict("launch-bound", launch)
    if memory_share is not None and memory_share >= max(NEAR_PEAK, compute_share or 0):
        return Verdict("memory-bound", _of_bandwidth(memory_share))
    if compute_share is not None and compute_share >= NEAR_PEAK:
        return Verdict("compute-bound", f"{compute_share:.0%} of the arithmetic rate measured here")
    return Verdict("gpu-bound", f"{duration(device_us)} of GPU work a call{shares}")


def _launch_bound(device_us: float, host_us: float, plain_us: float | None) -> str:
    """Why a call is bound by the host's launches; empty if it is not."""
    if host_us <= LAUNCH_BOUND * device_us:
        return ""
    if plain_us is None:
        return (
            f"the host takes {duration(host_us)} to enqueue the call, and the events are "
            f"{duration(device_us)} apart; without a gate that is not confirmed"
        )
    if plain_us <= CONFIRMED * device_us:
        return ""
    return (
        f"the host takes {duration(host_us)} to enqueue {duration(device_us)} of GPU work, so a "
        f"call takes {duration(plain_us)}: capture a graph (graph=True) or fuse"
    )


def _of_bandwidth(share: float) -> str:
    if share > _MORE_THAN_MEMORY_GIVES:
        return (
            "more than the read bandwidth measured here (other work slowed that measurement down, "
            "or not all of the call's bytes went through memory)"
        )
    return f"{share:.0%} of the read bandwidth measured here"


def _shares(memory: float | None, compute: float | None) -> str:
    parts = []
    if memory is not None:
        parts.append(_of_bandwidth(memory))
    if compute is not None:
        parts.append(f"{compute:.0%} of the arithmetic rate measured here")
    return f", {' and '.join(parts)}" if parts else ""
