"""The whole way without a GPU: programs, tests, `deferred` and TorchMetrics under tier 0."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torchmetrics.functional.classification as functional
from torchmetrics.image import StructuralSimilarityIndexMeasure

import syncfree
from syncfree.errors import SyncError

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tier 0 stands in for a GPU")

DIGITS = Path(__file__).parent.parent / "examples" / "train_digits.py"
PATH = ":".join([*(str(Path(place).parent) for place in syncfree.__path__), *sys.path])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "CUDA_VISIBLE_DEVICES": ""}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def with_a_read(tmp_path: Path) -> tuple[Path, int]:
    """The example with an accidental `.item()` in its loop, and the line of that."""
    text = DIGITS.read_text()
    place = "        optimizer.step()\n"
    assert place in text
    changed = tmp_path / "train_digits.py"
    changed.write_text(text.replace(place, f"{place}        losses = [loss.item()]\n"))
    return changed, changed.read_text().splitlines().index("        losses = [loss.item()]") + 1


def test_the_example_is_clean(tmp_path: Path) -> None:
    script = [DIGITS, "--device", "cuda", "--epochs", "1"]
    done = run("syncfree", "syncs", "--tier", "0", "--json", "found.json", *script, cwd=tmp_path)
    assert "training on cuda" in done.stdout, done.stderr
    assert "epoch 1: train accuracy 0." in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())["findings"]
    # The one read of the epoch, unless the example allows it.
    assert [each["source"] for each in found if each["function"] == "train_epoch"] == []


def test_an_accidental_read_is_found(tmp_path: Path) -> None:
    script, line = with_a_read(tmp_path)
    command = ["--json", "found.json", "--tier", "0", "--steps", 5, script, "--device", "cuda"]
    done = run("syncfree", "syncs", *command, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"train_digits.py:{line} in train_epoch: Tensor.item" in done.stdout
    (found,) = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert (found["file"], found["line"], found["verdict"]) == (str(script), line, "sync")
    # The last step ends at optimizer.step(), before the line; the warm-up's read comes after it.
    assert found["count"] == 5


def test_a_test_fails_on_it(tmp_path: Path) -> None:
    _, line = with_a_read(tmp_path)
    (tmp_path / "test_digits.py").write_text(
        "import pytest, torch, train_digits\n"
        "@pytest.mark.no_sync\n"
        "def test_epoch():\n"
        "    (images, labels), _ = train_digits.load_data(torch.device('cuda'))\n"
        "    net = train_digits.make_net().to('cuda')\n"
        "    optimizer = torch.optim.Adam(net.parameters())\n"
        "    train_digits.train_epoch(net, optimizer, images[:256], labels[:256])\n"
    )
    plugin = ["-p", "syncfree.detector.pytest_plugin", "-p", "no:cacheprovider", "--sync-tier", "0"]
    if any(entry.name == "syncfree" for entry in importlib.metadata.entry_points(group="pytest11")):
        plugin = plugin[2:]
    done = run("pytest", *plugin, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"train_digits.py:{line} in train_epoch: Tensor.item, 4x" in done.stdout
    (tmp_path / "train_digits.py").write_text(DIGITS.read_text())
    done = run("pytest", *plugin, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_call_that_needs_a_gpu_is_named(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("import torch\ntorch.cuda.CUDAGraph()\n")
    done = run("syncfree", "syncs", "--tier", "0", "graph.py", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "torch.cuda.CUDAGraph" in done.stderr
    assert "Traceback" not in done.stderr


def test_deferred_does_not_wait() -> None:
    with syncfree.detect_syncs("raise", tier=0):
        x = torch.ones(10, device="cuda")
        shown = syncfree.deferred(x.sum())
        for _ in range(3):
            shown.update(x[::2].sum())
            text = f"{shown:.1f}", str(shown), float(shown), shown.ready()
        assert text == ("5.0", "5.0", 5.0, True)
        shown.update(x)
    with syncfree.detect_syncs(tier=0) as report:
        x = torch.ones(10, device="cuda")
        syncfree.deferred(x).value()  # waits, and says so by its name
    assert [each.source.startswith("syncfree.deferred(x).value()") for each in report.findings] == [
        True
    ]


def test_raising_at_the_line() -> None:
    reached = []

    @syncfree.no_sync(raise_at="call", tier=0)
    def step() -> None:
        x = torch.ones(3, device="cuda")
        reached.append("before")
        if x.sum() > 0:
            reached.append("after")

    with pytest.raises(SyncError, match=r"if x.sum\(\) > 0:"):
        step()
    assert reached == ["before"]


def test_regions_of_two_threads_overlap() -> None:
    turn = threading.Barrier(2, timeout=60)
    counts = {}

    def read() -> None:
        torch.ones(2, device="cuda").sum().item()

    def first() -> None:
        with syncfree.detect_syncs(tier=0) as report:
            turn.wait()
            turn.wait()  # the second is open
            read()
        counts["first"] = report.count
        turn.wait()

    def second() -> None:
        turn.wait()
        with syncfree.detect_syncs(tier=0) as report:
            turn.wait()
            turn.wait()  # the first is closed
            read()
        counts["second"] = report.count

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"first": 1, "second": 1}
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_torchmetrics_is_found_where_it_waits() -> None:
    counts = {}
    with syncfree.detect_syncs(tier=0) as outer:
        preds = torch.randn(64, 5, device="cuda")
        target = torch.randint(0, 5, (64,), device="cuda")
        for average in ("micro", "macro"):
            with syncfree.detect_syncs() as report:
                functional.multiclass_accuracy(
                    preds, target, 5, average=average, validate_args=False
                )
            counts[average] = report.count
    assert counts == {"micro": 0, "macro": 1}
    (found,) = [each for each in outer.findings if each.counts]
    assert "torch.bincount(" in found.source
    assert any(frame.file == __file__ for frame in found.event.stack)


def test_our_metrics_never_wait() -> None:
    from syncfree import functional

    with syncfree.detect_syncs("raise", tier=0):
        a, b = torch.rand(2, 2, 3, 32, 32, device="cuda")
        functional.peak_signal_noise_ratio(a, b, 1.0)
        functional.structural_similarity_index_measure(a, b, data_range=1.0)
        logits = torch.randn(64, 5, device="cuda")
        labels = torch.randint(0, 5, (64,), device="cuda")
        for average in ("micro", "macro"):
            functional.multiclass_accuracy(logits, labels, num_classes=5, average=average)


def test_image_metrics_are_advised_to_become_ours() -> None:
    metric = StructuralSimilarityIndexMeasure()
    image = torch.rand(1, 3, 16, 16)
    with syncfree.detect_syncs(tier=0) as report:
        metric.cuda().update(image.cuda(), image.cuda())
    waits = [each for each in report.findings if each.counts]
    assert len(waits) == 1
    assert "syncfree.image" in waits[0].suggestion
