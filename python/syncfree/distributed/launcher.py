"""Starts one process per device on this host, holds their store, and notices when they die."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from traceback import format_exception_only
from types import FunctionType, TracebackType
from typing import Any

import torch

from syncfree.distributed.environment import cores_of_each
from syncfree.distributed.fleet import Fleet, open_store
from syncfree.errors import RankError

_HOST = "127.0.0.1"
_LAST_SECONDS = 30.0  # for all processes together
_RAISED = "syncfree/launcher/raised/{}"  # key of the exception that ended a rank's function
_MOST_BYTES = 65536  # of its text; a store takes some megabytes

_own_device: str | None = None  # of this process, if `launch` has started it


class Launcher:
    """Processes that run one function, with a store in this process.

    As the store is here, the others can still communicate when any of them dies. Leaving the `with`
    block ends those that are still running.

    Args:
        function: called as `function(fleet, device, *arguments)` in each process. It must be
            importable, as it is pickled by name.
        devices: one process for each, such as `cuda:0` or `cpu`.
        arguments: for the function, pickled.

    Raises:
        TypeError: devices is no list, or the function cannot be imported by its name.
        ValueError: no devices, or one that this host does not have.
    """

    def __init__(
        self, function: Callable[..., None], devices: Sequence[str], arguments: Sequence[Any] = ()
    ) -> None:
        _check_function(function)
        _check_devices(devices)
        self.store = open_store(_HOST)
        self.world = len(devices)
        # A forked process cannot use CUDA, nor torch's threads once they have run.
        context = multiprocessing.get_context("spawn")
        self._processes: dict[int, BaseProcess] = {
            rank: context.Process(
                target=_run,
                args=(function, rank, self.world, self.store.port, device, tuple(arguments)),
                name=f"syncfree-rank-{rank}",
                daemon=True,
            )
            for rank, device in enumerate(devices)
        }

    def __enter__(self) -> Launcher:
        # Before SIGINT is blocked: the tracker, which starts with the first process, unblocks it.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            try:
                for process in self._processes.values():
                    process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:  # such as a Ctrl-C that was held back; `__exit__` is not called
            for process in self._processes.values():
                if process.pid is not None:
                    process.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        latest = time.monotonic() + _LAST_SECONDS
        try:
            for process in self._processes.values():
                if kind is not None:
                    process.kill()
                process.join(max(0.0, latest - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
        except BaseException:  # Ctrl-C again, or only now
            for process in self._processes.values():
                process.kill()
            raise
        self._processes.clear()

    def deaths(self) -> Iterator[tuple[int, str]]:
        """Ranks that have ended since the last call, and how."""
        for rank, process in tuple(self._processes.items()):
            if process.exitcode is not None:
                del self._processes[rank]
                yield rank, _how(process.exitcode)

    def kill(self, rank: int) -> None:
        """End the process of a rank that is stuck."""
        if rank in self._processes:
            self._processes[rank].kill()

    def wait(self) -> None:
        """Wait until all have ended.

        Raises:
            RankError: any ended with a failure; the first one is named, the others are killed.
        """
        while self._processes:
            multiprocessing.connection.wait([p.sentinel for p in self._processes.values()])
            for rank, process in tuple(self._processes.items()):
                process.join(0)
                if process.exitcode is None:
                    continue
                del self._processes[rank]
                if process.exitcode != 0:
                    for other in self._processes.values():
                        other.kill()
                    raise RankError({rank: _how(process.exitcode, self._raised(rank))})

    def _raised(self, rank: int) -> str:
        """The exception that ended a rank's function, as a traceback ends; empty if none did."""
        key = _RAISED.format(rank)
        return self.store.get(key).decode(errors="replace") if self.store.check([key]) else ""


def launch(
    function: Callable[..., None], devices: Sequence[str], arguments: Sequence[Any] = ()
) -> None:
    """Run a function in one process per device of this host, and wait for all.

    Within the function, `connect()` gives the process's fleet, and so `evaluate` and
    `DynamicSampler` work as under `torchrun`. No process group is made. torch's threads are divided
    among the processes unless `OMP_NUM_THREADS` says how many each has.

    Args:
        function: called as `function(fleet, device, *arguments)`; importable, as it is pickled by
            name, so a script calls this under `if __name__ == "__main__"`.
        devices: such as `["cuda:0", "cuda:1"]` or `["cpu"] * 4`.
        arguments: for the function, pickled.

    Raises:
        TypeError: devices is no list, or the function cannot be imported by its name.
        ValueError: no devices, or one that this host does not have.
        RankError: a process failed; the others are killed.

    Example:
        >>> from syncfree.distributed import launch
        >>> launch(print, ["cpu", "cpu"])  # doctest: +SKIP
    """
    with Launcher(function, devices, arguments) as processes:
        processes.wait()


def _check_function(function: Callable[..., None]) -> None:
    if not callable(function):
        raise TypeError(f"launch calls a function, but got {function!r}")
    if not isinstance(function, FunctionType):
        return  # other callables may hold what only multiprocessing can pickle, such as a queue
    try:
        pickle.dumps(function)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise TypeError(
            "each process imports the function by its name, so it is defined at the top level of "
            f"a module, but got {function!r}"
        ) from error


def _check_devices(devices: Sequence[str]) -> None:
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise TypeError(
            f"devices is a list of names, one for each process, but got {devices!r}; write "
            '["cpu"] * 4, ["cuda:0", "cuda:1"] or local_devices()'
        )
    if not devices:
        raise ValueError("a launcher needs at least one device, got none")
    there = ["cpu", *local_devices()]
    for device in devices:
        if device not in there:
            raise ValueError(f"each device is one of {', '.join(there)}, but got {device!r}")


def own_device() -> str | None:
    """The device for which `launch` has started this process; `None` in other processes.

    Example:
        >>> from syncfree.distributed.launcher import own_device
        >>> own_device() is None
        True
    """
    return _own_device


def local_devices() -> list[str]:
    """The GPUs that torch sees.

    Returns:
        `["cuda:0", "cuda:1", ...]`, empty without a GPU.

    Example:
        >>> from syncfree.distributed import local_devices
        >>> devices = local_devices() or ["cpu"]
    """
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def _run(
    function: Callable[..., None],
    rank: int,
    world: int,
    port: int,
    device: str,
    arguments: tuple[Any, ...],
) -> None:
    global _own_device  # noqa: PLW0603 - of this process, which has one
    _own_device = device
    # So that the function may start processes, as a DataLoader does. The launcher still holds this
    # process for a daemon, and ends it at its own exit.
    multiprocessing.current_process().daemon = False
    # Ctrl-C goes to all processes of a terminal; only the launcher handles it. While they imported
    # it was held back: each process would only have printed a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # What torchrun sets, so that the function may also make a process group or call connect().
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
    )
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    if "OMP_NUM_THREADS" not in os.environ:  # else torch uses all cores in each process
        torch.set_num_threads(cores_of_each(world))
    store = open_store(_HOST, port)
    try:
        function(Fleet(store, rank, world, rank), device, *arguments)
    except Exception as error:
        text = "".join(format_exception_only(error)).strip()
        with suppress(Exception):  # the function's own error is the one to be seen
            store.set(_RAISED.format(rank), text.encode(errors="backslashreplace")[:_MOST_BYTES])
        raise  # multiprocessing shows the traceback


def _how(code: int, raised: str = "") -> str:
    if code >= 0:
        return f"exited with status {code}" + (f" after {raised}" if raised else "")
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
