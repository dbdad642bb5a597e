"""The examples run as a newcomer runs them, and print numbers that make sense."""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import scaling
from benchmark_figures import figures_tool

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(example, *arguments):
    command = [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def epochs(text):
    """Training and test accuracy of every epoch."""
    found = re.findall(r"epoch \d+: train accuracy ([\d.]+), test ([\d.]+)", text)
    return [(float(train), float(test)) for train, test in found]


def test_train_digits_learns():
    found = epochs(run("train_digits.py", "--epochs", 3))
    assert len(found) == 3
    (first_train, _), (last_train, last_test) = found[0], found[-1]
    assert 0.1 < first_train < last_train <= 1
    assert 0.85 < last_test <= 1


def test_restore_images_restores_the_same_on_any_number_of_processes():
    shown = run("restore_images.py", "--devices", "cpu", "--counts", "1,2", "--images", 4,
                "--scale", 0.25)  # fmt: skip
    one, two = (line.split() for line in shown.splitlines()[1:])
    assert [one[0], two[0]] == ["1", "2"]
    assert float(one[-2]) > 26  # dB; 20 before
    assert one[-2:] == two[-2:]


@pytest.mark.parametrize(
    ("work", "schedules"), [("restore", ["equal", "pixels"]), ("compare", ["pixels"])]
)
def test_scaling_is_measured(work, schedules, tmp_path):
    """benchmarks/scaling.py, which is not an example, but is run like one."""
    few = ("--pictures", 4, "--scale", 0.2, "--iterations", 2, "--seconds", 0.1)
    file, plot = tmp_path / "new" / "scaling.json", tmp_path / "scaling.png"
    run("../benchmarks/scaling.py", work, "--devices", "cpu", "--counts", 2, "--cores", 1,
        "--schedules", ",".join(schedules), *few, "--json", file, "--plot", plot)  # fmt: skip
    facts = json.loads(file.read_text())
    first = facts["rows"][0]
    assert [row["schedule"] for row in facts["rows"]] == schedules
    for row in facts["rows"]:
        assert row["images"] == first["images"] >= 4
        assert [rank["device"] for rank in row["ranks"]] == ["cpu", "cpu"]
        assert sum(rank["items"] for rank in row["ranks"]) == row["images"]
        assert row["images_per_second"] == pytest.approx(row["images"] / row["seconds"])
        assert row["speedup"] == pytest.approx(2 * first["seconds"] / row["seconds"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert figures_tool().scaling_table(file).count("\n| 2 | ") == len(schedules)


def test_scaling_keeps_to_its_limit(capsys):
    given = argparse.Namespace(seconds=10, counts=[1, 4], begin=time.time() - 30, limit=35)
    assert not scaling.begins(given, 1, "dynamic", 400)
    assert scaling.begins(given, 4, "equal", 400)  # by a fourth of the time
    late, begun = capsys.readouterr().err.splitlines()
    assert late.endswith("1 process, dynamic: left out, as it would end after --limit 35")
    assert begun.endswith("4 processes, equal: 400 images, about 2 s")


def test_demo_compares_and_trains(tmp_path):
    shown = run("demo.py", "--keep", tmp_path, "--photographs", 3, "--quality", 90, 10,
                "--epochs", 1)  # fmt: skip
    assert shown.count("$ syncfree compare") == 2
    closing = dict(re.findall(r"^ +(\d+) +([\d.]+ +[\d.]+)$", shown, re.MULTILINE))
    assert list(closing) == ["90", "10"]
    fine, coarse = (
        tuple(float(number) for number in closing[quality].split()) for quality in ("90", "10")
    )
    assert 50 > fine[0] > coarse[0] + 3 > 20
    assert 1 > fine[1] > coarse[1] + 0.05 > 0.5
    report = json.loads((tmp_path / "jpeg-90.json").read_text())
    assert [image["name"] for image in report["images"]] == [
        "astronaut.png",
        "camera.png",
        "chelsea.png",
    ]
    assert report["summary"]["metrics"]["psnr"]["mean"] == pytest.approx(fine[0], abs=0.006)
    assert (tmp_path / "jpeg-10" / "camera.jpg").exists()
    assert len(epochs(shown)) == 1


def test_hidden_waits_are_found(tmp_path):
    """Those that the text of the example hides, at their lines; copies may wait or may not."""
    tier = 3 if torch.cuda.is_available() else 0
    script, file = EXAMPLES / "hidden_waits.py", tmp_path / "report.json"
    command = [sys.executable, "-m", "syncfree", "syncs", "--json", file, script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "accuracy 0." in done.stdout
    report = json.loads(file.read_text())
    assert report["tier"] == tier
    lines = script.read_text().splitlines()
    found = {}
    for finding in report["findings"]:
        here = [each for each in finding["stack"] if each["file"].endswith(script.name)]
        found.setdefault(lines[here[0]["line"] - 1].strip(), set()).add(finding["verdict"])
    copies = {line for line in found if ".to(device, non_blocking=True)" in line}
    assert {line for line, verdicts in found.items() if "sync" in verdicts} - copies == {
        "hard = loss[loss > loss.mean()]",
        "hard.mean().backward()",
        "running += loss.mean().item()",
        "accuracy.update(logits.detach(), target)",
        'print(f"accuracy {accuracy.compute():.3f}")',
    }
