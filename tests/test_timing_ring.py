"""The timer's slots and queues, in any order of events, against a model in a few lines."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_driver import FakeDriver
from syncfree.errors import TimerError
from syncfree.timing.samples import from_runtime

STREAMS = (1, 2, 3)
NAMES = ("a", "b")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.sampled_from(STREAMS), st.sampled_from(NAMES)),
        st.tuples(st.just("close"), st.integers(0, 9), st.none()),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.none()),
        st.tuples(st.just("work"), st.sampled_from(STREAMS), st.integers(0, 50)),
        st.tuples(st.just("pass"), st.integers(0, 80), st.none()),
        st.tuples(st.just("poll"), st.none(), st.none()),
    ),
    max_size=80,
)


@dataclass
class Region:
    """What the model knows of one."""

    sequence: int
    stream: int
    name: str
    start: float
    end: float = 0.0


class Model:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.now = 0.0
        self.busy = dict.fromkeys(STREAMS, 0.0)
        self.open: list[Region] = []
        self.pending: dict[int, list[Region]] = {stream: [] for stream in STREAMS}
        self.done: list[Region] = []
        self.dropped = self.sequence = 0

    def moment(self, stream: int) -> float:
        return max(self.now, self.busy[stream])

    def resolve(self) -> int:
        before = len(self.done)
        for queue in self.pending.values():
            while queue and queue[0].end <= self.now:
                self.done.append(queue.pop(0))
        return len(self.done) - before

    def begin(self, stream: int, name: str) -> bool:
        if len(self.open) + sum(map(len, self.pending.values())) == self.capacity:
            queues = [queue for queue in self.pending.values() if queue]
            if self.resolve() == 0:
                if not queues:
                    return False
                min(queues, key=lambda queue: queue[0].sequence).pop(0)
                self.dropped += 1
        self.sequence += 1
        self.open.append(Region(self.sequence, stream, name, self.moment(stream)))
        return True

    def finish(self, region: Region) -> None:
        self.open.remove(region)
        region.end = self.moment(region.stream)
        self.pending[region.stream].append(region)


@pytest.mark.fuzz
@given(steps, st.integers(1, 6))
def test_any_order_of_events(fake: FakeDriver, todo: list[tuple], capacity: int) -> None:
    fake.reset()
    timer, model = fake.timer(capacity=capacity), Model(capacity)
    regions = {}
    for what, first, second in todo:
        if what == "open":
            fake.stream = first
            region = timer.region(second)
            if model.begin(first, second):
                regions[model.sequence] = region.start()
            else:
                with pytest.raises(TimerError, match="larger capacity"):
                    region.start()
        elif what in ("close", "cancel") and model.open:
            chosen = model.open[first % len(model.open)]
            if what == "close":
                regions[chosen.sequence].stop()
                model.finish(chosen)
            else:
                regions[chosen.sequence].cancel()
                model.open.remove(chosen)
        elif what == "work":
            fake.work(second, first)
            model.busy[first] = model.moment(first) + second
        elif what == "pass":
            fake.let_pass(first)
            model.now += first
        elif what == "poll":
            assert timer.poll() == model.resolve()
    assert timer.poll() == model.resolve()

    counts = timer.counts()
    assert counts["dropped"] == model.dropped
    assert counts["pending"] == sum(map(len, model.pending.values()))
    assert counts["lost"] == counts["skipped"] == 0
    assert fake.calls("cuEventSynchronize") == 0
    histories = from_runtime(timer.histories())
    found = {s.sequence: s for history in histories for s in history.samples}
    assert found.keys() == {each.sequence for each in model.done}
    for each in model.done:
        sample = found[each.sequence]
        assert (sample.name, sample.stream) == (each.name, each.stream)
        assert sample.gpu_us == pytest.approx(each.end - each.start, rel=1e-6, abs=0.01)
    for history in histories:
        times = [each.gpu_us for each in history.samples]
        assert history.count == len(times)
        assert history.total_us == pytest.approx(sum(times))
        assert history.min_us == min(times)
    for region in regions.values():
        region.cancel()


@pytest.mark.fuzz
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 20))
def test_the_last_samples_are_kept_and_totals_are_of_all(
    fake: FakeDriver, times: list[int], keep: int
) -> None:
    fake.reset()
    timer = fake.timer(history=keep)
    for us in times:
        with timer.region("r"):
            fake.work(us)
        fake.let_pass(us)
        timer.poll()
    (history,) = from_runtime(timer.histories())
    kept = [each.gpu_us for each in history.samples]
    assert kept == pytest.approx(times[-keep:], rel=1e-6, abs=0.01)
    assert history.count == len(times)
    assert history.total_us == pytest.approx(sum(times), rel=1e-6)
    assert history.min_us == pytest.approx(min(times), rel=1e-6, abs=0.01)
