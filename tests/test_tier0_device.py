"""What the virtual device of tier 0 answers, and what it refuses by name."""

from __future__ import annotations

import pickle
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from syncfree.detector.findings import Recorder
from syncfree.detector.tier0 import Tier0
from syncfree.errors import VirtualDeviceError
from torch_as_before import as_before  # noqa: F401

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)


def test_default_devices() -> None:
    with Tier0(Recorder()):
        torch.set_default_device("cuda")
        try:
            assert torch.zeros(2).is_cuda
            assert torch.tensor([1.0]).is_cuda
            here = torch.zeros(2, device="cpu")
            assert torch.as_tensor(here).is_cuda
            assert torch.asarray(here).is_cuda
            assert not here.is_cuda
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


# Without `requires_grad` the answer of `torch.asarray` depends on the version of torch.
@pytest.mark.parametrize(
    ("name", "options"), [("as_tensor", {}), ("asarray", {"requires_grad": True})]
)
@pytest.mark.parametrize("dtype", [None, torch.float64])
@pytest.mark.parametrize("way", [("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")])
def test_gradients_pass_functions_of_data(
    name: str, options: dict[str, Any], dtype: torch.dtype | None, way: tuple[str, str]
) -> None:
    """As plain torch lets them, for which all devices are the CPU here."""

    def gradient(source: str, target: str) -> torch.Tensor:
        leaf = torch.linspace(-1, 1, 4, device=source, requires_grad=True)
        moved = getattr(torch, name)(leaf * 2, dtype=dtype, device=target, **options)
        assert moved.requires_grad
        assert moved.device.type == target
        moved.square().sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.device.type == source
        return leaf.grad

    want = gradient("cpu", "cpu")
    with Tier0(Recorder()):
        got = gradient(*way)
    assert torch.equal(got, want)


def test_a_copy_that_torch_detaches_stays_detached() -> None:
    recorder = Recorder()
    with Tier0(recorder):
        weight = torch.ones(2, device="cuda", requires_grad=True)
        for requires_grad in (False, True):
            with pytest.warns(UserWarning, match="To copy construct"):
                copy = torch.tensor(weight, device="cpu", requires_grad=requires_grad)
            assert (copy.requires_grad, copy.is_leaf) == (requires_grad, True)
            assert not copy.is_cuda
    (found,) = recorder.findings()
    assert (found.event.api, found.count) == ("torch.tensor", 2)


def test_meta_tensors_stay_meta() -> None:
    with Tier0(Recorder()):
        x = torch.ones(2, device="cuda")
        assert x.to("meta").is_meta
        assert x.to("meta").device.type == "meta"
        for function in (torch.as_tensor, torch.asarray):
            assert function(x, device="meta").is_meta
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


def test_devices_by_number() -> None:
    before = torch.device
    with Tier0(Recorder()):
        assert torch.device(0) == torch.device("cuda", 0) == torch.device(type="cuda", index=0)
        assert torch.device("cpu").type == "cpu"
        with pytest.raises(VirtualDeviceError, match="cuda:1"):
            torch.device(1)
        here = torch.ones(2, device=torch.device(0)).device
        assert isinstance(here, torch.device)
        assert type(here) == torch.device  # noqa: E721
        assert {torch.device: 1}[type(here)] == 1
        assert pickle.loads(pickle.dumps(here)) == here
        assert nn.Linear(2, 2).to(0).weight.is_cuda
        assert nn.Linear(2, 2).to(device=0, dtype=torch.float64).weight.is_cuda
        assert not nn.Linear(2, 2).to(torch.float64).weight.is_cuda
        assert nn.utils.rnn.pack_sequence([torch.ones(2)]).to(0).data.is_cuda
        (scattered,) = nn.parallel.scatter(torch.ones(2), [0])
        assert scattered.is_cuda
    assert torch.device is before


def test_a_torchscript_function_older_than_the_tier_takes_a_device(tmp_path: Path) -> None:
    file = tmp_path / "scripted.py"
    file.write_text(
        "import torch\n"
        "from typing import Optional\n"
        "def zeros(size: int, device: Optional[torch.device] = None):\n"
        "    return torch.zeros(size, device=device)\n"
    )
    zeros = runpy.run_path(str(file))["zeros"]
    with Tier0(Recorder()):
        assert torch.jit.script(zeros)(2).tolist() == [0, 0]


def test_results_of_type_as_are_where_the_other_is() -> None:
    with Tier0(Recorder()):
        x, host = torch.ones(2, device="cuda"), torch.ones(2, dtype=torch.half)
        assert host.type_as(x).is_cuda
        assert host.type_as(x).dtype is torch.float32
        assert not x.type_as(host).is_cuda


def test_data_parallel_copies_its_input_without_blocking() -> None:
    recorder = Recorder()
    with Tier0(recorder):
        net = nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0])
        for _ in range(3):
            assert net(torch.ones(4, 2, pin_memory=True)).is_cuda
    assert not [each for each in recorder.findings() if "net(" in each.source]


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
        (lambda: torch.cuda.cudart().cudaMemGetInfo(0), "cudart().cudaMemGetInfo"),
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
    with Tier0(Recorder()), pytest.raises(VirtualDeviceError, match=re.escape(name)):
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
        torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
        torch.cuda.set_rng_state_all([])  # as of a machine without a GPU
        with torch.cuda.nvtx.range("step"), torch.cuda.device(0):
            pass
        assert not hasattr(torch._C, "_cuda_no_such_thing")


@pytest.mark.parametrize("kind", ["EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "FLASH_ATTENTION"])
def test_attention_with_kernels_that_only_a_gpu_has(kind: str) -> None:
    with Tier0(Recorder()):
        q = torch.rand(1, 2, 8, 16, device="cuda", requires_grad=True)
        with sdpa_kernel(getattr(SDPBackend, kind)):
            chosen = F.scaled_dot_product_attention(q, q, q)
            assert not torch.backends.cuda.math_sdp_enabled()
        torch.testing.assert_close(chosen, F.scaled_dot_product_attention(q, q, q))
        chosen.sum().backward()
        assert q.grad is not None
        assert q.grad.is_cuda


def test_profilers_look_for_no_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    activity = torch.profiler.ProfilerActivity
    with Tier0(Recorder()):
        x = torch.ones(2, 2, device="cuda")
        with torch.autograd.profiler.profile(use_device="cuda") as trace:
            x @ x
        assert "aten::mm" in trace.key_averages().table()
        with torch.profiler.profile(activities=[activity.CUDA]) as trace:
            x @ x
        assert "aten::mm" in trace.key_averages().table()
    assert "Failed to record CUDA event" not in capfd.readouterr().err


def test_calls_that_tell_a_profiler_where_to_look(tmp_path: Path) -> None:
    recorder = Recorder()
    with Tier0(recorder):
        runtime = torch.cuda.cudart()
        assert runtime.cudaProfilerStart() == runtime.cudaError.success
        torch.cuda.check_error(runtime.cudaProfilerStop())
        assert not hasattr(runtime, "cudaHostRegister")
        with torch.cuda.profiler.profile():
            pass
        torch.cuda.memory._record_memory_history(max_entries=10)
        torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
        torch.cuda.memory._record_memory_history(enabled=None)
        assert torch.cuda.memory._snapshot()["segments"] == []
        with torch.autograd.profiler.emit_nvtx(enabled=False):
            pass
        assert recorder.findings() == []
        with torch.autograd.profiler.emit_nvtx() as ranges:  # torch waits around what it shows
            assert ranges.enabled
        with pytest.raises(ValueError, match="mine"), torch.autograd.profiler.emit_nvtx():
            raise ValueError("mine")
    assert {each.event.api for each in recorder.findings()} == {"torch.cuda.synchronize"}
    assert recorder.counted() == 4
    assert (tmp_path / "snapshot.pickle").stat().st_size
