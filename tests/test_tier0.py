"""Tier 0 sees each wait at its line and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tier0_cases
from syncfree.detector import set_up
from syncfree.detector.findings import Finding, Recorder
from syncfree.detector.tier0 import Tier0

pytestmark = [
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
    ),
    pytest.mark.filterwarnings(
        "ignore:Sparse invariant checks",
        "ignore:Sparse CSR tensor support",
        "ignore:The PyTorch API of nested tensors",
        "ignore:.*torch.jit.script",
    ),
]

CASES = str(Path(tier0_cases.__file__))
EXPECTED = re.compile(r"# (sync|conditional): (\S+(?: [a-z]+)*)")


def expected_of(program: Callable[[], None]) -> set[tuple[int, str, str]]:
    lines, first = inspect.getsourcelines(program)
    return {
        (number, verdict, api)
        for number, line in enumerate(lines, first)
        for verdict, api in EXPECTED.findall(line)
    }


def found_in(findings: list[Finding]) -> set[tuple[int, str, str]]:
    return {(f.line, f.event.verdict.value, f.event.api) for f in findings}


@pytest.mark.parametrize("program", tier0_cases.PROGRAMS, ids=lambda p: p.__name__)
def test_verdicts_and_lines(program: Callable[[], None]) -> None:
    recorder = Recorder()
    set_up.begin()
    with Tier0(recorder):
        program()
    findings = recorder.findings()
    assert found_in(findings) == expected_of(program)
    for finding in findings:
        assert finding.file == CASES
        assert finding.function == program.__name__
        assert finding.blocked_us is None


X = torch.linspace(-1, 1, 36).reshape(6, 6)
Y = torch.arange(6) % 3
COMPOSED = [
    lambda x, y: F.one_hot(y, 3),
    lambda x, y: F.pad(x[None, None], (1, 1, 1, 1), "reflect"),
    lambda x, y: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"),
    lambda x, y: F.grid_sample(
        x[None, None], x[None, :3, :2, None].expand(1, 3, 2, 2), align_corners=False
    ),
    lambda x, y: F.unfold(x[None, None], 3),
    lambda x, y: F.cross_entropy(x, y, reduction="none"),
    lambda x, y: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    lambda x, y: torch.nn.utils.rnn.pad_sequence([x[0], x[1, :2]]),
    lambda x, y: torch.nn.utils.rnn.pack_sequence([x[:3], x[:2]]).data,
    lambda x, y: torch.block_diag(x, x),
    lambda x, y: torch.bucketize(x, x[0]),
    lambda x, y: torch.cartesian_prod(x[0], x[1]),
    lambda x, y: torch.cdist(x, x),
    lambda x, y: torch.combinations(x[0]),
    lambda x, y: torch.einsum("ij,kj->ik", x, x),
    lambda x, y: torch.fft.rfft(x),
    lambda x, y: torch.histc(x, bins=4, min=-1, max=1),
    lambda x, y: torch.kron(x, x),
    lambda x, y: torch.linalg.matrix_rank(x),
    lambda x, y: torch.linalg.pinv(x),
    lambda x, y: torch.quantile(x, 0.5),
    lambda x, y: torch.stft(x.flatten(), 8, return_complex=True, window=torch.ones(8).to(x)),
    lambda x, y: torch.tensordot(x, x, 1),
    lambda x, y: torch.unique(y, return_counts=True)[1],
    lambda x, y: torch.vander(x[0]),
    lambda x, y: torch.zeros_like(x).index_put((y, y), x[0], accumulate=True),
    lambda x, y: x.new_zeros(6).scatter_reduce(0, y, x[0], "amax"),
    lambda x, y: x.view(torch.int32),
    lambda x, y: x.to_sparse().to_dense(),
    lambda x, y: torch.stack(torch.func.vmap(torch.sort)(x)[:1]),
    lambda x, y: torch.func.hessian(lambda t: t.pow(3).sum())(x[0]),
]


@pytest.mark.parametrize("compute", COMPOSED)
def test_results_are_marked_and_the_cpus(compute: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Also where torch puts an operation together in C++, from tensors of its own."""
    want = compute(X, Y)
    with Tier0(Recorder()):
        got = compute(X.cuda(), Y.cuda())
        assert got.is_cuda
        assert not compute(X, Y).is_cuda
    assert torch.equal(got, want)


def test_the_table_is_large() -> None:
    bodies = [inspect.getsourcelines(program)[0][1:] for program in tier0_cases.PROGRAMS]
    assert sum(map(len, bodies)) > 200
    assert sum(len(expected_of(program)) for program in tier0_cases.PROGRAMS) >= 90
