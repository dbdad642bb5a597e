"""What goes wrong around the timer's C++: devices, drivers, arguments, forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import FakeDriver, compiled, run, samples_of
from syncfree import _runtime
from syncfree.errors import TimerError


def test_the_context_of_the_thread_stays(fake: FakeDriver) -> None:
    timer = fake.timer()
    fake.device = 2
    run(timer, fake, 10)
    assert fake.context() == 0x100
    fake.set_context(0)  # a thread that has not met CUDA
    run(timer, fake, 10)
    fake.let_pass(20)
    assert timer.poll() == 2
    assert fake.context() == 0
    assert [s.device for s in samples_of(timer)] == [2, 2]


def test_a_device_that_is_not_there(fake: FakeDriver) -> None:
    timer = fake.timer()
    fake.device = 9
    with pytest.raises(TimerError, match="cuDeviceGet failed"):
        timer.region("r").start()
    with pytest.raises(TimerError, match="cuDeviceGet failed"):
        timer.prepare(9)


def test_kernels_that_do_not_load(fake: FakeDriver) -> None:
    fake.device = 3  # whose context has none yet
    fake.break_compiler()
    with pytest.raises(TimerError, match=r"cuModuleLoadData failed.*stamp_every=0 does without"):
        fake.timer(stamp_every=64).prepare(3)
    timer = fake.timer(stamp_every=0)
    run(timer, fake, 10)
    fake.let_pass(10)
    assert timer.poll() == 1
    assert timer.brackets() == {3: None}


def test_failures_of_the_driver(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 10)
    region = timer.region("r").start()
    fake.fail(719)
    with pytest.raises(TimerError, match=r"CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        region.stop()
    with pytest.raises(TimerError, match="719"):
        timer.region("r").start()
    assert timer.poll() == 1  # lost, not asked for again
    counts = timer.counts()
    assert (counts["pending"], counts["lost"]) == (0, 2)
    assert "CUDA_ERROR_LAUNCH_FAILED" in counts["problem"]
    assert samples_of(timer) == []


def test_a_failure_does_not_hide_the_exception_of_the_block(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r").start()
    fake.fail(719)
    error = KeyError()
    region.__exit__(KeyError, error, None)  # as an exception on its way does; raises nothing
    assert timer.counts()["lost"] == 1


def test_exceptions_pass_and_the_region_counts(fake: FakeDriver) -> None:
    timer = fake.timer()

    def fails() -> None:
        with timer.region("r"):
            fake.work(10)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    fake.let_pass(10)
    assert timer.poll() == 1


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((), {}, TypeError, "must be a str, but got nothing"),
        ((3,), {}, TypeError, "must be a str, but got int"),
        (("a", "compute", 1), {}, TypeError, "got 3 arguments"),
        (("a",), {"name": "a"}, TypeError, "each once, but got 'name'"),
        (("a",), {"size": 3}, TypeError, "but got 'size'"),
        (("a", "copy"), {}, ValueError, "'compute', 'h2d' or 'd2h', but got 'copy'"),
        (("a",), {"kind": 3}, ValueError, "but got 3"),
        (("a",), {"bytes": -1}, ValueError, "must not be negative, but got -1"),
        (("a",), {"bytes": "1"}, TypeError, "bytes must be an int or None, but got str"),
    ],
)
def test_bad_arguments(
    arguments: tuple, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _runtime.RegionTimer().region(*arguments, **options)


@pytest.mark.parametrize("device", [-1, 2**40])
def test_a_device_that_cannot_be(device: int) -> None:
    with pytest.raises(ValueError, match=f"there is no device {device}"):
        _runtime.RegionTimer(device, lambda _: 0)


@pytest.mark.parametrize("options", [{"capacity": 0}, {"history": 0}, {"stamp_every": -1}])
def test_bad_options(options: dict) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        _runtime.RegionTimer(**options)


def test_too_many_names() -> None:
    timer = _runtime.RegionTimer(history=1)
    for step in range(4096):
        timer.region(f"step {step}")
    with pytest.raises(TimerError, match="name what a region is, not which one"):
        timer.region("one more")
    timer.region("step 0")


def test_functions_that_fail_or_lie(fake: FakeDriver) -> None:
    def fails() -> int:
        raise OSError("no device")

    with pytest.raises(OSError, match="no device"):
        _runtime.RegionTimer(fails, lambda _: 0).region("r").start()
    with pytest.raises(TypeError):
        _runtime.RegionTimer(lambda: 0, lambda _: "x").region("r").start()
    for options in ({"current_device": lambda: 0}, {"push_range": print}):
        with pytest.raises(TypeError, match="go together"):
            _runtime.RegionTimer(**options)  # type: ignore[arg-type]


def program(code: str, library: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python code with the stand-in for the driver."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "SYNCFREE_LIBCUDA": str(library),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_forked_child_leaves_the_gpu_alone(fake_library: Path) -> None:
    code = """
import os
from syncfree import _runtime
parent = os.getpid()

def current_device():
    assert os.getpid() == parent, "torch raises here"
    return 0

timer = _runtime.RegionTimer(current_device, lambda _: 5)
with timer.region("before"):
    pass
child = os.fork()
if child == 0:
    with timer.region("inside"):
        pass
    os._exit(0 if timer.poll() == 0 and timer.counts()["skipped"] == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
assert timer.counts()["skipped"] == 0
"""
    result = program(code, fake_library)
    assert result.returncode == 0, result.stderr


def test_a_forked_child_ends_and_waits_for_regions_of_its_parent_without_the_driver(
    fake_library: Path,
) -> None:
    code = """
import ctypes, os
from syncfree import _runtime

timer = _runtime.RegionTimer(0, lambda _: 5)
with timer.region("pending"):
    pass
still_open = timer.region("open").start()
child = os.fork()
if child == 0:
    ctypes.CDLL(os.environ["SYNCFREE_LIBCUDA"]).fake_fail(719)  # what is called now raises
    still_open.stop()
    assert timer.wait() == 0
    assert (timer.counts()["skipped"], timer.counts()["lost"]) == (1, 0)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
still_open.stop()
assert timer.wait() == 2
assert timer.counts()["skipped"] == 0
"""
    result = program(code, fake_library)
    assert result.returncode == 0, result.stderr


def test_a_daemon_thread_inside_of_a_region_ends_with_the_program(fake_library: Path) -> None:
    """The interpreter unwinds it where it asks for the GIL again, which a region gives up."""
    code = """
import threading, time
from syncfree import _runtime

timer = _runtime.RegionTimer(0, lambda _: 5, stamp_every=0)

def times_for_ever():
    while True:
        with timer.region("r"):
            pass

threading.Thread(target=times_for_ever, daemon=True).start()
time.sleep(0.05)
"""
    for _ in range(5):
        result = program(code, fake_library)
        assert result.returncode == 0, result.stderr


def test_status_without_a_driver(
    tmp_path: Path, fake_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(path: object) -> str:
        monkeypatch.setenv("SYNCFREE_LIBCUDA", str(path))
        return _runtime.cuda_status()

    assert "does not load" in status(tmp_path / "none.so")
    with pytest.raises(TimerError, match=r"no CUDA driver can be used here: .*none\.so"):
        _runtime.EventPair().start(0)
    with pytest.raises(TimerError, match="no CUDA driver can be used here"):
        _runtime.RegionTimer(lambda: 0, lambda _: 0).prepare(0)

    source = tmp_path / "old.cpp"
    source.write_text('extern "C" int cuInit(unsigned) { return 0; }')
    assert "too old: it has no function cuGetErrorName" in status(
        compiled(source, tmp_path / "libold.so")
    )
    for name, init, expected in (
        ("broken", (100, 1), "cuInit failed: CUDA_ERROR_NO_DEVICE (100)"),
        ("empty", (0, 0), "finds no device"),
    ):
        copy = tmp_path / f"lib{name}.so"
        copy.write_bytes(fake_library.read_bytes())
        FakeDriver(copy).set_init(*init)
        assert expected in status(copy)
