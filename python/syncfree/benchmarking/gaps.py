"""Why the first call after a pause is slow: a sweep over gaps, with and without a gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from syncfree._types_of_extras import Table
from syncfree.benchmarking.arguments import (
    checked_gaps,
    name_of,
    require_count,
    require_whole_call,
)
from syncfree.benchmarking.backend import Backend, Probe, Work
from syncfree.benchmarking.devices import backend_of, current, device_of, uuid_of
from syncfree.benchmarking.engine import Plan, Run, warm_up
from syncfree.benchmarking.gap_verdict import GapPoint, GapVerdict, judge_gaps
from syncfree.benchmarking.samples import Sample
from syncfree.errors import MissingExtraError
from syncfree.timing.nvml import Monitor, Reading
from syncfree.timing.statistics import mad, median, median_of_known
from syncfree.timing.verdicts import duration

GAPS = (0.0, 0.01, 0.1, 1.0, 5.0)
REPEATS = 5
# Calls before the one that counts as back to back: on an H200 the first eight calls after a pause
# were slow as well.
SETTLING_CALLS = 16
WARM_UP = Plan(max_seconds=4.0)


@dataclass(frozen=True)
class IdleGap:
    """The result of a sweep. Times are microseconds.

    Attributes:
        name: The function's name.
        kind: ``"cuda"`` or ``"cpu"``.
        device: The device in words.
        points: Figures for each gap, the shortest first.
        not_gateable: Why the call cannot be enqueued behind a gate; empty if it can.
        notes: What a reader must know.
    """

    name: str
    kind: Literal["cuda", "cpu"]
    device: str
    points: tuple[GapPoint, ...]
    not_gateable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> GapVerdict:
        """What makes the first call after a pause slow."""
        return judge_gaps(self.points, kind=self.kind, not_gateable=self.not_gateable)

    def json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {**asdict(self), "verdict": asdict(self.verdict)}

    @classmethod
    def from_json(cls, document: Any) -> IdleGap:
        """The sweep of a document that was made by `json`, or by `IdleGap::json` in C++.

        Args:
            document: Plain values, as `json.loads` returns them. The verdict in it is not read,
                because it follows from the figures.

        Raises:
            ValueError: The document is not such a sweep.

        Example:
            >>> from syncfree.benchmarking.gaps import IdleGap, idle_gap
            >>> sweep = idle_gap(sum, [1.0, 2.0], gaps=[0.001], repeats=3, device="cpu")
            >>> IdleGap.from_json(sweep.json()) == sweep
            True
        """
        try:
            kind, name, device, why_not, notes = (
                document[each] for each in ("kind", "name", "device", "not_gateable", "notes")
            )
            points = tuple(_read_point(each) for each in document["points"])
            if kind not in ("cuda", "cpu") or not points:
                raise ValueError(f"{len(points)} points of kind {kind!r}")
            return cls(str(name), kind, str(device), points, str(why_not), tuple(map(str, notes)))
        except (KeyError, TypeError, ValueError) as error:
            missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"this is no sweep over idle gaps: {missing}") from None

    def table(self) -> Table:
        """The sweep as a table for ``rich.print``.

        Raises:
            MissingExtraError: rich is not installed; ``str(sweep)`` needs nothing.
        """
        try:
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            raise MissingExtraError("The table of a sweep", "cli") from None
        title = Text(self.name, style="table.title")  # as a str it would be read as markup
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for point in self.points:
            table.add_row(*_cells(point))
        table.caption = Text("\n".join([str(self.verdict), *self._notes]), style="default")
        table.caption_justify = "left"
        return table

    def plot(self, file: str | Path) -> None:
        """Draws the times over the gap, and the clock if it is known.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from syncfree.benchmarking.gap_plot import plot_gaps

        plot_gaps(self, Path(file))

    def __str__(self) -> str:
        rows = [COLUMNS, *(_cells(point) for point in self.points)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([f"{self.name} on {self.device}", *lines, str(self.verdict), *self._notes])

    @property
    def _notes(self) -> list[str]:
        return [f"note: {each}" for each in self.notes]


COLUMNS = ("gap", "plain", "gated", "host", "MHz")


def idle_gap(
    fn: Callable[..., Any],
    *args: Any,
    gaps: Sequence[float] = GAPS,
    repeats: int = REPEATS,
    device: str | torch.device | None = None,
) -> IdleGap:
    """Times the first call after pauses, and says what makes it slow.

    Each gap is followed once by a call without a gate (plain) and once by a call behind a gate,
    which hides the host's launch time. If only the plain call is slow, the cause is the host. If
    both are slow, it is the GPU, and the clock tells whether it ramps. The L2 cache is not flushed.
    On the CPU, too, each time is that of a single call, and includes reading the clock, which
    `benchmark` spreads over many calls.

    Args:
        fn: The function.
        *args: Its arguments.
        gaps: Pauses in seconds; 0 means back to back and is added if it is missing.
        repeats: Calls of each kind after each gap; the medians are shown.
        device: As in :func:`syncfree.benchmark`.

    Returns:
        The figures and the verdict.

    Raises:
        TypeError: ``fn`` is not a function whose call does the work, ``gaps`` are not numbers, or
            ``repeats`` is not an integer.
        ValueError: A gap is negative, or ``repeats`` is below 1.

    Example:
        >>> import torch
        >>> from syncfree.benchmarking import idle_gap
        >>> x = torch.rand(1000)
        >>> sweep = idle_gap(torch.sum, x, gaps=[0.001], repeats=3)
        >>> [point.gap for point in sweep.points]
        [0.0, 0.001]
    """
    if not callable(fn):
        raise TypeError(f"fn is a function, but got {fn!r}")
    require_whole_call(fn)
    require_count("repeats", repeats)
    gaps = checked_gaps(gaps)
    place = device_of(device, args)
    with current(place), Monitor(uuid_of(place)) as monitor:
        backend = backend_of(place)
        return sweep(
            # `single`, because there is one call after a pause: the mean of many calls, without a
            # pause, would be faster for that alone.
            Work(fn, args, l2="keep", single=True),
            backend,
            gaps=gaps,
            repeats=repeats,
            name=name_of(fn),
            reading=monitor.latest,
            notes=(monitor.note,) if monitor.note else (),
        )


def sweep(
    work: Work,
    backend: Backend,
    *,
    gaps: Sequence[float],
    repeats: int,
    name: str,
    reading: Callable[[], Reading | None] = lambda: None,
    notes: tuple[str, ...] = (),
) -> IdleGap:
    """As `idle_gap`, for a given backend."""
    probe = backend.probe(work)
    probe.prepare()
    why_not = probe.why_not_gateable()
    ready = Run(probe, gated=not why_not)
    warm_up({name: ready}, WARM_UP, backend.clock, lambda each, gated: probe.sample(gated=gated))
    ordered = sorted({0.0, *map(float, gaps)})
    plain: dict[float, list[Sample]] = {gap: [] for gap in ordered}
    gated: dict[float, list[Sample]] = {gap: [] for gap in ordered}
    clocks: dict[float, list[float]] = {gap: [] for gap in ordered}
    for turn in range(repeats):
        # The gaps take turns, so that a drift of the machine does not look like an effect of one.
        for gap in ordered[turn % len(ordered) :] + ordered[: turn % len(ordered)]:
            plain[gap].append(_first_call(probe, gap, gated=False))
            if not why_not:
                gated[gap].append(_first_call(probe, gap, gated=True))
            newest = reading()
            mhz = gated[gap][-1].megahertz if gated[gap] else None
            if mhz is None and newest is not None:
                mhz = newest.megahertz
            if mhz is not None:
                clocks[gap].append(mhz)
    return IdleGap(
        name=name,
        kind=backend.kind,
        device=backend.describe(),
        points=tuple(_point(gap, plain[gap], gated[gap], clocks[gap]) for gap in ordered),
        not_gateable="" if backend.kind == "cpu" else why_not,
        notes=(*ready.notes, *notes),
    )


def _first_call(probe: Probe, gap: float, *, gated: bool) -> Sample:
    if gap == 0:
        for _ in range(SETTLING_CALLS):
            probe.sample(gated=gated)
    return probe.sample(gated=gated, pause=gap)


def _point(
    gap: float, plain: Sequence[Sample], gated: Sequence[Sample], clocks: Sequence[float]
) -> GapPoint:
    good = [each.us for each in gated if not each.problem]
    return GapPoint(
        gap=gap,
        plain_us=median([each.us for each in plain]),
        plain_mad_us=mad([each.us for each in plain]),
        host_us=median([each.host_us for each in plain]),
        gated_us=median_of_known(good),
        megahertz=median_of_known(clocks),
        device_allocations=median([float(each.device_allocations) for each in plain]),
        n=len(plain),
    )


def _read_point(values: Mapping[str, Any]) -> GapPoint:
    known = {name: values[name] for name in GapPoint.__dataclass_fields__}
    for name in ("gap", "plain_us", "plain_mad_us", "host_us"):
        known[name] = float(known[name])
    for name in ("gated_us", "megahertz", "device_allocations"):
        known[name] = None if known[name] is None else float(known[name])
    for name, value in known.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    return GapPoint(**{**known, "n": int(known["n"])})


def _cells(point: GapPoint) -> tuple[str, ...]:
    return (
        "back to back" if point.gap == 0 else f"{point.gap:g} s",
        duration(point.plain_us),
        "-" if point.gated_us is None else duration(point.gated_us),
        duration(point.host_us),
        "-" if point.megahertz is None else f"{point.megahertz:.0f}",
    )
