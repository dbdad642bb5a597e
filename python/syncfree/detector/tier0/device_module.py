"""`torch.cuda` of a machine with one idle GPU. A call without an answer raises and is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from syncfree.detector.findings import Verdict
from syncfree.detector.tier0 import recording, streams
from syncfree.detector.tier0.recording import record
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import is_cuda, on_device
from syncfree.errors import VirtualDeviceError

MEMORY = 80 * 1024**3
_NAME = "Virtual CUDA device (syncfree tier 0)"
_CAPABILITY = (9, 0)


def install(replace: Replacements) -> None:
    """Replaces functions of `torch.cuda`, and of `torch._C` that its files call."""
    for name in torch.cuda.__all__:
        if name not in _ANSWERS and name not in _KEPT:
            old = getattr(torch.cuda, name, None)
            if isinstance(old, type(torch.FloatTensor)):
                replace.put(torch.cuda, name, _tensor_type(name, old))
            elif callable(old) and not _is_storage_type(old):
                _put_everywhere(replace, name, _refusal(f"torch.cuda.{name}", old))
    for name, answer in _ANSWERS.items():
        _put_everywhere(replace, name, answer)
    replace.put(torch.cuda, "_lazy_init", _lazy_init)
    # Afterwards a torch for CUDA has as few of these as a torch for the CPU.
    for name in [name for name in vars(torch._C) if name.startswith(_CUDA_ONLY)]:
        replace.hide(torch._C, name)
    replace.put(torch._C, "__getattr__", _missing)
    replace.put(
        torch._C, "_scatter", lambda tensor, *_: (tensor.cuda(non_blocking=True),)
    )  # to one GPU
    replace.put(torch.cuda, "default_generators", (torch.default_generator,))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        replace.put(torch.cuda.nvtx, name, answer_with(0 if name != "mark" else None))
    replace.put(torch.cuda.nvtx, "range", _range)
    replace.put(torch.cuda.profiler, "start", answer_with())
    replace.put(torch.cuda.profiler, "stop", answer_with())
    replace.put(torch.cuda.memory, "_record_memory_history", answer_with())
    replace.put(torch.cuda.memory, "_snapshot", _snapshot)


def _put_everywhere(replace: Replacements, name: str, new: Any) -> None:
    """Replaces a name in `torch.cuda` and in its submodule that defines the name."""
    old = getattr(torch.cuda, name, None)
    if old is None:
        return
    replace.put(torch.cuda, name, new)
    home = getattr(old, "__module__", None) or ""
    if home.startswith("torch.cuda.") and vars(sys.modules[home]).get(name) is old:
        replace.put(sys.modules[home], name, new)


def _is_storage_type(value: Any) -> bool:
    """Whether it is a type such as `torch.cuda.FloatStorage`, whose constructor asks for a GPU."""
    return isinstance(value, type) and value.__name__.endswith("Storage")


class _TensorType(type):
    """The type of `torch.cuda.FloatTensor`, which names a dtype on the device and is no class."""

    dtype: torch.dtype
    is_cuda = True
    layout = torch.strided

    def __instancecheck__(cls, instance: object) -> bool:
        known = isinstance(instance, torch.Tensor) and on_device(instance)
        return known and instance.dtype is cls.dtype  # type: ignore[attr-defined]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise VirtualDeviceError(
            f"torch.cuda.{cls.__name__}(...)",
            f"Write torch.tensor(..., dtype={cls.dtype}, device='cuda') or torch.empty.",
        )


def _tensor_type(name: str, old: Any) -> Any:
    return _TensorType(name, (), {"__module__": "torch.cuda", "dtype": old.dtype})


def _refusal(name: str, old: Any) -> Any:
    if isinstance(old, type):

        def construct(cls: type, *args: Any, **kwargs: Any) -> Any:
            raise VirtualDeviceError(name)

        return type(old.__name__, (), {"__new__": construct, "__doc__": old.__doc__})

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise VirtualDeviceError(name)

    return refuse


def _lazy_init() -> None:
    """Called by functions of torch.cuda without an answer here, and by torch's C++ factories."""
    caller = sys._getframe(1)
    module = caller.f_globals.get("__name__", "")
    if module.startswith("torch.cuda"):
        raise VirtualDeviceError(f"{module}.{caller.f_code.co_name}")
    raise VirtualDeviceError(
        "device='cuda' in a torch function that was stored before the sync detector started",
        "Look it up when it is called, as in torch.zeros(...), or start the detector earlier.",
    )


_CUDA_ONLY = ("_cuda", "_nccl", "_nvtx", "_broadcast", "_gather", "_scatter")


class _MissingCall(VirtualDeviceError, AttributeError):
    """Also an AttributeError, so that `hasattr` returns False."""


def _missing(name: str) -> Any:
    """`torch._C.__getattr__`: refuses the functions there that need a GPU."""
    if not name.startswith(_CUDA_ONLY):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
    caller = sys._getframe(1)
    raise _MissingCall(f"{caller.f_globals.get('__name__')}.{caller.f_code.co_name}")


@contextmanager
def _range(message: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def answer_with(answer: Any = None) -> Callable[..., Any]:
    """A function that returns `answer` for all arguments."""
    return lambda *args, **kwargs: answer


class _Runtime:
    """The result of `torch.cuda.cudart()`; only the profiler's start and stop are there."""

    cudaError = SimpleNamespace(success=0)
    cudaProfilerStart = cudaProfilerStop = staticmethod(answer_with(0))

    def __getattr__(self, name: str) -> Any:
        raise _MissingCall(f"torch.cuda.cudart().{name}")


def _snapshot(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": []}


def _synchronize(device: Any = None) -> None:
    record(
        "torch.cuda.synchronize", "The host waits until the GPU has done everything queued so far."
    )


def empty_cache() -> None:
    """As `torch.cuda.empty_cache`, which programs call without ever using a GPU."""
    if recording.device.seen:
        record(
            "torch.cuda.empty_cache",
            "Freeing cached memory waits for the GPU, if there is any to free.",
            Verdict.CONDITIONAL,
        )


def set_device(device: Any) -> None:
    """As `torch.cuda.set_device`; there is only one device."""
    # A negative number means that the device does not change.
    if not (isinstance(device, int) and device < 0):
        is_cuda(device)


class _Device:
    """As `torch.cuda.device`."""

    def __init__(self, device: Any) -> None:
        set_device(device if device is not None else -1)
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class _DeviceOf(_Device):
    """As `torch.cuda.device_of`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


def _properties(device: Any = None) -> Any:
    set_device(device if device is not None else -1)
    return SimpleNamespace(
        name=_NAME,
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        total_memory=MEMORY,
        multi_processor_count=132,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        warp_size=32,
        L2_cache_size=50 * 1024**2,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


# Seed and offset in the form of a GPU's generator, for code that uses them to count draws, as
# DTensor does. The numbers themselves come from the CPU's generator.
_rng_state = torch.zeros(16, dtype=torch.uint8, device="cpu")


def _get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return _rng_state.clone()


def _set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    _rng_state.copy_(new_state)


def _set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:  # none in a checkpoint of a machine without a GPU
        _set_rng_state(state)


_KEPT = {"amp", "CudaError", "DeferredCudaCallError", "cudaStatus", "has_half", "has_magma"} | {
    "OutOfMemoryError",
    "AcceleratorError",
}

_no = answer_with(False)
_zero = answer_with(0)
_none = answer_with()

_ANSWERS: dict[str, Any] = {
    "is_available": answer_with(True),
    # No CUDA context exists, and syncfree must not look for its own error records on a GPU.
    "is_initialized": _no,
    "init": _none,
    "device_count": answer_with(1),
    "current_device": _zero,
    "cudart": _Runtime,
    "check_error": _none,
    "set_device": set_device,
    "device": _Device,
    "device_of": _DeviceOf,
    "get_device_name": answer_with(_NAME),
    "get_device_properties": _properties,
    "get_device_capability": answer_with(_CAPABILITY),
    "get_arch_list": answer_with(["sm_90"]),
    "get_gencode_flags": answer_with("-gencode compute=compute_90,code=sm_90"),
    "can_device_access_peer": _no,
    "is_bf16_supported": answer_with(True),
    "is_tf32_supported": answer_with(True),
    "is_current_stream_capturing": _no,
    "synchronize": _synchronize,
    "Stream": streams.CudaStream,
    "Event": streams.CudaEvent,
    "StreamContext": streams.StreamContext,
    "stream": streams.stream,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "empty_cache": empty_cache,
    "ipc_collect": _none,
    "mem_get_info": answer_with((MEMORY, MEMORY)),
    "device_memory_used": _zero,
    "memory_allocated": _zero,
    "max_memory_allocated": _zero,
    "memory_reserved": _zero,
    "max_memory_reserved": _zero,
    "memory_cached": _zero,
    "max_memory_cached": _zero,
    "memory_stats": lambda *_, **__: Zeros(),
    "memory_stats_as_nested_dict": lambda *_, **__: {},
    "host_memory_stats": lambda *_, **__: Zeros(),
    "host_memory_stats_as_nested_dict": lambda *_, **__: {},
    "memory_summary": answer_with("No memory is in use on the virtual CUDA device of syncfree."),
    "memory_snapshot": lambda *_, **__: [],
    "list_gpu_processes": answer_with("GPU:0\nno processes are running"),
    "reset_peak_memory_stats": _none,
    "reset_accumulated_memory_stats": _none,
    "reset_peak_host_memory_stats": _none,
    "reset_accumulated_host_memory_stats": _none,
    "reset_max_memory_allocated": _none,
    "reset_max_memory_cached": _none,
    "set_per_process_memory_fraction": _none,
    "get_per_process_memory_fraction": answer_with(1.0),
    "get_allocator_backend": answer_with("native"),
    "utilization": _zero,
    "memory_usage": _zero,
    "temperature": answer_with(30),
    "power_draw": answer_with(70000),
    "clock_rate": answer_with(1980),
    "manual_seed": _none,
    "manual_seed_all": _none,
    "seed": _none,
    "seed_all": _none,
    "initial_seed": lambda: torch.initial_seed(),
    "get_rng_state": _get_rng_state,
    "get_rng_state_all": lambda: [_get_rng_state()],
    "set_rng_state": _set_rng_state,
    "set_rng_state_all": _set_rng_state_all,
    "get_sync_debug_mode": _zero,
    "set_sync_debug_mode": _none,
}


class Zeros(dict[str, int]):
    """Statistics of an allocator that holds nothing."""

    def __missing__(self, key: str) -> int:
        return 0

    def get(self, key: str, default: Any = 0) -> Any:
        """Zero for every key."""
        return 0
