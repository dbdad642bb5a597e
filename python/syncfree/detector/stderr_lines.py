"""Reads what C++ writes to file descriptor 2, and passes on all but torch's sync warnings.

torch turns its warnings into Python warnings only inside of its own bindings. An operator of a C++
extension runs without that handler, and its warnings go straight to the descriptor.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

MESSAGE = "called a synchronizing CUDA operation"

# How long an unfinished line that may be a warning is held back.
_PATIENCE_MS = 50
# A warning of c10 begins with "[W" and a date, a file and a line number, then "Warning:".
_OPENING = b"[W"


class LineFilter:
    r"""Takes the sync warnings out of a stream of bytes.

    Everything else is passed on at once, also unfinished lines, which progress bars write.

    Example:
        >>> from syncfree.detector.stderr_lines import LineFilter
        >>> lines = LineFilter()
        >>> lines.feed(b"10%[W1121 a.cpp:1] Warning: called a synchronizing CUDA operation\n20%")
        (b'10%20%', 1)
    """

    def __init__(self) -> None:
        self._held = b""

    @property
    def holds(self) -> bool:
        """Whether an unfinished line is held back."""
        return bool(self._held)

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """The bytes to pass on, and how many warnings were taken out."""
        data, self._held = self._held + data, b""
        passed = b""
        found = 0
        while True:
            begin = data.find(_OPENING)
            if begin < 0:
                # The last byte may be the first of the opening.
                keep = 1 if data.endswith(_OPENING[:1]) else 0
                passed, self._held = passed + data[: len(data) - keep], data[len(data) - keep :]
                return passed, found
            passed, data = passed + data[:begin], data[begin:]
            end = data.find(b"\n") + 1
            if not end:
                self._held = data
                return passed, found
            line, data = data[:end], data[end:]
            if MESSAGE.encode() in line:
                found += 1
            else:
                passed += line

    def flush(self) -> bytes:
        """Returns the bytes that were held back."""
        held, self._held = self._held, b""
        return held


class StderrWatch:
    """While active, sync warnings on descriptor 2 are counted instead of shown.

    Args:
        notice: Called, from any thread, with the number of warnings that no call owns: they came
            outside of `expect` and `take`, or inside of several threads' calls at once.
    """

    def __init__(self, notice: Callable[[int], None]) -> None:
        self._notice = notice
        self._lines = LineFilter()
        self._lock = threading.Lock()
        self._pending = 0
        self._busy: Counter[int] = Counter()  # calls under way in each thread
        self._ended = False

    def __enter__(self) -> StderrWatch:
        self._terminal = os.dup(2)
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.dup2(writing, 2)
        os.close(writing)
        self._thread = threading.Thread(target=self._forward, name="syncfree-stderr", daemon=True)
        self._thread.start()
        # A program may end inside of a region: what it writes then must still be shown.
        atexit.register(self._restore)
        return self

    def __exit__(self, *_: Any) -> None:
        atexit.unregister(self._restore)
        self._restore()
        if self._thread.is_alive():
            atexit.register(self._serve_the_rest)

    def _restore(self) -> None:
        os.dup2(self._terminal, 2)
        self.read()
        # Child processes may hold the pipe open: the thread serves them until the last has ended.
        self._thread.join(timeout=0.2)

    def _serve_the_rest(self) -> None:
        """Called when the program exits, because the thread ends with it."""
        self.read()
        self._thread.join(timeout=0.2)

    def expect(self) -> None:
        """Announces a call whose warnings the caller will `take`."""
        with self._lock:
            self._busy[threading.get_ident()] += 1

    def take(self) -> int:
        """The number of warnings since `expect`, unless they may be those of another thread."""
        here = threading.get_ident()
        with self._lock:
            self._busy -= Counter((here,))
            self._drain()
            count, self._pending = self._pending, 0
            is_alone = self._busy.keys() <= {here}
        if is_alone:
            return count
        if count:
            self._notice(count)
        return 0

    def read(self) -> None:
        """Reads what was written so far, and gives notice of warnings that no call expects."""
        with self._lock:
            self._drain()
            if self._busy:
                return
            count, self._pending = self._pending, 0
        if count:
            self._notice(count)

    def _drain(self) -> None:
        while not self._ended:
            try:
                data = os.read(self._reading, 65536)
            except BlockingIOError:
                return
            if not data:
                self._pass_on(self._lines.flush())
                self._ended = True
                os.close(self._reading)
                os.close(self._terminal)
                return
            passed, found = self._lines.feed(data)
            self._pending += found
            self._pass_on(passed)

    def _forward(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        while not self._ended:
            if poll.poll(_PATIENCE_MS if self._lines.holds else None):
                self.read()
                continue
            with self._lock:
                self._pass_on(self._lines.flush())

    def _pass_on(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._terminal, data) :]
