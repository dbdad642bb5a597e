"""The record of a run on a GPU, and what is said of sources that changed since."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import gpu_status
import pytest
import torch

import conftest


def finish(file: Path | None, exitstatus: int, **stats: list) -> None:
    plugins = SimpleNamespace(get_plugin=lambda name: SimpleNamespace(stats=stats))
    config = SimpleNamespace(getoption=lambda name: file, pluginmanager=plugins)
    conftest.pytest_sessionfinish(SimpleNamespace(config=config), exitstatus)  # type: ignore[arg-type]


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
    finish(record, pytest.ExitCode.OK, passed=[1, 2, 3], skipped=[4])
    assert sorted(json.loads(record.read_text())["sources"]) == [
        "csrc/a.h",
        "csrc/b.cu",
        "include/a.h",
    ]
    gpu_status.main()
    shown = capsys.readouterr().out
    assert "3 passed, 0 failed, 1 skipped on 2 x A GPU" in shown
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
    finish(record, pytest.ExitCode.TESTS_FAILED, passed=[1], failed=failed, error=failed[:1])
    gpu_status.main()
    shown = capsys.readouterr().out
    assert "1 passed, 2 failed, 0 skipped" in shown
    assert shown.index("tests/test_a.py::a") < shown.index("tests/test_b.py::b")


def test_records_from_before_failures_were_recorded(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(record, pytest.ExitCode.OK, passed=[1])
    facts = json.loads(record.read_text())
    del facts["failed"]
    record.write_text(json.dumps(facts))
    gpu_status.main()
    assert "1 passed, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "exitstatus",
    [
        pytest.ExitCode.INTERRUPTED,
        pytest.ExitCode.INTERNAL_ERROR,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ],
)
def test_runs_that_broke_off_are_not_recorded(record: Path, exitstatus: pytest.ExitCode) -> None:
    finish(record, exitstatus, passed=[1])
    assert not record.exists()
    finish(None, pytest.ExitCode.OK)
