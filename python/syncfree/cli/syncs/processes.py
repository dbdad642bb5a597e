"""A program's processes: children that it forks or starts, and its own end by `os._exit`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from syncfree.cli.syncs.program import show_error
from syncfree.detector.patching import Patch

# Processes with targets from here load data or keep shared objects: no place to look for waits.
_HELPERS = ("torch.utils.data.", "multiprocessing.managers")


class EndOfChildError(SystemExit):
    """A forked child of the program has come to its end, with this status."""


def run_to_its_end(run: Callable[[], Any]) -> None:
    """Runs a program, which may fork: a child that comes back here has only to end.

    Raises:
        EndOfChildError: This is such a child. What it raised is shown, as by the interpreter.
    """
    process = os.getpid()
    try:
        run()
    except BaseException as error:
        if os.getpid() == process:
            raise
        status = _shown(error)
    else:
        if os.getpid() == process:
            return
        status = 0
    raise EndOfChildError(status)


def _shown(error: BaseException) -> int:
    if not isinstance(error, SystemExit):
        show_error(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


@contextmanager
def reported_before_the_end(report: Callable[[int], int]) -> Iterator[None]:
    """Inside, `os._exit` and `os.exec*` report first: nothing of this process runs after them.

    Args:
        report: Gets the program's exit status, 0 for `os.exec*`, and returns the one to exit with.
    """
    process = os.getpid()
    lock = threading.RLock()

    def make_exit(original: Callable[[int], None]) -> Callable[[int], None]:
        def _exit(status: int) -> None:
            if os.getpid() != process or not isinstance(status, int):
                original(status)
            with lock:
                original(report(status))

        return _exit

    def make_exec(original: Callable[..., None]) -> Callable[..., None]:
        def exec_(path: Any, *rest: Any) -> None:
            # `os.execvp` tries one folder of the path after another: most calls fail.
            exists = isinstance(path, int) or os.access(path, os.X_OK)
            if os.getpid() == process and exists:
                report(0)
            original(path, *rest)

        return exec_

    patches = [
        Patch(os, "_exit", make_exit),
        Patch(os, "execv", make_exec),
        Patch(os, "execve", make_exec),
    ]
    with _installed(patches):
        yield


class Children:
    """Counts the processes that the program started, whose waits are not seen."""

    def __init__(self) -> None:
        self.count = 0
        self._starting = threading.local()

    def __str__(self) -> str:
        one = self.count == 1
        return (
            f"{self.count} {'process' if one else 'processes'} that the program started "
            f"{'was' if one else 'were'} not looked at"
        )

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Inside, processes of `multiprocessing` and of `os.fork` are counted."""
        patches = [Patch(BaseProcess, "start", self._start), Patch(os, "fork", self._fork)]
        with _installed(patches):
            yield

    def _start(self, original: Callable[[BaseProcess], None]) -> Callable[[BaseProcess], None]:
        def start(process: BaseProcess) -> None:
            target = getattr(process, "_target", None)  # `start` deletes it
            self._starting.now = True  # a fork inside is not counted again
            try:
                original(process)
            finally:
                self._starting.now = False
            if not str(getattr(target, "__module__", "")).startswith(_HELPERS):
                self.count += 1

        return start

    def _fork(self, original: Callable[[], int]) -> Callable[[], int]:
        def fork() -> int:
            child = original()
            if child and not getattr(self._starting, "now", False):
                self.count += 1
            return child

        return fork


@contextmanager
def _installed(patches: list[Patch]) -> Iterator[None]:
    with ExitStack() as installed:
        for patch in patches:
            patch.install()
            installed.callback(patch.remove)
        yield
