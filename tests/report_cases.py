"""Reports of a small program, for the tests of what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncfree.detector import (
    Event,
    Frame,
    Recorder,
    Report,
    Verdict,
)

SOURCE = """import torch

def step(loss):
    print(f"loss {loss.item():.3f}")
    return loss.item()
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def make_event(file: str, line: int = 4, api: str = "Tensor.item", **fields: Any) -> Event:
    stack = (Frame(file, line, "step"), Frame(file, 9, "main"))
    values = {"verdict": Verdict.SYNC, "why": "It reads a number.", "stack": stack, **fields}
    return Event(api, **values)


def make_report(*events: Event, seconds: float = 1.0, **fields: Any) -> Report:
    recorder = Recorder()
    for event in events:
        recorder.record(event)
    return Report.of(recorder.findings(), tier=0, seconds=seconds, **fields)


@pytest.fixture
def report(train: str) -> Report:
    full = make_event(
        train,
        5,
        "cuMemcpyDtoHAsync_v2",
        blocked_us=250_000.0,
        direction="d2h",
        bytes=4,
        host_memory="pageable",
        op_stack=("aten::_local_scalar_dense", "aten::item"),
        forward=Frame(train, 3, "step"),
        library="libtorch_cuda.so",
    )
    maybe = make_event(train, 1, "cuModuleLoadData", verdict=Verdict.CONDITIONAL, one_time=True)
    plain = make_event(train)
    return make_report(plain, maybe, full, plain, full, allowed={"meant": 3}, note="a note")
