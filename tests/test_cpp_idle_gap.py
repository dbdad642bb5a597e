"""The sweep over idle gaps in C++ programs: Python's rules and words, and its plot."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import torch

from cpp_programs import ROOT
from fake_driver import compiled
from syncfree.benchmarking.gap_verdict import Cause, GapPoint
from syncfree.benchmarking.gaps import IdleGap
from syncfree.cli import main


def told(*command: object, libcuda: object = "/nowhere/libcuda.so", given: str = "") -> str:
    done = subprocess.run(
        list(map(str, command)), input=given, capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "SYNCFREE_LIBCUDA": str(libcuda)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def count_of_checks(printed: str) -> int:
    counted = re.fullmatch(r"(\d+) checks, 0 failed\n", printed)
    assert counted is not None, printed
    return int(counted.group(1))


def test_by_a_probe_that_knows_the_truth(programs: Path) -> None:
    assert count_of_checks(told(programs / "gap_checks")) > 100


def test_by_a_driver_whose_time_stands_still(programs: Path, tmp_path: Path) -> None:
    driver = compiled(ROOT / "tests" / "fake_libcuda.cpp", tmp_path / "libfakecuda.so")
    assert count_of_checks(told(programs / "gap_driver_checks", libcuda=driver)) > 100


def some_sweeps() -> list[IdleGap]:
    """Of every cause, with figures on both sides of each threshold and of each unit of time."""
    draw = random.Random(7)

    def point(gap: float, slower: bool) -> GapPoint:
        host_slower, gpu_slower = draw.random() < 0.6, draw.random() < 0.5
        gated = 10 ** draw.uniform(0.5, 6.5) if draw.random() < 0.1 else 90.0
        gated *= draw.choice([1.2, 1.5, 4.0]) if slower and gpu_slower else 1.0
        host = draw.choice([20.0, 85.0, 999.6]) * (5 if slower and host_slower else 1)
        plain = max(gated, host) + (draw.choice([0.0, 300.0, 1e6]) if slower else 5.0)
        return GapPoint(
            gap=gap,
            plain_us=plain,
            plain_mad_us=draw.choice([0.0, 3.0, 3.0, plain / 2]),
            host_us=host,
            gated_us=None if draw.random() < 0.05 else gated,
            megahertz=draw.choice([None, 1980.0, 1980.0, 1790.5, 990.25, 345.0]),
            device_allocations=draw.choice([None, 0.0, 0.0, 0.0, 2.0]),
            n=draw.randint(1, 9),
        )

    def sweep(kind) -> IdleGap:
        points = tuple(point(gap, gap > draw.choice([0.0, 0.05])) for gap in (0.0, 0.01, 0.1, 2.5))
        reason = draw.choice(["", "", "", "it-waits"])
        return IdleGap('step "1"\n', kind, "a \\ GPU", points, reason, ("first", "second"))

    return [sweep("cpu" if i % 20 == 0 else "cuda") for i in range(400)]


def as_words(sweep: IdleGap) -> str:
    """What the program reads."""
    numbers = [
        math.nan if value is None else value
        for point in sweep.points
        for value in (getattr(point, name) for name in GapPoint.__dataclass_fields__)
    ]
    head = [sweep.kind, sweep.not_gateable or "-", str(len(sweep.points))]
    return " ".join(head + [repr(each) for each in numbers])


def test_verdicts_texts_and_documents_are_pythons(programs: Path) -> None:
    sweeps = some_sweeps()
    given = "\n".join(map(as_words, sweeps))
    lines = told(programs / "gap_checks", "verdicts", given=given).splitlines()
    assert len(lines) == 2 * len(sweeps)
    for sweep, text, document in zip(sweeps, lines[::2], lines[1::2], strict=True):
        assert json.loads(text) == str(sweep)
        assert json.loads(document) == json.loads(json.dumps(sweep.json()))
        assert IdleGap.from_json(json.loads(document)) == sweep
    causes = {sweep.verdict.cause for sweep in sweeps}
    assert causes == set(get_args(Cause)), "some cause was not compared"


@pytest.fixture
def swept(ops):
    """A sweep of short gaps over calls on `x`, by the C++ program."""

    def sweep(x: torch.Tensor, waits: bool = False) -> IdleGap:
        document, text = ops.idle_gap(x, waits, [0.01], 3)
        found = IdleGap.from_json(json.loads(document))
        assert text == str(found)
        assert found.name == "halve"
        assert found.kind == x.device.type
        assert [point.gap for point in found.points] == [0.0, 0.01]
        assert all(point.plain_us > 0 and point.host_us > 0 for point in found.points)
        assert {point.n for point in found.points} == {3}
        return found

    return sweep


@pytest.mark.alone
def test_calls_on_tensors(swept, device: str, tmp_path: Path, capsys) -> None:
    x = torch.ones(1 << 20, device=device)
    found = swept(x)
    assert found.not_gateable == ""
    if device == "cuda":
        assert found.device == torch.cuda.get_device_name()
        assert {point.device_allocations for point in found.points} == {0.0}
        for point in found.points:
            assert point.gated_us is not None
            assert point.gated_us > 0
            assert point.megahertz is None or 100 < point.megahertz < 5000
        assert any(point.megahertz is not None for point in found.points)
    else:
        assert found.verdict.cause in ("none", "cpu", "unexplained")
        assert {point.gated_us for point in found.points} == {None}
    assert x.max() < 1e-6, "the calls were made"
    # The file that the program writes is what the command draws.
    (tmp_path / "sweep.json").write_text(json.dumps(found.json()))
    arguments = [str(tmp_path / "sweep.json"), "--plot", str(tmp_path / "sweep.svg")]
    assert main(["bench", "idle-gap", *arguments]) == 0
    assert capsys.readouterr().out.startswith("halve on ")
    assert "</svg>" in (tmp_path / "sweep.svg").read_text()


@pytest.mark.needs_cuda
@pytest.mark.alone
def test_a_call_that_waits_is_not_gateable(swept) -> None:
    found = swept(torch.ones(1000, device="cuda"), waits=True)
    assert "the call waits for the GPU" in found.not_gateable
    assert {point.gated_us for point in found.points} == {None}
    assert found.verdict.cause in ("none", "waits")


@pytest.mark.needs_cuda
@pytest.mark.alone
def test_on_the_current_stream(swept) -> None:
    x = torch.ones(1 << 26, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        found = swept(x)
    assert found.not_gateable == ""
    # 512 MiB through memory: events of another stream would stand microseconds apart.
    assert all(point.gated_us is not None and point.gated_us > 30 for point in found.points)


@pytest.mark.needs_two_gpus
@pytest.mark.alone
def test_on_the_device_of_the_tensor(swept) -> None:
    found = swept(torch.ones(1000, device="cuda:1"))
    assert torch.cuda.current_device() == 0
    assert found.not_gateable == ""


def test_wrong_gaps(ops, device: str) -> None:
    with pytest.raises(RuntimeError, match=r"syncfree: Expected `gaps` .* but got -1\."):
        ops.idle_gap(torch.ones(3, device=device), False, [-1.0], 3)
