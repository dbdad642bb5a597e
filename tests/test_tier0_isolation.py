"""Tier 0 leaves torch as it was; nesting, threads, modules that bind names, what it refuses."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from syncfree.detector.findings import Event, Recorder
from syncfree.detector.tier0 import Tier0
from syncfree.errors import DetectorError, VirtualDeviceError

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)

NAMESPACES: list[Any] = [
    torch.Tensor,
    torch.UntypedStorage,
    threading.Thread,
    torch.profiler.profiler._KinetoProfile,
    *(
        module
        for name, module in list(sys.modules.items())
        if name == "torch" or name.startswith("torch.")
    ),
]


KINDS = (
    type,
    property,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
)
# Torch itself adds no names to these while it works.
FIXED = (torch, torch._C, torch.Tensor, torch.UntypedStorage, torch.cuda, threading.Thread)


def everything() -> dict[tuple[str, str], Any]:
    """What stands under each name of torch, without its counters and caches."""
    return {
        (repr(space), name): value
        for space in NAMESPACES
        for name, value in list(getattr(space, "__dict__", {}).items())
        if issubclass(type(value), KINDS)
    }


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    # What torch loads, and replaces of itself, on first use.
    torch.compile(abs, backend="eager")(torch.ones(2))
    with Tier0(Recorder()):
        torch.ones(2, device="cuda").sum().item()
    before, names = everything(), [set(vars(space)) for space in FIXED]
    dtype = torch.get_autocast_dtype("cpu")
    yield
    after = everything()
    assert [k for k in before if before[k] is not after.get(k)] == []
    assert [set(vars(space)) for space in FIXED] == names
    assert not torch.cuda.is_available()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert torch.get_autocast_dtype("cpu") is dtype
    assert not torch.is_autocast_enabled("cpu")


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


def test_default_devices() -> None:
    with Tier0(Recorder()):
        torch.set_default_device("cuda")
        try:
            assert torch.zeros(2).is_cuda
            assert torch.tensor([1.0]).is_cuda
            assert torch.nn.Linear(2, 2).weight.is_cuda
            assert not torch.zeros(2, device="cpu").is_cuda
        finally:
            torch.set_default_device(None)
        assert not torch.zeros(2).is_cuda


def test_generators() -> None:
    with Tier0(Recorder()):
        generator = torch.Generator(device="cuda")
        assert isinstance(generator, torch.Generator)
        assert isinstance(torch.default_generator, torch.Generator)
        assert generator.device.type == "cuda"
        draws = []
        for _ in range(2):
            generator.manual_seed(5)
            draws.append(torch.rand(3, device="cuda", generator=generator))
        assert torch.equal(*draws)


def test_host_memory_is_not_marked_by_a_copy() -> None:
    import numpy as np

    with Tier0(Recorder()):
        array = np.zeros(3, np.float32)
        host = torch.from_numpy(array)
        there = torch.as_tensor(array, device="cuda")
        there += 1
        assert not host.is_cuda
        assert array.tolist() == [0.0, 0.0, 0.0]
        again = host.to("cuda")
        again += 1
        assert not host.is_cuda
        assert host.tolist() == [0.0, 0.0, 0.0]


def test_meta_tensors_stay_meta() -> None:
    with Tier0(Recorder()):
        x = torch.ones(2, device="cuda")
        assert x.to("meta").is_meta
        assert x.to("meta").device.type == "meta"
        assert torch.empty_like(x, device="meta").device.type == "meta"
        net = torch.nn.Linear(2, 2, device="meta")
        assert net.to_empty(device="cuda").weight.is_cuda


def test_arguments_by_name() -> None:
    with Tier0(Recorder()):
        assert torch.tensor(data=[1.0], device="cuda").is_cuda
        assert torch.asarray(obj=[1.0], device="cuda").is_cuda
        assert torch.zeros(2).to(device="cuda", dtype=torch.float64).is_cuda
        assert torch.zeros(2).to(other=torch.zeros(1, device="cuda")).is_cuda
        assert torch.zeros(2).to(0).is_cuda
        assert torch.zeros(2).cuda(0, True).get_device() == 0
        with pytest.raises(TypeError):
            torch.tensor()


def test_cuda_tensors_refuse_numpy_as_torch_does() -> None:
    with Tier0(Recorder()):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            torch.ones(2, device="cuda").numpy()
        with pytest.raises(RuntimeError, match="cannot pin"):
            torch.ones(2, device="cuda").pin_memory()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch.cuda.CUDAGraph(), "torch.cuda.CUDAGraph"),
        (lambda: torch.cuda.graph(None), "torch.cuda.graph"),
        (lambda: torch.cuda.make_graphed_callables(None, ()), "torch.cuda.make_graphed_callables"),
        (lambda: torch.cuda.cudart(), "torch.cuda.cudart"),
        (lambda: torch.cuda.MemPool(), "torch.cuda.MemPool"),
        (lambda: torch.cuda._sleep(9), "torch.cuda._sleep"),
        (lambda: torch.cuda.nccl.version(), "torch.cuda.nccl.version"),
        (lambda: torch.cuda.set_device(3), "cuda:3"),
        (lambda: torch.zeros(2, device="cuda:1"), "cuda:1"),
        (lambda: torch.zeros(2).cuda(2), "cuda:2"),
        (lambda: torch.cuda.FloatTensor(3), "torch.cuda.FloatTensor"),
        (lambda: torch.cuda.HalfTensor([1.0]), "torch.cuda.HalfTensor"),
        (
            lambda: torch.set_default_tensor_type("torch.cuda.FloatTensor"),
            "torch.set_default_tensor_type",
        ),
        (
            lambda: torch.set_default_tensor_type(torch.cuda.DoubleTensor),
            "torch.set_default_device",
        ),
    ],
)
def test_what_is_not_supported_is_named(call: Any, name: str) -> None:
    with Tier0(Recorder()), pytest.raises(VirtualDeviceError, match=name.replace(".", r"\.")):
        call()


def test_names_of_cuda_tensor_types_are_types() -> None:
    before = torch.cuda.FloatTensor
    with Tier0(Recorder()):
        x = torch.ones(2, device="cuda")
        assert isinstance(x, torch.cuda.FloatTensor)
        assert not isinstance(x, torch.cuda.LongTensor)
        assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
        assert torch.ones(2).type(torch.cuda.HalfTensor).type() == "torch.cuda.HalfTensor"
    assert torch.cuda.FloatTensor is before


def test_a_function_stored_away_is_refused() -> None:
    factories = {"zeros": torch.zeros}
    with Tier0(Recorder()), pytest.raises(VirtualDeviceError, match="stored before"):
        factories["zeros"](2, device="cuda")


def test_every_public_name_of_torch_cuda_is_answered_or_refused() -> None:
    """None is left as it is on a machine without a GPU, where it would fail unnamed."""
    types = ("Tensor", "Storage")
    kept = {"amp", "CudaError", "DeferredCudaCallError", "cudaStatus"}
    before = {name: getattr(torch.cuda, name, None) for name in torch.cuda.__all__}
    with Tier0(Recorder()):
        same = {
            name
            for name, old in before.items()
            if callable(old) and getattr(torch.cuda, name) is old and not name.endswith(types)
        }
    assert same <= kept


def test_questions_about_the_device() -> None:
    with Tier0(Recorder()):
        assert torch.cuda.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert "syncfree" in torch.cuda.get_device_name()
        assert torch.cuda.get_device_properties(0).major == torch.cuda.get_device_capability()[0]
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total
        assert torch.cuda.memory_stats()["num_ooms"] == 0
        assert torch.get_device_module() is torch.cuda
        assert torch.accelerator.current_accelerator().type == "cuda"
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_rng_state(torch.cuda.get_rng_state())
        with torch.cuda.nvtx.range("step"), torch.cuda.device(0):
            pass
        assert not hasattr(torch._C, "_cuda_no_such_thing")


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


def test_nccl_groups_run_on_gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one there that names ranks
    recorder = Recorder()
    with Tier0(recorder):
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        try:
            net = torch.nn.parallel.DistributedDataParallel(
                torch.nn.Linear(3, 2).cuda(), device_ids=[0]
            )
            net(torch.ones(2, 3, device="cuda")).sum().backward()
            total = torch.ones(2, device="cuda")
            torch.distributed.all_reduce(total)
            assert total.is_cuda
            assert "torch.distributed.barrier" not in apis(recorder)
            torch.distributed.barrier()
        finally:
            torch.distributed.destroy_process_group()
    waits = [f for f in recorder.findings() if f.event.verdict.value == "sync"]
    assert [(f.event.api, f.count) for f in waits] == [("torch.distributed.barrier", 1)]
