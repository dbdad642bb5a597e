"""The record of a run on a GPU, and what is said of sources that changed since."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import gpu_status
import pytest
import torch

import gpu_record
from gpu_record import GpuRecord


def finish(file: Path, collected: int = 4, **stats: list) -> None:
    made = GpuRecord(file, stats)
    made.pytest_xdist_node_collection_finished([f"test {i}" for i in range(collected)])
    made.pytest_sessionfinish()


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("csrc", "include", "python/syncfree/include"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.h").write_text(folder)
    (tmp_path / "csrc" / "b.cu").write_text("b")
    gpu = SimpleNamespace(name="A GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gpu_status, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_status, "INSTALLED", tmp_path / "python" / "syncfree" / "include")
    monkeypatch.setattr(gpu_status, "RECORD", tmp_path / "record.json")
    return tmp_path / "record.json"


def test_what_changed_since_is_told(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_status.main()
    assert "No GPU run is recorded" in capsys.readouterr().out
    finish(record, passed=[1, 2, 3], skipped=[4])
    assert sorted(json.loads(record.read_text())["sources"]) == [
        "csrc/a.h",
        "csrc/b.cu",
        "include/a.h",
    ]
    gpu_status.main()
    shown = capsys.readouterr().out
    assert "3 passed, 0 failed, 1 skipped, 0 not reached on 2 x A GPU" in shown
    assert shown.endswith("Every source file is as it was then.\n")
    (record.parent / "csrc" / "b.cu").write_text("c")
    (record.parent / "csrc" / "new.cuh").touch()
    (record.parent / "include" / "a.h").unlink()
    (record.parent / "python" / "syncfree" / "include" / "a.h").write_text("a copy")
    gpu_status.main()
    changed = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[-1] for line in changed] == ["csrc/b.cu", "csrc/new.cuh", "include/a.h"]


def test_what_failed_is_told(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = [
        SimpleNamespace(nodeid="tests/test_b.py::b"),
        SimpleNamespace(nodeid="tests/test_a.py::a"),
    ]
    finish(record, passed=[1], failed=failed, error=failed[:1])
    gpu_status.main()
    shown = capsys.readouterr().out
    assert "1 passed, 2 failed, 0 skipped" in shown
    assert shown.index("tests/test_a.py::a") < shown.index("tests/test_b.py::b")


def test_records_from_before_failures_were_recorded(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(record, passed=[1])
    facts = json.loads(record.read_text())
    del facts["failed"], facts["not_reached"]
    record.write_text(json.dumps(facts))
    gpu_status.main()
    assert "1 passed, 0 failed" in capsys.readouterr().out


def test_a_run_that_was_killed_leaves_what_it_knew(
    record: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_record, "SECONDS", 0.0)
    stats: dict[str, list] = {}
    made = GpuRecord(record, stats)
    made.pytest_collection_finish(SimpleNamespace(items=[1, 2, 3]))  # type: ignore[arg-type]
    (record.parent / "csrc" / "b.cu").write_text("changed while tests run")
    stats["passed"] = [1]
    made.pytest_runtest_logreport()
    gpu_status.main()
    shown = capsys.readouterr().out
    assert "1 passed, 0 failed, 0 skipped, 2 not reached" in shown
    assert shown.count("not verified") == 1


def test_where_nothing_ran_nothing_is_recorded(record: Path) -> None:
    finish(record)
    assert not record.exists()
