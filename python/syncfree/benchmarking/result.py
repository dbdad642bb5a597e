"""The result of a benchmark: figures, how sure they are, and what bounds the function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from syncfree._types_of_extras import Table
from syncfree.benchmarking.backend import L2
from syncfree.benchmarking.engine import Run
from syncfree.benchmarking.rules import Mode, interval_of
from syncfree.benchmarking.verdict import Verdict, judge
from syncfree.errors import MissingExtraError
from syncfree.timing.nvml import reasons_in_words
from syncfree.timing.statistics import mad, median, median_of_known, quantile


@dataclass(frozen=True)
class Result:
    """Figures of one function. Times are microseconds.

    Attributes:
        name: The function's name, or its key among contenders.
        kind: ``"cuda"``: times between events on the GPU. ``"cpu"``: times of the CPU's clock.
        device: The device in words.
        mode: ``"steady"``, ``"burst"`` or ``"idle_gap"``.
        gated: Whether the host's launch time was hidden behind a gate.
        not_gateable: Why it was not, although a gate was requested.
        l2: ``"flush"`` or ``"keep"``: what happened to a GPU's L2 cache before each call.
        graph: Whether a CUDA graph of the call was replayed.
        device_us: Median time of a call.
        interval_us: 95 % interval of that median; None below six samples.
        mad_us: Median absolute deviation.
        host_us: Median time until a single call, made when the GPU was drained, returned to the
            host. In a loop a call costs a fraction of it: see ``loop_host_us``.
        plain_us: Median without the gate, if the call was gated and the mode is not ``"idle_gap"``.
        loop_us: Median time per call of calls back to back, until all of them are done; None on the
            CPU, in other modes than ``"steady"``, with ``setup``, and if there was no time.
        loop_host_us: Median time until such a call returned to the host, without the time of
            ``setup``; None on the CPU, in other modes than ``"steady"``, and if there was no time.
        no_loop: Why ``loop_us`` is None; empty if it is not.
        samples_us: All times that count, in order.
        discards: How many samples do not count, by reason.
        megahertz: Median clock of the GPU's multiprocessors; None if it is unknown.
        watts: Median power draw; None if it is unknown.
        celsius: Median temperature; None if it is unknown.
        throttle: Why the GPU held its clock down meanwhile.
        extra_bytes: Peak memory of one call beyond what was in use; None on the CPU, and if the
            time limit left no time for it.
        memory_share: Share of the read bandwidth measured on this device; None without ``bytes``.
        compute_share: Share of the arithmetic rate measured on it; None without ``flops``.
        first_calls_s: Seconds of the first calls, with loading and compilation.
        stopped: ``"precision"`` or ``"time limit"``.
        notes: What a reader must know.
    """

    name: str
    kind: Literal["cuda", "cpu"]
    device: str
    mode: Mode
    gated: bool
    not_gateable: str
    l2: L2
    graph: bool
    device_us: float
    interval_us: tuple[float, float] | None
    mad_us: float
    host_us: float
    plain_us: float | None
    loop_us: float | None
    loop_host_us: float | None
    no_loop: str
    samples_us: tuple[float, ...]
    discards: dict[str, int]
    megahertz: float | None
    watts: float | None
    celsius: float | None
    throttle: tuple[str, ...]
    extra_bytes: int | None
    memory_share: float | None
    compute_share: float | None
    first_calls_s: float
    stopped: Literal["precision", "time limit"]
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many samples count."""
        return len(self.samples_us)

    @property
    def steady_host_us(self) -> float:
        """Host time of a call back to back, or of a single call if there are no loops."""
        return self.host_us if self.loop_host_us is None else self.loop_host_us

    @property
    def half_width(self) -> float | None:
        """Half-width of the median's interval as a share of the median; None if it is unknown."""
        if self.interval_us is None:
            return None
        low, high = self.interval_us
        width = max(high - self.device_us, self.device_us - low)
        return _ratio(width, self.device_us) if width else 0.0

    @cached_property
    def verdict(self) -> Verdict:
        """What bounds the function."""
        # Both times are of a loop, or both of single calls: they could not be compared otherwise.
        looped = self.loop_us is not None
        return judge(
            kind=self.kind,
            device_us=self.device_us,
            host_us=self.steady_host_us if looped else self.host_us,
            plain_us=self.loop_us if looped else self.plain_us,
            not_gateable=self.not_gateable,
            memory_share=self.memory_share,
            compute_share=self.compute_share,
        )

    def json(self) -> dict[str, Any]:
        """Every attribute, quantiles and the verdict, as plain values."""
        p10, p90 = (quantile(self.samples_us, q) for q in (0.1, 0.9))
        return {
            **asdict(self),
            "interval_us": None if self.interval_us is None else list(self.interval_us),
            "samples_us": list(self.samples_us),
            "throttle": list(self.throttle),
            "notes": list(self.notes),
            "n": self.n,
            "min_us": min(self.samples_us),
            "p10_us": p10,
            "p90_us": p90,
            "verdict": {"kind": self.verdict.kind, "text": self.verdict.text},
        }

    def table(self) -> Table:
        """The figures as a table for ``rich.print``.

        Raises:
            MissingExtraError: rich is not installed; ``str(result)`` needs nothing.
        """
        return Comparison({self.name: self}).table()

    def plot(self, file: str | Path) -> None:
        """Draws the samples in their order and their distribution.

        Args:
            file: The file to write; its suffix (``.png``, ``.svg``) decides the format.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        Comparison({self.name: self}).plot(file)

    def __str__(self) -> str:
        from syncfree.benchmarking.text import as_text

        return as_text(self)


class Comparison(Mapping[str, Result]):
    """Figures of functions that were measured in turn, in one run.

    A mapping from name to :class:`Result`.

    Example:
        >>> import syncfree
        >>> both = syncfree.benchmark(  # doctest: +SKIP
        ...     {"ours": lambda: ours(x), "theirs": lambda: theirs(x)}
        ... )
        >>> both["theirs"].device_us / both["ours"].device_us  # doctest: +SKIP
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, name: str) -> Result:
        if name not in self._results:
            known = ", ".join(map(repr, self._results))
            raise KeyError(f"no contender {name!r}; there are: {known}")
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @property
    def fastest(self) -> Result:
        """The result with the lowest median."""
        return min(self._results.values(), key=lambda each: each.device_us)

    def json(self) -> dict[str, Any]:
        """The results' JSON by name."""
        return {name: each.json() for name, each in self._results.items()}

    def table(self) -> Table:
        """The figures as a table for ``rich.print``.

        Raises:
            MissingExtraError: rich is not installed; ``str(comparison)`` needs nothing.
        """
        try:
            from syncfree.benchmarking.table import as_table
        except ImportError:
            raise MissingExtraError("The table of a benchmark", "cli") from None
        return as_table(self)

    def plot(self, file: str | Path) -> None:
        """Draws the samples in their order and their distributions.

        Args:
            file: The file to write; its suffix (``.png``, ``.svg``) decides the format.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from syncfree.benchmarking.plot import plot_samples

        plot_samples(self, Path(file))

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._results.values()))


def result_of(
    run: Run,
    *,
    name: str,
    kind: Literal["cuda", "cpu"],
    device: str,
    mode: Mode,
    l2: L2,
    graph: bool,
    notes: tuple[str, ...] = (),
    memory_share_of_us: float | None = None,
    compute_share_of_us: float | None = None,
) -> Result:
    """The figures of a run.

    Args:
        run: The measurements.
        name: The contender's name.
        kind: The kind of device.
        device: The device in words.
        mode: How it was measured.
        l2: Whether the cache was flushed.
        graph: Whether a graph was replayed.
        notes: Notes that concern all contenders.
        memory_share_of_us: Microseconds that the call's bytes take at the measured peak.
        compute_share_of_us: Microseconds that the call's operations take at the measured peak.
    """
    kept = run.sifted.kept
    times = tuple(each.us for each in kept)
    middle = median(times)
    readings = [each.reading for each in kept if each.reading is not None]
    bits = 0
    for reading in readings:
        bits |= reading.reasons
    return Result(
        name=name,
        kind=kind,
        device=device,
        mode=mode,
        gated=run.gated,
        not_gateable="" if kind == "cpu" else run.not_gateable,
        l2=l2,
        graph=graph,
        device_us=middle,
        interval_us=interval_of(times),
        mad_us=mad(times),
        host_us=median([each.host_us for each in kept]),
        plain_us=median_of_known(each.us for each in run.plain),
        loop_us=median_of_known(each.us for each in run.loops),
        loop_host_us=median_of_known(each.host_us for each in run.loops),
        no_loop=run.no_loop,
        samples_us=times,
        discards=dict(run.sifted.discards),
        megahertz=median_of_known(each.megahertz for each in kept)
        or median_of_known(each.megahertz for each in readings),
        watts=median_of_known(each.watts for each in readings),
        celsius=median_of_known(each.celsius for each in readings),
        throttle=tuple(reasons_in_words(bits)),
        extra_bytes=run.extra_bytes,
        memory_share=None if memory_share_of_us is None else _ratio(memory_share_of_us, middle),
        compute_share=None if compute_share_of_us is None else _ratio(compute_share_of_us, middle),
        first_calls_s=run.first_call_s,
        stopped="precision" if run.stopped == "precision" else "time limit",
        notes=(*run.notes, *run.sifted.notes, *notes),
    )


def _ratio(part: float, whole: float) -> float | None:
    """The ratio; None for a call that did nothing between the events."""
    return part / whole if whole else None
