"""What processes tell one another and keep: documents, mail, journals, statistics."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from syncfree.distributed.busy import Busy
from syncfree.distributed.channel import Channel, Mailbox
from syncfree.distributed.fleet import connect
from syncfree.distributed.journal import Journal, JournalError, read_journals
from syncfree.distributed.statistics import FleetStatistics, RankReport, compare_ranks

# Channels


def test_documents_larger_than_the_store_takes_travel_in_parts():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    channel = Channel(store, "x")
    noise = torch.randint(0, 2**31, (2_000_000,)).tolist()  # 10 MB when compressed
    channel.publish("noise", noise)
    assert channel.read("noise") == noise
    channel.forget("noise")
    assert channel.read("noise") is None


def test_documents_keep_every_bit_and_name():
    channel = Channel(dist.HashStore(), "x")
    values = [0.1, 1e-45, math.inf, "\udcff.png", "a/b c", None]
    channel.publish("values", values)
    assert channel.read("values") == values


def test_conversations_do_not_mix():
    store = dist.HashStore()
    first, second = Channel(store, "first"), Channel(store, "second")
    first.publish("name", 1)
    assert second.read("name") is None
    assert (first.add("n", 5), second.add("n", 2), first.add("n", 1)) == (5, 2, 6)


def test_processes_started_again_find_nothing_of_those_before(monkeypatch):
    """The store is the agent's of `torchrun --max-restarts`, and outlives them."""
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": agent.port}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, str(value))
    for restarts in ("0", "1", "2"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        first, second = (Channel(connect().store, "sampler/0") for _ in range(2))
        assert (first.add("taken", 5), second.add("taken", 5)) == (5, 10)


STORES = {
    "hash": lambda folder: dist.HashStore(),
    "file": lambda folder: dist.FileStore(str(folder / "store"), 1),
    "prefix": lambda folder: dist.PrefixStore("inner", dist.HashStore()),
    "tcp": lambda folder: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
}


@pytest.mark.parametrize("kind", STORES)
def test_mail_arrives_once_and_in_order_over_any_store(kind, tmp_path):
    store = STORES[kind](tmp_path)
    sender, reader = (Mailbox(Channel(store, "x"), "box") for _ in range(2))
    assert list(reader.collect()) == []
    for message in ("a", "b"):
        sender.post(message)
    assert list(reader.collect()) == ["a", "b"]
    sender.post("c")
    assert list(reader.collect()) == ["c"]


# Journals


def write(folder, entries, rank=0, heading=None):
    journal = Journal(folder, rank, heading or {"metrics": ["psnr"]})
    for entry in entries:
        journal.write(entry)
    journal.close()


def test_journals_of_all_ranks_and_runs_are_read(tmp_path):
    folder = tmp_path / "new" / "journals"
    for rank, entries in ((0, [1, 2]), (1, [3]), (0, [])):
        write(folder, entries, rank)
    assert sorted(read_journals(folder, {"metrics": ["psnr"]})) == [1, 2, 3]
    assert list(read_journals(tmp_path / "none", {})) == []


def test_half_a_last_line_is_left_out(tmp_path):
    write(tmp_path, [{"a": 1}, {"b": 2}])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(1, 10):
        path.write_bytes(whole[:-cut])
        assert list(read_journals(tmp_path, {"metrics": ["psnr"]})) == [{"a": 1}]
    path.write_bytes(b"")
    assert list(read_journals(tmp_path, {"metrics": ["psnr"]})) == []


def test_a_full_disk_is_told_with_the_name_of_the_journal(tmp_path):
    journal = Journal(tmp_path, 0, {})
    (path,) = tmp_path.iterdir()
    journal._file = Path("/dev/full").open("w")  # noqa: SIM115 - closing it fails, too
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        journal.write({"item": 3})


def test_journals_of_something_else_are_refused(tmp_path):
    write(tmp_path, [1])
    with pytest.raises(JournalError, match="differs in: crop, metrics"):
        list(read_journals(tmp_path, {"metrics": ["ssim"], "crop": 4}))
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    path.write_text(text.replace("}", "", 1))
    with pytest.raises(JournalError, match="damaged"):
        list(read_journals(tmp_path, {"metrics": ["psnr"]}))
    path.write_text(text.replace('"version": 1', '"version": 99'))
    with pytest.raises(JournalError, match="version"):
        list(read_journals(tmp_path, {"metrics": ["psnr"]}))


@pytest.mark.parametrize("heading", ["", ', "heading": null', ', "heading": [1]'])
def test_journals_without_a_heading_are_refused(tmp_path, heading):
    (tmp_path / "rank-0-x.jsonl").write_text(f'{{"version": 1{heading}}}\n')
    with pytest.raises(JournalError, match="no journal of this version"):
        list(read_journals(tmp_path, {"metrics": ["psnr"]}))


# Statistics


def report(rank, cost, active, busy, **more):
    return RankReport(rank, "cuda:0", "GPU", "host", 10, cost, active, busy, **more)


@pytest.mark.parametrize(
    ("slow", "reason"),
    [
        (report(1, 100, 10, 10), None),
        (report(1, 50, 10, 10), "device"),
        (report(1, 50, 10, 5), "input"),
        (report(1, 50, 10, 10, clock_mhz=900.0), "clock"),
        (report(1, 50, 10, 10, clock_mhz=900.0, throttled=("power cap",)), "throttle"),
        (report(1, 5, 0.9, 0.9), None),  # too short to judge
        (RankReport(1, "cpu", "CPU", "host"), None),
    ],
)
def test_stragglers_have_a_reason(slow, reason):
    found = compare_ranks([report(0, 100, 10, 10, clock_mhz=1900.0), slow], 10, schedule="x")
    assert [rank.reason for rank in found.ranks] == [None, reason]


def test_statistics_of_ranks():
    reports = [report(0, 90, 9, 8, transfer_seconds=2.0), report(1, 30, 3, 3), report(2, 1, 5, 1)]
    found = compare_ranks(reports, 10, schedule="dynamic", lost={2: "died"}, reissued=4)
    assert found.imbalance == pytest.approx(9 / 6 - 1)
    assert found.efficiency == pytest.approx(6 / 9)
    assert [rank.idle_share for rank in found.ranks] == pytest.approx([0.2, 0.7, 0.9])
    assert [rank.transfer_share for rank in found.ranks] == [0.25, 0, 0]
    assert [rank.speed for rank in found.ranks] == pytest.approx([1, 1, 0.02])
    assert [rank.lost for rank in found.ranks] == [None, None, "died"]


def test_a_rank_that_was_lost_early_hides_no_straggler():
    """Nor does its speed, of too little time, make stragglers of the others."""
    reports = [report(0, 100, 10, 10), report(1, 50, 10, 10), report(2, 50, 0.5, 0.4)]
    found = compare_ranks(reports, 10, schedule="x", lost={2: "died"})
    assert [rank.reason for rank in found.ranks] == [None, "device", None]
    assert [rank.speed for rank in found.ranks[:2]] == [1, 0.5]
    slow = compare_ranks([*reports[:2], report(2, 1, 0.5, 0.4)], 10, schedule="x", lost={2: "died"})
    assert [rank.reason for rank in slow.ranks] == [None, "device", None]


def test_statistics_travel_as_json():
    from dataclasses import asdict

    found = compare_ranks([report(0, 1, 1, 1, throttled=("a",))], 1, schedule="x")
    assert FleetStatistics.from_json(json.loads(json.dumps(asdict(found)))) == found


def test_busy_time_is_a_union():
    busy = Busy()
    expected = 0.0
    for index in range(20_000):  # more than are kept
        busy.work.add(index, index + 0.5)
        busy.work.add(index + 0.25, index + 0.75)
        expected += 0.75
    assert busy.work.union == pytest.approx(expected)
    assert busy.work.total == pytest.approx(20_000)
