"""Devices, and the rule that a GPU run must not pass by skipping."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from cpp_programs import ops, programs  # noqa: F401  (fixtures)
from detector_stub import stub  # noqa: F401
from drawing import ORDINARY
from fake_driver import fake, fake_library  # noqa: F401
from gpu_record import GpuRecord
from gpu_turns import in_shares, turn
from quick_gradients import either_way  # noqa: F401
from report_cases import report, train  # noqa: F401
from syncfree.distributed.environment import available_cores
from syncs_command import script, stub_in_a_folder  # noqa: F401
from timing_cases import timer  # noqa: F401

REQUIRE_CUDA = os.environ.get("SYNCFREE_REQUIRE_CUDA") == "1"


def _spread_over_gpus() -> None:
    """Each process of a parallel run sees all GPUs, and another one of them as its first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    if len(gpus) > 1:
        first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first:] + gpus[:first])


# Before anything starts CUDA, which reads the variable once.
_spread_over_gpus()

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


# The same inputs in every run, so that what passes once passes again; `make fuzz` runs the tests
# marked so with its own profile, on new ones. The device is the same for all examples of a test.
settings.register_profile(
    "default",
    max_examples=ORDINARY,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "fuzz", settings.get_profile("default"), max_examples=2500, derandomize=False
)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu-record", metavar="FILE", help="write what passed and failed, with source hashes"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_cuda: runs on a CUDA device only")
    config.addinivalue_line("markers", "needs_two_gpus: runs on two CUDA devices")
    config.addinivalue_line("markers", "all_gpus: uses all CUDA devices there are")
    config.addinivalue_line("markers", "alone: times a GPU, which no other test may use meanwhile")
    config.addinivalue_line("markers", "fuzz: draws its inputs; `make fuzz` draws more")
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    if REQUIRE_CUDA and not torch.cuda.is_available():
        pytest.exit("SYNCFREE_REQUIRE_CUDA=1, but torch sees no CUDA device", returncode=3)


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins, record = session.config.pluginmanager, session.config.getoption("--gpu-record")
    if record is not None and not hasattr(session.config, "workerinput"):
        plugins.register(GpuRecord(Path(record), plugins.get_plugin("terminalreporter").stats))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[object]) -> None:
    """The processes of a parallel run share the cores, as do the programs that tests start.

    torch and numpy's BLAS would take all of them in each, and their threads spin where they wait.
    Both read the variable when they are loaded. Tests of what threads do set their number.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, available_cores() // len(specs)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpus = torch.cuda.device_count()
    for item in items:
        if item.get_closest_marker("needs_cuda") and gpus == 0:
            item.add_marker(pytest.mark.skip(reason="no CUDA device; `make test-gpu` runs it"))
        if item.get_closest_marker("needs_two_gpus") and gpus < 2:
            item.add_marker(pytest.mark.skip(reason="fewer than two CUDA devices"))
    # One process begins with tests that want the GPU alone, the others with those that want none.
    if gpus:
        alone, shared, without = [], [], []
        for item in items:
            kind = alone if _wants_a_gpu_alone(item) else shared if _uses_a_gpu(item) else without
            kind.append(item)
        processes = getattr(config, "workerinput", {}).get("workercount", 1)
        items[:] = in_shares(alone + without, shared, processes)


def _uses_a_gpu(item: pytest.Item) -> bool:
    if any(item.get_closest_marker(name) for name in ("needs_cuda", "needs_two_gpus")):
        return True
    return hasattr(item, "callspec") and item.callspec.params.get("device") == "cuda"


def _wants_a_gpu_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests marked `alone` run while no other process of the same run uses their GPU."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or not torch.cuda.is_available() or not _uses_a_gpu(item):
        return (yield)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
    if not any(item.get_closest_marker(name) for name in ("needs_two_gpus", "all_gpus")):
        gpus = gpus[:1]
    folder = Path(tempfile.gettempdir()) / f"syncfree-tests-{run}"
    with turn(folder, gpus, alone=_wants_a_gpu_alone(item)):
        return (yield)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device this machine has."""
    return str(request.param)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works as in a terminal; a job in the background of a script starts with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(20240607)
