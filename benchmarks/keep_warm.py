"""An experiment: are first calls after a pause faster if the GPU is kept warm in between?

Run it as `python benchmarks/keep_warm.py` on a machine with a GPU. A small network is called after
idle gaps under several conditions: with nothing else running; while a thread launches short spins
on a stream of the lowest priority; while a thread only queries the driver, which keeps the host
awake but not the GPU; and as a CUDA graph. It prints the times, their cost, and a conclusion.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.devices import backend_of, current, uuid_of
from syncfree.benchmarking.gap_verdict import GapPoint
from syncfree.benchmarking.gaps import IdleGap, sweep
from syncfree.timing.nvml import Monitor
from syncfree.timing.statistics import median_of_known

HELPS = 0.8  # of the time without it: saving less is not worth a thread and the power
HARMS = 1.03  # of the time back to back, which it must not make longer than this
POWER_SECONDS = 2.0


class KeepWarm:
    """A thread that calls a short function periodically, inside of a `with` block.

    Args:
        step: the function.
        period: seconds between steps.
        prepare: called once, in the thread.
    """

    def __init__(
        self,
        step: Callable[[], object],
        period: float,
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self.steps = 0
        self.seconds = 0.0
        self.error: BaseException | None = None
        self._step, self._period, self._prepare = step, period, prepare
        self._stop, self._runs = threading.Event(), threading.Event()
        self._runs.set()
        self._thread = threading.Thread(target=self._run, name="keep-warm", daemon=True)

    def pause(self) -> None:
        """Stop calling the function until `resume`."""
        self._runs.clear()

    def resume(self) -> None:
        """Call the function again."""
        self._runs.set()

    def __enter__(self) -> KeepWarm:
        self._begin = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._runs.set()
        self._thread.join()
        self.seconds = time.perf_counter() - self._begin
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            self._prepare()
            while not self._stop.wait(self._period):
                self._runs.wait()
                if not self._stop.is_set():
                    self._step()
                    self.steps += 1
        except BaseException as error:
            self.error = error


def bind(device: torch.device) -> None:
    """Makes the device's context current in the calling thread, which `set_device` may not do."""
    torch.cuda.set_device(device)
    torch.cuda.synchronize(device)


def spinning(device: torch.device, microseconds: float, period: float) -> KeepWarm:
    """Keeps the GPU busy with periodic spins, on a stream that has no priority over others."""
    from syncfree import _runtime

    stream = torch.cuda.Stream(device, priority=0)  # the lowest there is
    return KeepWarm(
        lambda: _runtime.spin(stream.cuda_stream, microseconds),
        period,
        prepare=lambda: bind(device),
    )


def asking(device: torch.device, period: float) -> KeepWarm:
    """Keeps the host and the driver awake, and gives the GPU nothing to do."""
    event = torch.cuda.Event()
    event.record()
    return KeepWarm(event.query, period, prepare=lambda: bind(device))


@dataclass(frozen=True)
class Run:
    """A sweep over gaps under one condition. Times are microseconds.

    Args:
        condition: what else ran meanwhile.
        points: first calls after each gap.
        gpu_share: share of the time in which spins kept the GPU busy.
        watts: power after the sweep, with no calls; None if NVML does not report it.
    """

    condition: str
    points: tuple[GapPoint, ...]
    gpu_share: float = 0.0
    watts: float | None = None


def decide(baselines: list[Run], warm: Run, host: Run) -> str:
    """Whether keeping the GPU warm is worth it, in words.

    Args:
        baselines: runs with nothing else, before and after; their difference is the drift.
        warm: the run with spins.
        host: the run in which only the host stays awake.
    """
    first, last = ({point.gap: point for point in run.points} for run in baselines)
    spun = {point.gap: point for point in warm.points}
    asked = {point.gap: point for point in host.points}
    back_to_back = spun[0.0].plain_us / max(first[0.0].plain_us, last[0.0].plain_us)
    gaps = sorted(gap for gap in spun if gap > 0)
    helped = [
        gap
        for gap in gaps
        if spun[gap].plain_us < HELPS * min(first[gap].plain_us, last[gap].plain_us)
    ]
    cost = f"it keeps the GPU busy for {warm.gpu_share:.2%} of the time"
    idle = [run.watts for run in baselines if run.watts is not None]
    if warm.watts is not None and idle:
        cost += f" and draws {warm.watts - min(idle):+.0f} W"
    longest = gaps[-1]
    figures = (
        f"after {longest:g} s a call takes {spun[longest].plain_us:.0f} us instead of "
        f"{first[longest].plain_us:.0f} (before) and {last[longest].plain_us:.0f} (after)"
    )
    if back_to_back > HARMS:
        return f"no: calls back to back take {back_to_back:.2f} times as long; {figures}; {cost}"
    if longest not in helped:
        return f"no: {figures}; {cost}"
    if asked[longest].plain_us < spun[longest].plain_us / HELPS:
        return (
            f"the host, not the GPU: {figures}, and {asked[longest].plain_us:.0f} us where a "
            f"thread only keeps the host awake; {cost}"
        )
    shown = ", ".join(f"{gap:g}" for gap in helped)
    return f"yes, after gaps of {shown} s: {figures}; {cost}"


def network(device: torch.device | None = None) -> Callable[[], torch.Tensor]:
    """A call of a small network, which takes the host longer than the GPU.

    Also used by `syncfree bench idle-gap benchmarks/keep_warm.py:network --factory`.
    """
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*layers).eval().to(device)
    image = torch.rand(1, 3, 64, 64, device=device)

    @torch.no_grad()
    def call() -> torch.Tensor:
        return model(image)

    return call


def captured(call: Callable[[], object]) -> Callable[[], None]:
    """The same call as the replay of a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(
    name: str,
    call: Callable[[], object],
    device: torch.device,
    arguments: argparse.Namespace,
    keeper: KeepWarm | None = None,
    spin_us: float = 0.0,
) -> Run:
    """The sweep under one condition, with the power afterwards."""
    gaps = [float(each) for each in arguments.gaps.split(",")]
    begin = time.perf_counter()
    if keeper is None:
        return _swept(name, call, device, gaps, arguments.repeats)
    with keeper:
        found = _swept(name, call, device, gaps, arguments.repeats)
    if keeper.steps == 0:
        raise RuntimeError(f"{name}: the thread did nothing in {time.perf_counter() - begin:.0f} s")
    share = keeper.steps * spin_us * 1e-6 / keeper.seconds
    return Run(found.condition, found.points, share, found.watts)


def _swept(
    name: str, call: Callable[[], object], device: torch.device, gaps: list[float], repeats: int
) -> Run:
    # Without NVML readings during the sweep, which would keep the driver awake in every condition.
    found: IdleGap = sweep(
        Work(call, l2="keep"), backend_of(device), gaps=gaps, repeats=repeats, name=name
    )
    return Run(name, found.points, watts=_power(device))


def _power(device: torch.device) -> float | None:
    torch.cuda.synchronize()
    with Monitor(uuid_of(device), keep=1000) as monitor:
        time.sleep(POWER_SECONDS)
        return median_of_known(reading.watts for _, reading in monitor.readings())


def table(runs: Mapping[str, Run]) -> str:
    """The first calls under every condition, one line per gap."""
    lines = [
        f"{'condition':34} {'gap s':>6} {'plain us':>9} {'gated us':>9} {'host us':>8} {'MHz':>5}"
    ]
    for name, run in runs.items():
        for point in run.points:
            gated = "-" if point.gated_us is None else f"{point.gated_us:.0f}"
            clock = "-" if point.megahertz is None else f"{point.megahertz:.0f}"
            lines.append(
                f"{name:34} {point.gap:6g} {point.plain_us:9.0f} {gated:>9} "
                f"{point.host_us:8.0f} {clock:>5}"
            )
        power = "" if run.watts is None else f", {run.watts:.0f} W"
        lines.append(f"{'':34} GPU kept busy for {run.gpu_share:.2%}{power}")
    return "\n".join(lines)


def main() -> None:
    """Run all conditions, print the conclusions, and write the figures if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gaps", default="0.1,1,2", help="seconds, with commas between")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spin-us", type=float, default=20.0)
    parser.add_argument("--periods", default="0.001,0.02", help="seconds between two spins")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU: torch sees none")
    device = torch.device("cuda", torch.cuda.current_device())
    periods = [float(each) for each in arguments.periods.split(",")]
    runs: dict[str, Run] = {}

    def add(name: str, call: Callable[[], object], *keeping: Any) -> None:
        runs[name] = measure(name, call, device, arguments, *keeping)
        print(f"measured: {name}", flush=True)

    with current(device):
        call = network(device)
        spin_us = arguments.spin_us
        add("nothing, before", call)
        for period in periods:
            keeper = spinning(device, spin_us, period)
            add(f"spins of {spin_us:g} us every {period * 1e3:g} ms", call, keeper, spin_us)
        asked = f"the host awake every {periods[0] * 1e3:g} ms"
        add(asked, call, asking(device, periods[0]))
        add("a CUDA graph, nothing beside", captured(call))
        add("nothing, after", call)
    print(f"\n{torch.cuda.get_device_name(device)}\n{table(runs)}\n")
    baselines = [runs["nothing, before"], runs["nothing, after"]]
    verdicts = {
        name: decide(baselines, run, runs[asked])
        for name, run in runs.items()
        if name.startswith("spins")
    }
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict}")
    if arguments.json:
        document = {
            "gpu": torch.cuda.get_device_name(device),
            "torch": torch.__version__,
            "runs": [asdict(run) for run in runs.values()],
            "verdicts": verdicts,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
