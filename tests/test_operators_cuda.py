"""Operators and forward lines on a GPU, whose backward passes run in threads of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_cuda

PROGRAM = """
import json
import sys

import syncfree
import torch

x = torch.rand(1000, device="cuda", requires_grad=True)
layer = torch.nn.Linear(1000, 1000, device="cuda")
mask = torch.rand(1000, device="cuda") > 0.5


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        gradient.sum().item()  # in backward
        return gradient * 2


def step():
    total = layer(x).sum()
    total.item()  # item
    picked = layer(x)[mask]  # mask
    product = (x + 1).prod()  # product
    mine = Reads.apply(x)  # own
    (total + picked.sum() + product + mine.sum()).backward()  # backward


step()  # loads code
torch.cuda.synchronize()
with syncfree.detect_syncs(tier=3) as report:
    step()
with syncfree.detect_syncs(tier=3) as second:
    x.detach()[mask]  # second region
json.dump([report.json(), second.json()], sys.stdout)
"""


def comment(source: str) -> str:
    return source.rpartition("# ")[2]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    # In a process of its own: after tier 3 torch.profiler sees no GPU events.
    file = tmp_path_factory.mktemp("operators") / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    reports: list[dict] = json.loads(done.stdout)
    assert not [each["note"] for each in reports if "not known" in each["note"]]
    return reports


def counted(report: dict) -> list[dict]:
    return [each for each in report["findings"] if each["verdict"] == "sync"]


def told(report: dict) -> str:
    return "\n".join(
        f"{each['source']} | {each['api']} | {each['op_stack']} | {each['forward']}"
        for each in report["findings"]
    )


def at(report: dict, line: str) -> list[dict]:
    found = [each for each in counted(report) if comment(each["source"]) == line]
    assert found, told(report)
    return found


def test_a_scalar_read_names_its_operators(reports: list[dict]) -> None:
    for each in at(reports[0], "item"):
        assert each["op_stack"] == ["aten::_local_scalar_dense", "aten::item"], told(reports[0])
        assert each["forward"] is None


def test_a_mask_names_its_operators(reports: list[dict]) -> None:
    for report, line in zip(reports, ("mask", "second region"), strict=True):
        for each in at(report, line):
            assert {"aten::nonzero", "aten::index"} <= set(each["op_stack"]), told(report)
            assert "Keep the full shape" in each["suggestion"]


@pytest.mark.parametrize(
    ("forward", "node", "place"),
    [
        ("mask", "IndexBackward0", "backward"),
        ("product", "ProdBackward0", "backward"),
        ("own", "ReadsBackward", "in backward"),
    ],
)
def test_waits_of_a_backward_pass_name_both_lines(
    reports: list[dict], forward: str, node: str, place: str
) -> None:
    numbers = {comment(text): n for n, text in enumerate(PROGRAM.splitlines(), 1) if "# " in text}
    found = [each for each in counted(reports[0]) if node in each["op_stack"]]
    assert found, told(reports[0])
    for each in found:
        assert each["forward"]["line"] == numbers[forward], told(reports[0])
        assert each["line"] == numbers[place], told(reports[0])
        # The line that began the backward pass is behind all that autograd's threads do.
        assert numbers["backward"] in {frame["line"] for frame in each["stack"]}


def test_every_node_of_autograd_has_a_forward_line(reports: list[dict]) -> None:
    for each in reports[0]["findings"]:
        nodes = [name for name in each["op_stack"] if re.fullmatch(r"\w+Backward\d*", name)]
        assert bool(nodes) == (each["forward"] is not None), told(reports[0])
        assert not nodes or each["forward"]["line"] > 0, told(reports[0])
