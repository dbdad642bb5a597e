"""Tier 3 on a GPU: over a hundred operations, each judged behind a spinning kernel.

A process of its own judges them (detector_corpus.py), as CUPTI serves one tool: in this one
torch.profiler would lack GPU events afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from detector_corpus import CATEGORIES

pytestmark = pytest.mark.needs_cuda

LEAST = 100
# Not among what the tests install.
OPTIONAL = "cupy"


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    file = tmp_path_factory.mktemp("corpus") / "results.jsonl"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("detector_corpus.py")), str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert done.returncode == 0, f"after {lines[-1:]}: {done.stderr[-3000:]}"
    return lines


def told(result: dict) -> str:
    """An operation with what was found of it, for a failure's message."""
    lines = [f"{result['category']}: {result['name']}: waited={result.get('waited')}"]
    lines += [
        f"    {each['verdict']} {each['api']} at {each['place']} {each['source']!r}, "
        f"in the call: {each['in_call']}, {each['blocked_us']} us: {each['why']}"
        for each in result.get("found", [])
    ]
    return "\n".join(lines)


def of(results: list[dict], category: str) -> list[dict]:
    return [each for each in results if each.get("category") == category]


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_waits_is_found_and_nothing_else(results: list[dict], category: str) -> None:
    mine = of(results, category)
    if any(each.get("missing") == OPTIONAL for each in mine):
        pytest.skip(f"{OPTIONAL} is not installed")
    assert any("name" in each for each in mine), mine
    broken = [f"{each['name']}: {each['error']}" for each in mine if "error" in each]
    missed, wrong, misplaced = [], [], []
    for each in (each for each in mine if "error" not in each):
        counted = [found for found in each["found"] if found["counts"]]
        if each["waited"] and not counted:
            missed.append(told(each))
        if each["waited"] is False and counted:
            wrong.append(told(each))
        if each["waited"] and counted and not all(found["in_call"] for found in counted):
            misplaced.append(told(each))
    text = "\n".join(
        f"{title}:\n{textwrap.indent(chr(10).join(some), '  ')}"
        for title, some in (
            ("could not run", broken),
            ("waited, but was not found", missed),
            ("did not wait, but was reported", wrong),
            ("found at another line", misplaced),
        )
        if some
    )
    assert not text, f"\n{text}"


def test_there_is_enough_to_judge(results: list[dict]) -> None:
    operations = [each for each in results if each.get("name")]
    judged = [each for each in operations if each.get("waited") is not None]
    unclear = [told(each) for each in operations if each.get("waited", False) is None]
    print("unclear:", *unclear, sep="\n")
    assert len(judged) >= LEAST
    assert len(unclear) <= len(operations) // 10, unclear
    waited = sum(each["waited"] for each in judged)
    assert 40 <= waited <= len(judged) - 40  # both kinds are well represented


def test_our_own_never_wait(results: list[dict]) -> None:
    for each in of(results, our_own := "our_own"):
        assert each.get("waited") is False, (our_own, told(each))
        assert not [found for found in each["found"] if found["counts"]], told(each)


def test_the_size_of_waiting_copies_is_measured(results: list[dict]) -> None:
    size = results[0]["waiting_size"]
    assert size is None or (size & (size - 1) == 0 and 4096 <= size <= 1 << 24)


RUNS = {
    "proven": (
        ["--prove", "--warmup", "0"],
        """
        import torch
        x = torch.rand(1000, device="cuda")
        for _ in range(4):
            x.sum().item()  # reads
            x + 1
        """,
        {"reads": ("sync", "proven")},
    ),
    "in a backward pass": (
        ["--prove", "--warmup", "0"],
        """
        import torch

        class Reads(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x * 2

            @staticmethod
            def backward(context, gradient):
                gradient.sum().item()  # in backward
                return gradient

        x = torch.rand(1000, device="cuda", requires_grad=True)
        for _ in range(4):
            Reads.apply(x).sum().backward()
        """,
        {"in backward": ("sync", "proven")},
    ),
    # Copies to pageable memory wait by themselves, not in the call behind them.
    "where the copy waits": (
        ["--prove", "--warmup", "0"],
        """
        import torch
        x = torch.arange(1000, device="cuda")
        for _ in range(4):
            x.cpu()  # copies
            torch.bincount(x, minlength=1000)  # counts
            torch.ones(1).to("cuda", non_blocking=True).item()  # sends and reads
        """,
        {
            "copies": ("sync", "proven"),
            "counts": ("sync", "proven"),
            "sends and reads": ("sync", "proven"),
        },
    ),
}


def environment() -> dict[str, str]:
    """For a process in another folder."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(each).absolute()) for each in path)}


def report_of(folder: Path, *arguments: str) -> dict:
    """What the command says of a program that waits."""
    command = [sys.executable, "-m", "syncfree", "syncs", "--tier", "3", "--json", "found.json"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", RUNS)
def test_the_command_proves(tmp_path: Path, name: str) -> None:
    options, program, expected = RUNS[name]
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    document = report_of(tmp_path, *options, "program.py")
    found = {
        each["source"].rpartition("# ")[2]: (each["verdict"], each["proof"])
        for each in document["findings"]
        if each["verdict"] != "conditional"
    }
    assert found == expected, document["findings"]


def test_the_waits_of_the_example_are_proven(tmp_path: Path) -> None:
    """One of them is inside of TorchMetrics."""
    example = Path(__file__).parents[1] / "examples" / "hidden_waits.py"
    document = report_of(tmp_path, "--prove", str(example))
    waits = [each for each in document["findings"] if each["verdict"] == "sync"]
    assert len({(each["file"], each["line"]) for each in waits}) >= 5
    assert any("torch.bincount" in each["source"] for each in waits)
    # What runs once has one try, for which a busy host may come too late.
    unproven = [each for each in waits if each["count"] > 1 and each["proof"] != "proven"]
    assert not unproven, unproven


def test_the_profiler_and_tier_3_exclude_each_other(tmp_path: Path) -> None:
    code = """
        import warnings
        import torch, syncfree
        from torch.profiler import ProfilerActivity, profile
        torch.ones(1, device="cuda")
        with profile(activities=[ProfilerActivity.CUDA]):
            torch.ones(1, device="cuda").sum()
            torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with syncfree.detect_syncs() as report:
                torch.ones(1, device="cuda").item()
        print(report.tier, report.count >= 1, report.note)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Where CUPTI serves several tools, or the profiler gives it back, tier 3 it is.
    assert done.stdout.startswith(("2 True tier 2", "3 True"))
