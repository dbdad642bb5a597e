"""The pool of logs for threads that call the driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

from fake_driver import compiled

HERE = Path(__file__).parent


def test_a_thread_that_cannot_keep_its_log_takes_none(tmp_path: Path) -> None:
    folder = f"-I{HERE.parent / 'csrc'}"
    library = ctypes.CDLL(str(compiled(HERE / "thread_logs.cpp", tmp_path / "logs.so", folder)))
    threads_with_a_log = library.threads_with_a_log
    threads_with_a_log.argtypes = [ctypes.c_int, ctypes.c_bool]
    most = 64
    assert threads_with_a_log(2 * most, False) == 0
    assert threads_with_a_log(2 * most, True) == most  # which no reader gives back
