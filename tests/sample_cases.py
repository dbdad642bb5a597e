"""Samples whose truth is known because it was made up."""

from __future__ import annotations

from dataclasses import replace

from syncfree.timing.samples import History, Recording, Sample
from syncfree.timing.summary import Summary


def series(count: int = 20, name: str = "step", **fields: object) -> list[Sample]:
    """Equal samples one after the other; the first one is marked so."""
    made = []
    for number in range(count):
        sample = Sample(name, sequence=number + 1, gpu_start_us=1000.0 * number, first=number == 0)
        made.append(replace(sample, **fields))  # type: ignore[arg-type]
    return made


LAUNCH_BOUND = {"gpu_us": 530.0, "host_enqueue_us": 520.0, "queued": False}
GPU_BOUND = {"gpu_us": 9800.0, "host_enqueue_us": 300.0, "queued": True}


def summary_of(*regions: list[Sample], **counts: object) -> Summary:
    histories = tuple(History.of(each) for each in regions)
    return Summary(Recording(histories, **counts))  # type: ignore[arg-type]
