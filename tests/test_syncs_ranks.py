"""What rank 0 of a torchrun does about the others' reports: `syncfree syncs`."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, TCPStore

from syncfree.cli.syncs import ranks
from syncfree.detector.report import Report


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """Of a torchrun of four, whose agent holds it; the test's process is rank 0."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"RANK": 0, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    monkeypatch.setattr(ranks, "_SILENCE", timedelta(seconds=0.2))
    monkeypatch.setattr(ranks, "_PATIENCE", timedelta(seconds=0.5))
    return store


def report_of(store: TCPStore, rank: int) -> None:
    store.set(f"syncfree/0/{rank}", json.dumps(Report(tier=1).json()))


def gathered_while_all_come(store: TCPStore, after: float) -> tuple[list[str], str]:
    """What was said, and the note of the report."""
    late = threading.Timer(after, lambda: [report_of(store, rank) for rank in (1, 2, 3)])
    late.start()
    said: list[str] = []
    merged = ranks.gather(Report(tier=1), said.append)
    late.join()
    return said, merged.note


def test_says_for_whom_it_waits(store: TCPStore) -> None:
    report_of(store, 2)
    said: list[str] = []
    merged = ranks.gather(Report(tier=1), said.append)
    assert said == ["waiting for the reports of ranks 1, 3, until 0.5 s have passed"]
    assert merged.note == "without ranks [1, 3], which did not report"
    assert store.check(["syncfree/0/read"])


def test_a_report_that_is_there_is_read_however_slow_the_store(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for a rank before may leave less than the way to the store and back takes."""
    report_of(store, 2)

    def too_short(self: TCPStore, keys: list[str], timeout: timedelta) -> None:
        raise DistStoreError("wait timeout")

    monkeypatch.setattr(TCPStore, "wait", too_short)
    said: list[str] = []
    merged = ranks.gather(Report(tier=1), said.append)
    assert said == ["waiting for the reports of ranks 1, 3, until 0.5 s have passed"]
    assert merged.note == "without ranks [1, 3], which did not report"


def test_all_missing_ranks_share_the_wait(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had a minute of its own, one after the other."""
    waits: list[float] = []
    wait = TCPStore.wait

    def counted(self: TCPStore, keys: list[str], timeout: timedelta) -> None:
        waits.append(timeout.total_seconds())
        wait(self, keys, timeout)

    monkeypatch.setattr(TCPStore, "wait", counted)
    ranks.gather(Report(tier=1), lambda _: None)
    assert waits[0] <= 0.2
    assert sum(waits) < 1.0  # 1.5 before


def test_says_nothing_where_all_come_in_time(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_SILENCE", timedelta(seconds=30))
    assert gathered_while_all_come(store, 0.2) == ([], "")


def test_takes_reports_that_come_during_the_wait(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_PATIENCE", timedelta(seconds=30))
    said, note = gathered_while_all_come(store, 1.0)
    assert (len(said), note) == (1, "")
