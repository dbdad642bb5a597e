"""`syncfree syncs --prove` without a GPU: the stand-in for CUPTI plays one that is kept busy."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from fake_cupti import FakeCupti, build
from syncfree.cli import main
from syncfree.detector import tiers as tiers_module
from syncfree.detector.tier3 import Tier3
from syncfree.detector.tier3 import library as library_module
from syncfree.detector.tier3 import memory as memory_module
from syncfree.detector.tier3 import proof as proof_module

PROGRAM = """
from fake_cupti import _built

fake = _built["fake"]
wait = fake.call("cuStreamSynchronize", reaches=True)
unplaced = fake.call("cuEventSynchronize")
slow_free = fake.call("cuMemFree_v2", 1, reaches=True)
quick_free = fake.call("cuMemFreeHost", 1)
for step in range(4):
    wait()  # waits
    slow_free()  # frees and waits
    quick_free()  # frees
    unplaced()  # does not do what its name says
"""


class FakeSpin:
    started: ClassVar[list[float]] = []

    def __init__(self, stream: object) -> None:
        pass

    def start(self, milliseconds: float) -> None:
        self.started.append(milliseconds)


@pytest.fixture
def fake(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> FakeCupti:
    fake = build(tmp_path_factory.mktemp("cupti"))
    words = fake.arguments(*[0] * 16)
    monkeypatch.setenv(library_module.OVERRIDE, str(fake.path))
    monkeypatch.setenv(library_module.DRIVER_OVERRIDE, str(fake.path))
    monkeypatch.setattr(tiers_module, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(memory_module, "_measured", [None])  # a real GPU would be asked
    monkeypatch.setattr(proof_module, "Spin", FakeSpin)
    monkeypatch.setattr(proof_module, "_ready", lambda: True)
    FakeSpin.started.clear()

    def mark(tier: Tier3) -> None:
        if FakeSpin.started:  # in the second run
            tier._watch.use_marks(ctypes.addressof(words))
            fake.library.fake_reach()  # of lines before
            tier._watch.put_mark(7)

    monkeypatch.setattr(Tier3, "_mark", mark)
    monkeypatch.chdir(tmp_path)
    fake.library.fake_reset()
    return fake


def test_each_finding_is_settled(fake: FakeCupti, capsys: pytest.CaptureFixture[str]) -> None:
    Path("program.py").write_text(PROGRAM)
    assert main(["syncs", "--prove", "--warmup", "0", "--json", "found.json", "program.py"]) == 1
    fake.library.fake_reach()
    document = json.loads(Path("found.json").read_text())
    found = {
        each["source"].rpartition("# ")[2]: (each["verdict"], each["proof"], each["count"])
        for each in document["findings"]
    }
    assert found == {
        "waits": ("sync", "proven", 4),
        "frees and waits": ("sync", "proven", 4),
        "frees": ("conditional", "not proven", 4),
        "does not do what its name says": ("sync", "not proven", 4),
    }
    assert len(FakeSpin.started) == 4 * 3  # each line is tried so often
    shown = capsys.readouterr().out
    assert "proven" in shown
    assert not fake.library.fake_is_subscribed()


def test_both_runs_begin_in_the_same_folder(fake: FakeCupti) -> None:
    document = Path("found.json").absolute()
    Path("inner").mkdir()
    Path("program.py").write_text(
        f"open('program.py').close()\n{PROGRAM}import os; os.chdir('inner')"
    )
    assert main(["syncs", "--prove", "--warmup", "0", "--json", "found.json", "program.py"]) == 1
    fake.library.fake_reach()
    proofs = {each["proof"] for each in json.loads(document.read_text())["findings"]}
    assert proofs == {"proven", "not proven"}


def test_a_mark_left_by_another_test_is_not_waited_for(
    fake: FakeCupti, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests of one process share the stand-in; on a GPU machine others put marks of their own."""
    watch = library_module.open_watch()
    watch.use_marks(ctypes.addressof(fake.arguments(*[0] * 16)))
    watch.put_mark(3)
    fake.library.fake_reset()
    test_each_finding_is_settled(fake, capsys)


COPIES = """
from fake_cupti import _built

fake = _built["fake"]
page = fake.host_memory()
name = "cudaMemcpyAsync_v3020"
read = fake.call("cuMemcpyDtoHAsync_v2", page, 0x7000_0000, 8, runtime=name, reaches=True)
early = fake.call("cuMemcpyDtoHAsync_v2", page, 0x7000_0000, 8, runtime=name)
send = fake.call("cuMemcpyHtoDAsync_v2", 0x7000_0000, page, 8, runtime=name)
wait = fake.call("cuStreamSynchronize", runtime="cudaStreamSynchronize_v3020")
last = fake.call("cuStreamSynchronize", runtime="cudaStreamSynchronize_v3020", reaches=True)
host_is_late = fake.library.fake_reach
for step in range(4):
    read(), wait()  # waits inside of the copy
    early(), last()  # waits behind the copy
    early(), host_is_late(), wait()  # finds the GPU done
    send(), read(), wait()  # sends and reads
"""


def test_a_copy_that_waits_leaves_nothing_to_the_wait_behind_it(fake: FakeCupti) -> None:
    """As `tensor.cpu()` does, and `bincount`, with which TorchMetrics counts."""
    Path("program.py").write_text(COPIES)
    assert main(["syncs", "--prove", "--warmup", "0", "--json", "found.json", "program.py"]) == 1
    fake.library.fake_reach()
    document = json.loads(Path("found.json").read_text())
    found = {
        (each["source"].rpartition("# ")[2], each["verdict"]): each["proof"]
        for each in document["findings"]
    }
    assert found == {
        ("waits inside of the copy", "sync"): "proven",
        ("waits behind the copy", "sync"): "proven",
        ("finds the GPU done", "sync"): "not proven",
        # What the line does before it waits takes nothing from the proof.
        ("sends and reads", "sync"): "proven",
        ("sends and reads", "conditional"): "not proven",
    }


@pytest.mark.parametrize(("runs", "spins"), [(1, [200]), (2, [100, 100]), (4, [50, 100, 200])])
def test_a_line_that_runs_once_has_no_later_try(
    fake: FakeCupti, runs: int, spins: list[float]
) -> None:
    """So the first is long, in case that the host comes late to the call, as it does here."""
    text = f"""
from fake_cupti import _built

fake = _built["fake"]
wait = fake.call("cuStreamSynchronize")
for step in range({runs}):
    fake.library.fake_reach(), wait()
"""
    Path("program.py").write_text(text)
    assert main(["syncs", "--prove", "--warmup", "0", "program.py"]) == 1
    fake.library.fake_reach()
    assert FakeSpin.started == spins


def test_a_second_run_that_fails_is_told(
    fake: FakeCupti, capsys: pytest.CaptureFixture[str]
) -> None:
    again = Path("again")
    text = "from pathlib import Path\nimport sys\n" + PROGRAM
    text += "\nif Path('again').exists(): sys.exit(3)\nPath('again').touch()\n"
    Path("program.py").write_text(text)
    assert main(["syncs", "--prove", "--warmup", "0", "program.py"]) == 1
    fake.library.fake_reach()
    assert again.exists()
    assert "the second run failed" in capsys.readouterr().err


def test_a_torchrun_is_refused(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    Path("program.py").write_text(PROGRAM)
    assert main(["syncs", "--prove", "program.py"]) == 2
    assert "runs the program twice" in capsys.readouterr().err
