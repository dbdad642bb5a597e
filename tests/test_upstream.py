"""The comparison of what TorchMetrics' own tests say of its names and of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torchmetrics
import upstream

THEIR_TESTS = """
from torchmetrics.image import PeakSignalNoiseRatio
from torchmetrics.metric import Metric

def test_the_same():
    assert issubclass(PeakSignalNoiseRatio, Metric)

def test_known():
    assert PeakSignalNoiseRatio.__module__ == "torchmetrics.image.psnr"

def test_other():
    assert PeakSignalNoiseRatio.__module__ == "torchmetrics.image.psnr"

def test_broken():
    assert False
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    about = tmp_path / "src" / "torchmetrics" / "__about__.py"
    about.parent.mkdir(parents=True)
    about.write_text(f'__version__ = "{torchmetrics.__version__}"\n')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_them.py").write_text(THEIR_TESTS)
    return tmp_path


def test_a_difference_is_told(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(upstream, "DOCUMENTED", {"test_them::test_known": "the reason"})
    monkeypatch.setattr(sys, "argv", ["upstream.py", str(checkout), "test_them.py"])
    with pytest.raises(SystemExit) as exit:
        upstream.main()
    assert exit.value.code == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "3 pass with TorchMetrics, 1 of them with syncfree",
        "  test_them::test_known: the reason",
        "  test_them::test_other: NOT DOCUMENTED",
    ]


def test_another_version_is_refused(checkout: Path) -> None:
    about = checkout / "src" / "torchmetrics" / "__about__.py"
    about.write_text('__version__ = "0.1"\n')
    with pytest.raises(SystemExit, match=r"has those of 0\.1\. Run `git checkout v"):
        upstream.check_version(checkout)
    about.unlink()
    with pytest.raises(SystemExit, match="Expected a clone of TorchMetrics"):
        upstream.check_version(checkout)
