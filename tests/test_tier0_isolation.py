"""Tier 0 leaves torch as it was; nesting, threads, modules that bind names, stored functions."""

from __future__ import annotations

import contextlib
import importlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import BaseTorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from syncfree.detector.findings import Event, Recorder
from syncfree.detector.tier0 import Tier0
from syncfree.errors import DetectorError, VirtualDeviceError
from torch_as_before import as_before  # noqa: F401

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)


def apis(recorder: Recorder) -> set[str]:
    return {finding.event.api for finding in recorder.findings()}


def test_an_exception_passes_through_and_undoes_all() -> None:
    recorder = Recorder()
    with contextlib.suppress(ZeroDivisionError), Tier0(recorder):
        kept = torch.ones(2, device="cuda")
        if kept.sum() > 1:
            raise ZeroDivisionError
    assert apis(recorder) == {"Tensor.__bool__"}
    assert kept.device.type == "cpu"  # the tensor that it always was
    assert kept.sum().item() == 2
    assert apis(recorder) == {"Tensor.__bool__"}


def test_an_exception_while_autocast_is_on() -> None:
    ones = torch.ones(2, 2)
    with contextlib.suppress(ZeroDivisionError), Tier0(Recorder()), torch.autocast("cuda"):
        assert (ones.cuda() @ ones.cuda()).dtype is torch.float16
        raise ZeroDivisionError


def test_a_failure_on_entry_undoes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncfree.detector.tier0 import device_module

    def fail(replace: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(device_module, "install", fail)
    with pytest.raises(ZeroDivisionError):
        Tier0(Recorder()).__enter__()


def test_a_recorder_that_raises_prevents_the_wait() -> None:
    class Raises(Recorder):
        def record(self, event: Event) -> None:
            raise PermissionError(event.api)

    with Tier0(Raises()):
        x = torch.ones(2, device="cuda")
        for wait, api in (
            (lambda: x.sum().item(), "Tensor.item"),
            (lambda: torch.nonzero(x), "aten::nonzero"),
            (torch.cuda.synchronize, "torch.cuda.synchronize"),
            (x.cpu, "Tensor.cpu"),
        ):
            with pytest.raises(PermissionError, match=api):
                wait()
    recorder = Recorder()
    with Tier0(recorder):
        x.sum().item()  # nothing is left muted
    assert apis(recorder) == {"Tensor.item"}


def test_nested_tiers_share_what_happens_inside() -> None:
    outer, inner = Recorder(), Recorder()
    with Tier0(outer):
        x = torch.ones(2, device="cuda")
        x.sum().item()
        with Tier0(inner):
            x.tolist()
        x.cpu()
        assert x.is_cuda
    assert apis(outer) == {"Tensor.item", "Tensor.tolist", "Tensor.cpu"}
    assert apis(inner) == {"Tensor.tolist"}


def test_marks_last_from_one_tier_to_the_next() -> None:
    with Tier0(Recorder()):
        x = torch.ones(2, device="cuda")
    recorder = Recorder()
    with Tier0(recorder):
        assert x.is_cuda
        (x + 1).tolist()
    assert apis(recorder) == {"Tensor.tolist"}


def test_threads_started_inside_are_followed() -> None:
    recorder = Recorder()

    def work(x: torch.Tensor) -> float:
        y = (x * 2)[x > 0].sum()
        assert y.is_cuda
        return float(y)

    with Tier0(recorder):
        x = torch.ones(3, device="cuda")
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(work, [x] * 16)) == {6.0}
    counts = {finding.event.api: finding.count for finding in recorder.findings()}
    assert counts == {"aten::index": 16, "Tensor.__float__": 16}


def test_threads_of_before_are_left_alone() -> None:
    begin, done = threading.Event(), threading.Event()
    values: list[Any] = []

    def work() -> None:
        begin.wait()
        values.append(torch.ones(3).sum().item())
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    recorder = Recorder()
    with Tier0(recorder):
        begin.set()
        done.wait()
    thread.join()
    assert values == [3.0]
    assert recorder.findings() == []


def test_names_bound_by_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from torch import tensor, zeros as make\nfrom torch.cuda import is_available as there\n"
    for name in ("bound_before", "bound_inside"):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = importlib.import_module("bound_before")
    with Tier0(Recorder()):
        inside = importlib.import_module("bound_inside")
        for module in (before, inside):
            assert module.there()
            assert module.tensor([1.0], device="cuda").is_cuda
            assert module.make(2, device="cuda").is_cuda
    for module in (before, inside):
        assert module.tensor is torch.tensor
        assert module.make is torch.zeros
        assert module.there is torch.cuda.is_available


def test_functions_compiled_before_run_eagerly() -> None:
    double = torch.compile(lambda x: x * 2, backend="eager")
    double(torch.ones(2))
    with Tier0(Recorder()):
        assert double(torch.ones(2, device="cuda")).is_cuda


def test_other_modes_work_beside_it() -> None:
    with Tier0(Recorder()), FlopCounterMode(display=False) as flops:
        y = torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
        assert y.is_cuda
        assert torch.vmap(lambda row: row.to(row.device) * 2)(y).is_cuda
        assert torch.func.grad(lambda t: t.square().sum())(y).is_cuda
    assert flops.get_total_flops() == 128


class _Labelled(Tensor):
    """A subclass that hands every call on, as those of torchvision do."""


@pytest.mark.parametrize("kind", [Tensor, _Labelled])
@pytest.mark.parametrize("inside", [torch.device("cuda"), BaseTorchFunctionMode(), nullcontext()])
def test_calls_that_come_back_by_name_are_judged_once(
    kind: type[Tensor], inside: AbstractContextManager[object]
) -> None:
    recorder = Recorder()
    with Tier0(recorder), inside:
        x = torch.ones(2, device="cuda").as_subclass(kind)
        assert all(moved.is_cuda for moved in (x.to("cuda"), x.to(0, torch.float64), x.cuda()))
        assert x.type() == "torch.cuda.FloatTensor"
        assert recorder.findings() == []
        assert x.new_tensor([1.0]).is_cuda
        assert not x.cpu().is_cuda
        assert not x.to("cpu").is_cuda
    counts = {each.event.api: each.count for each in recorder.findings()}
    assert counts == {"Tensor.new_tensor": 1, "Tensor.cpu": 1, "Tensor.to": 1}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("with_gradient", [False, True])
def test_flex_attention(with_gradient: bool) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    recorder = Recorder()
    with Tier0(recorder):
        q = torch.rand(1, 2, 8, 16, device="cuda", requires_grad=with_gradient)
        plain = flex.flex_attention(q, q, q)
        twice = flex.flex_attention(q, q, q, score_mod=lambda score, *_: score * 2)
        causal = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 8, 8, device="cuda")
        masked = flex.flex_attention(q, q, q, block_mask=causal)
        assert all(each.is_cuda for each in (plain, twice, masked))
        torch.testing.assert_close(plain, F.scaled_dot_product_attention(q, q, q))
        if with_gradient:
            (plain + twice + masked).sum().backward()
            assert q.grad is not None
            assert q.grad.is_cuda


def test_fake_tensors_stay_fake() -> None:
    with Tier0(Recorder()), FakeTensorMode():
        x = torch.ones(2, 2, device="cuda")
        assert isinstance(x @ x * 2, FakeTensor)


def test_gradients_of_fake_tensors() -> None:
    with Tier0(Recorder()):
        weight = torch.ones(2, 2, device="cuda", requires_grad=True)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = mode.from_tensor(weight)
            (torch.ones(2, 2, device="cuda") @ fake).sum().backward()
            assert isinstance(fake.grad, FakeTensor)
    assert weight.grad is None


def test_control_flow_of_torch_reads_its_condition() -> None:
    recorder = Recorder()
    with Tier0(recorder):
        layer = torch.nn.Linear(2, 2, device="cuda")
        x = torch.ones(2, 2, device="cuda", requires_grad=True)
        chosen = torch.cond(x.sum() > 0, lambda x: layer(x).sin(), lambda x: x.cos(), (x,))
        chosen.sum().backward()
        torch.testing.assert_close(chosen, layer(x).sin())
        assert layer.weight.grad is not None
        assert layer.weight.grad.is_cuda
        (count,) = torch.while_loop(lambda i: i < 3, lambda i: (i + 1,), (chosen[0, 0] * 0,))
        assert count.is_cuda
    line = test_control_flow_of_torch_reads_its_condition.__code__.co_firstlineno
    found = {each.line - line: (each.event.api, each.count) for each in recorder.findings()}
    assert found[5] == ("Tensor.__bool__", 1)
    assert found[10] == ("Tensor.__bool__", 4)
    assert count.item() == 3


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torchscript_knows_the_functions_that_are_replaced() -> None:
    def scripted(x: Tensor) -> Tensor:
        return x + torch.zeros(2) + torch.full((2,), 3.0)

    with Tier0(Recorder()):
        compiled = torch.jit.script(scripted)
        assert compiled(torch.ones(2, device="cuda")).is_cuda
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_what_torchscript_makes_beside_a_tensor_is_marked() -> None:
    def scripted(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = torch.arange(3, device=x.device)
        return made, torch.zeros(3), made[made > 0]

    class Scripted(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(x.shape, device=x.device)

    recorder = Recorder()
    with Tier0(recorder):
        function, module = torch.jit.script(scripted), torch.jit.script(Scripted())
        made = function(torch.ones(2, device="cuda"))
        assert [each.is_cuda for each in made] == [True, False, True]
        assert module(torch.ones(2, device="cuda")).is_cuda
        assert apis(recorder) == {"aten::index"}
        assert not any(each.is_cuda for each in function(torch.ones(2)))
        assert not module(torch.ones(2)).is_cuda


def test_a_function_stored_away_is_refused() -> None:
    factories = {"zeros": torch.zeros}
    with Tier0(Recorder()), pytest.raises(VirtualDeviceError, match="stored before"):
        factories["zeros"](2, device="cuda")


def test_a_real_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        with pytest.raises(DetectorError, match="real"):
            Tier0(Recorder()).__enter__()


def test_subclasses_that_dispatch_themselves() -> None:
    recorder = Recorder()
    with Tier0(recorder):
        parts = [torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda")]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        assert nested.is_cuda
        assert F.relu(nested).is_cuda
        lazy = torch.nn.LazyLinear(2, device="cuda")
        assert lazy(torch.ones(1, 3, device="cuda")).is_cuda
