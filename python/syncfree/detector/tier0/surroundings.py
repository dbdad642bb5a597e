"""Other code of torch that looks for a GPU: accelerators, the compiler, the profiler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace as changed
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.meta_utils import MetaTensorDescriber
from torch.utils._pytree import tree_leaves

from syncfree.detector.tier0 import streams
from syncfree.detector.tier0.device_module import (
    MEMORY,
    Zeros,
    answer_with,
    empty_cache,
    set_device,
)
from syncfree.detector.tier0.recording import in_script, record
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import CUDA, on_device


def install(replace: Replacements) -> None:
    """Replaces functions of `torch`, `torch.accelerator` and the profiler."""
    for name, answer in _ACCELERATOR.items():
        if hasattr(torch.accelerator, name):
            replace.put(torch.accelerator, name, answer)
    replace.put(torch._C, "_get_accelerator", lambda *_: torch.device("cuda"))
    replace.put(torch.backends.cuda, "is_built", lambda: True)
    # torch's own function warns that there is no cuDNN.
    replace.put(torch.backends.cudnn, "is_acceptable", answer_with(False))
    replace.put(torch, "Stream", streams.Stream)
    replace.put(torch, "Event", streams.Event)
    replace.wrap(torch, "compile", _eager)
    replace.wrap(torch.jit._builtins, "_find_builtin", partial(_scripting, replace))
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        replace.wrap(kind, "__call__", _scripted)
    replace.wrap(torch.profiler.profiler._KinetoProfile, "__init__", _host_profiler)
    replace.wrap(torch.autograd.profiler.profile, "__init__", _host_trace)
    replace.put(torch.autograd.profiler.emit_nvtx, "__enter__", _wait_for_ranges)
    replace.put(torch.autograd.profiler.emit_nvtx, "__exit__", _wait_for_ranges)
    replace.wrap(MetaTensorDescriber, "describe_tensor", _fake_on_host)
    replace.wrap(torch, "cond", _plain_cond)
    replace.wrap(torch, "while_loop", _plain_while)


def _eager(old: Callable[..., Any]) -> Callable[..., Any]:
    """A `torch.compile` that compiles nothing: compiled code would hide its operations."""

    @wraps(old)
    def compile_(model: Any = None, **kwargs: Any) -> Any:
        options = {"fullgraph": kwargs.get("fullgraph", False), "backend": "eager"}
        return old(model, **options)

    return compile_


def _scripting(replace: Replacements, old: Callable[..., Any]) -> Callable[..., Any]:
    """TorchScript recognizes torch's functions by identity, and would compile our replacements."""

    @wraps(old)
    def find_builtin(fn: Any) -> Any:
        return old(replace.original(fn))

    return find_builtin


def _scripted(old: Callable[..., Any]) -> Callable[..., Any]:
    """In TorchScript `x.device` is the CPU, so tensors made on that device must be marked."""

    @wraps(old)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = tree_leaves((args[1:], kwargs))
        marked = any(isinstance(each, Tensor) and on_device(each) for each in given)
        with in_script() if marked else nullcontext():
            return old(*args, **kwargs)

    return call


def _host_profiler(old: Callable[..., Any]) -> Callable[..., Any]:
    """A profiler that does not look for kernels."""

    @wraps(old)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        old(self, *args, **kwargs)
        # Without an activity it refuses to start.
        self.activities.add(torch.profiler.ProfilerActivity.CPU)
        self.activities.discard(torch.profiler.ProfilerActivity.CUDA)
        self.use_device = None

    return init


def _host_trace(old: Callable[..., Any]) -> Callable[..., Any]:
    """As `_host_profiler`: for events of a GPU, it would fail at every operation."""

    @wraps(old)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        old(self, *args, **{**kwargs, "use_cuda": False, "use_device": None})

    return init


def _wait_for_ranges(self: Any, *error: Any) -> Any:
    """No tool reads the ranges, but torch waits for the GPU before the first and after the last."""
    if self.enabled:
        torch.cuda.synchronize()
    return None if error else self


def _plain_cond(old: Callable[..., Any]) -> Callable[..., Any]:
    """The documented eager equivalent; torch would compile `cond`, and tier 0 compiles nothing."""

    @wraps(old)
    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if torch.compiler.is_compiling():
            return old(pred, true_fn, false_fn, operands)
        return (true_fn if pred else false_fn)(*operands)

    return cond


def _plain_while(old: Callable[..., Any]) -> Callable[..., Any]:
    """As `_plain_cond`."""

    @wraps(old)
    def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
        if torch.compiler.is_compiling():
            return old(cond_fn, body_fn, carried_inputs)
        while cond_fn(*carried_inputs):
            carried_inputs = body_fn(*carried_inputs)
        return carried_inputs

    return while_loop


def _fake_on_host(old: Callable[..., Any]) -> Callable[..., Any]:
    """Makes fake tensors the CPU's: autograd aborts the program for those of a missing GPU."""

    @wraps(old)
    def describe_tensor(*args: Any, **kwargs: Any) -> Any:
        described = old(*args, **kwargs)
        if described.device == CUDA:
            described = changed(described, device=torch.device("cpu"))
        return described

    return describe_tensor


def _synchronize(device: Any = None) -> None:
    record(
        "torch.accelerator.synchronize",
        "The host waits until the GPU has done everything queued so far.",
    )


_ACCELERATOR: dict[str, Any] = {
    "is_available": answer_with(True),
    "device_count": answer_with(1),
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": answer_with(0),
    "current_device_idx": answer_with(0),
    "set_device_index": set_device,
    "set_device_idx": set_device,
    "device_index": lambda index: nullcontext(),
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": _synchronize,
    "empty_cache": empty_cache,
    "get_memory_info": answer_with((MEMORY, MEMORY)),
    "memory_allocated": answer_with(0),
    "max_memory_allocated": answer_with(0),
    "memory_reserved": answer_with(0),
    "max_memory_reserved": answer_with(0),
    "memory_stats": lambda *_, **__: Zeros(),
    "reset_peak_memory_stats": answer_with(None),
    "reset_accumulated_memory_stats": answer_with(None),
}
