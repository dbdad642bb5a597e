"""Samples as a trace that chrome://tracing and Perfetto show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncfree.timing.samples import Sample

_HOST = 1_000_000
"""The process id of the host's rows; devices have their index."""

_EVENT_US = 0.5
"""The resolution of events: a nested region may seem to end this much after its parent."""

_ROUNDING_US = 0.002
"""Perfetto truncates start and duration to whole nanoseconds."""

_SHOWN_APART = frozenset({"name", "kind", "gpu_start_us", "gpu_us", "host_start_us"})


def chrome_trace(samples: Sequence[Sample], path: str | Path | None = None) -> dict[str, Any]:
    """The Trace Event Format: complete events of GPU streams and of host threads.

    Times are microseconds since the earliest. A region has an event on the GPU and one on the host,
    with the same ``args.sequence``. Regions that overlap on a row without being nested, such as
    those of coroutines, get rows of their own.

    Args:
        samples: The samples, in any order.
        path: A file to which the document is also written as JSON.

    Returns:
        The document.

    Example:
        >>> step = Sample("step", gpu_us=5.0, host_start_us=1.0, host_enqueue_us=2.0)
        >>> trace = chrome_trace([step])
        >>> [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
        ['step', 'step']
    """
    starts = [each.gpu_start_us for each in samples]
    starts += [each.host_start_us for each in samples if each.host_start_us is not None]
    zero = min(starts, default=0.0)
    streams = _numbers((each.device, each.stream) for each in samples if not each.host_clock)
    threads = _numbers((0, each.thread) for each in samples if each.host_start_us is not None)
    events: list[dict[str, Any]] = []
    for device in sorted({device for device, _ in streams}):
        events.append(_title("process_name", device, 0, f"GPU {device}"))
    for (device, handle), number in streams.items():
        events.append(_title("thread_name", device, number, f"stream {handle:#x}"))
    if threads:
        events.append(_title("process_name", _HOST, 0, "host"))
    for (_, thread), number in threads.items():
        events.append(_title("thread_name", _HOST, number, f"thread {thread}"))
    for each in samples:
        details = {
            key: value
            for key, value in each.as_dict().items()
            if value not in (None, []) and key not in _SHOWN_APART
        }
        if not each.host_clock:
            row = each.device, streams[each.device, each.stream]
            events.append(_span(each, each.gpu_start_us - zero, each.gpu_us, row, details))
        if each.host_start_us is not None and each.host_enqueue_us is not None:
            row = _HOST, threads[0, each.thread]
            start = each.host_start_us - zero
            events.append(_span(each, start, each.host_enqueue_us, row, details))
    document = {"traceEvents": _apart(events), "displayTimeUnit": "ms"}
    if path is not None:
        Path(path).write_text(json.dumps(document))
    return document


def _numbers(keys: Any) -> dict[tuple[int, int], int]:
    """Small row numbers for handles, which are too large for the viewers."""
    return {key: number for number, key in enumerate(sorted(set(keys)))}


def _apart(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Moves events to further rows, so that any two on a row are nested or do not overlap.

    Perfetto drops complete events that overlap in another way, even by a nanosecond.
    """
    names = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in events
        if each["ph"] == "M" and each["name"] == "thread_name"
    }
    # For each row, the rows that it is split into: their numbers and the ends of open events.
    lanes: dict[tuple[int, int], list[tuple[int, list[float]]]] = {}
    titles = []
    spans = (each for each in events if each["ph"] == "X")
    for each in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        process, begin, end = each["pid"], each["ts"], each["ts"] + each["dur"]
        row = process, each["tid"]
        known = lanes.setdefault(row, [(each["tid"], [])])
        for lane in known:
            open_ends = lane[1]
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            if not open_ends or end <= open_ends[-1] + _EVENT_US:
                break
        else:
            lane = 1 + max(tid for pid, tid in names if pid == process), []
            known.append(lane)
            names[process, lane[0]] = f"{names[row]} ({len(known)})"
            titles.append(_title("thread_name", process, lane[0], names[process, lane[0]]))
        each["tid"], open_ends = lane
        if open_ends:
            end = max(begin, min(end, open_ends[-1] - _ROUNDING_US))
            each["dur"] = end - begin
        open_ends.append(end)
    return [*titles, *events]


def _span(
    sample: Sample, start: float, length: float, row: tuple[int, int], details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": sample.name,
        "cat": sample.kind,
        "ph": "X",
        "ts": start,
        "dur": length,
        "pid": row[0],
        "tid": row[1],
        "args": details,
    }


def _title(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
