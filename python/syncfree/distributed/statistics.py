"""What each rank did with its time, how well work was spread, and which ranks were stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

STRAGGLER = 0.75
"""A rank slower than this part of the fastest one is a straggler, as in NVIDIA's NVRx."""

_JUDGED_SECONDS = 1.0  # of work; a speed over less time says nothing


@dataclass(frozen=True)
class RankReport:
    """What one rank reports of itself.

    Args:
        rank: its number.
        device: such as `cuda:0` or `cpu`.
        device_name: of the hardware.
        host: name of its machine.
        items: number done.
        cost: of these, in the unit that was given for the items.
        active_seconds: from its first claim to its last result, summed over rounds.
        busy_seconds: in which its device worked, by CUDA events or the CPU's clock.
        transfer_seconds: of the busy ones, in which something was copied to the device.
        clock_mhz: median clock of the GPU while it worked; `None` where it cannot be read.
        throttled: reasons for which the driver held the clock down meanwhile.
    """

    rank: int
    device: str
    device_name: str
    host: str
    items: int = 0
    cost: float = 0.0
    active_seconds: float = 0.0
    busy_seconds: float = 0.0
    transfer_seconds: float = 0.0
    clock_mhz: float | None = None
    throttled: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> RankReport:
        """From the fields as JSON has them."""
        return cls(**{**document, "throttled": tuple(document["throttled"])})


@dataclass(frozen=True)
class RankStatistics:
    """One rank among the others.

    Args:
        report: of the rank itself.
        idle_share: part of the whole run in which its device did nothing.
        transfer_share: part of its busy time with copies.
        speed: cost per active second over that of the fastest rank, not counting those that were
            lost in their first second of work; `None` if it did nothing.
        reason: why it is a straggler: `throttle`, `clock`, `device` (its device takes longer for
            the same) or `input` (its device waits for data); `None` if it is none.
        lost: what became of it, if it died or was given up.
    """

    report: RankReport
    idle_share: float
    transfer_share: float
    speed: float | None
    reason: str | None
    lost: str | None = None


@dataclass(frozen=True)
class FleetStatistics:
    """All ranks together.

    Args:
        schedule: how the work was handed out.
        seconds: of the work, from the first item handed out to the last result.
        startup_seconds: before that, until all ranks were ready.
        ranks: each one.
        reissued: number of items handed out again, after a rank was lost.
        imbalance: largest over mean active time, minus 1: 0 if all ended together.
        efficiency: mean over largest active time: 1 if all ended together.
        restored: number of items taken from journals.
    """

    schedule: str
    seconds: float
    startup_seconds: float
    ranks: tuple[RankStatistics, ...] = field(default_factory=tuple)
    reissued: int = 0
    imbalance: float = 0.0
    efficiency: float = 1.0
    restored: int = 0

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FleetStatistics:
        """From the fields as JSON has them."""
        ranks = tuple(
            RankStatistics(**{**rank, "report": RankReport.from_json(rank["report"])})
            for rank in document["ranks"]
        )
        return cls(**{**document, "ranks": ranks})


def compare_ranks(
    reports: Sequence[RankReport],
    seconds: float,
    *,
    schedule: str,
    startup_seconds: float = 0.0,
    lost: dict[int, str] | None = None,
    reissued: int = 0,
    restored: int = 0,
) -> FleetStatistics:
    """Compare the reports of all ranks.

    Speeds are costs over active time, so that a rank that got less because it is slow is not taken
    for a fast one. No rank is called a straggler if one has worked for less than a second; one that
    was lost so early is left out of the comparison. All lost ranks are left out of imbalance and
    efficiency.

    Args:
        reports: of each rank.
        seconds: of the run.
        schedule: how the work was handed out.
        startup_seconds: until all ranks were ready.
        lost: what became of ranks that did not come to the end.
        reissued: number of items handed out again.
        restored: number of items taken from journals.

    Example:
        >>> from syncfree.distributed.statistics import RankReport, compare_ranks
        >>> reports = [
        ...     RankReport(rank, "cpu", "CPU", "host", 8, 8.0, active, busy)
        ...     for rank, (active, busy) in enumerate([(4.0, 4.0), (8.0, 8.0)])
        ... ]
        >>> found = compare_ranks(reports, 8.0, schedule="equal")
        >>> round(found.imbalance, 3), found.efficiency
        (0.333, 0.75)
        >>> found.ranks[0].idle_share, found.ranks[1].speed, found.ranks[1].reason
        (0.5, 0.5, 'device')
    """
    lost = lost or {}
    ended = [each.active_seconds for each in reports if each.rank not in lost]
    longest = max(ended, default=0.0)
    mean = sum(ended) / len(ended) if ended else 0.0
    speeds = {each.rank: _rate(each.cost, each.active_seconds) for each in reports}
    is_timed = {each.rank: each.active_seconds >= _JUDGED_SECONDS for each in reports}
    peers = [each for each in reports if is_timed[each.rank] or each.rank not in lost] or reports
    fastest = max((speed for each in peers if (speed := speeds[each.rank])), default=None)
    judged = all(is_timed[each.rank] for each in peers if each.items)
    ranks = []
    for each in reports:
        own = speeds[each.rank]
        speed = None if own is None or not fastest else own / fastest
        is_slow = judged and is_timed[each.rank] and (speed or 1) < STRAGGLER
        ranks.append(
            RankStatistics(
                report=each,
                idle_share=max(0.0, 1 - each.busy_seconds / seconds) if seconds > 0 else 0.0,
                transfer_share=_rate(each.transfer_seconds, each.busy_seconds) or 0.0,
                speed=speed,
                reason=_reason(each, peers) if is_slow else None,
                lost=lost.get(each.rank),
            )
        )
    return FleetStatistics(
        schedule=schedule,
        seconds=seconds,
        startup_seconds=startup_seconds,
        ranks=tuple(ranks),
        reissued=reissued,
        imbalance=longest / mean - 1 if mean else 0.0,
        efficiency=mean / longest if longest else 1.0,
        restored=restored,
    )


def _reason(slow: RankReport, peers: Sequence[RankReport]) -> str:
    rates = [_rate(each.cost, each.busy_seconds) or 0.0 for each in peers]
    own = _rate(slow.cost, slow.busy_seconds)
    if own is not None and own >= STRAGGLER * max(rates):
        return "input"
    if slow.throttled:
        return "throttle"
    clocks = [each.clock_mhz for each in peers if each.clock_mhz is not None]
    # 10 % is the step that distinguishes a clock ramp from noise elsewhere as well.
    if slow.clock_mhz is not None and slow.clock_mhz < 0.9 * max(clocks):
        return "clock"
    return "device"


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if amount > 0 and seconds > 0 else None
