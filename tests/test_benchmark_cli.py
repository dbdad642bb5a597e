"""`syncfree bench`, the suites behind it, and what is made of its result file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from syncfree import functional as sf
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.engine import Plan
from syncfree.benchmarking.suites import (
    SUITES,
    Workload,
    accuracy,
    layouts,
    makers,
    psnr,
    restoration,
    runner,
    scaling,
    ssim,
)
from syncfree.benchmarking.suites.plot import plot_rows
from syncfree.benchmarking.suites.runner import document, measure_workload, rows_of
from syncfree.benchmarking.suites.scaling_plot import plot_scaling
from syncfree.benchmarking.suites.text import lines_of
from syncfree.cli import main

ROOT = Path(__file__).resolve().parent.parent
# What the committed result files were measured with: no workload may be lost.
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Workload]:
    """Suites of two workloads, which take milliseconds."""
    x = torch.rand(1000)
    found = [
        Workload("sum 1000", "cpu", x.nbytes, {"syncfree": x.sum, "plain torch": lambda: sum(x)}),
        Workload("Sum.update", "cpu", 0, {"syncfree": x.sum, "torchmetrics": x.sum}, is_class=True),
    ]

    def small_makers(suite: str, device: str):
        assert device == "cpu"
        if suite == "psnr":
            yield "sum", lambda: found[0]
        if suite == "classes":
            yield "update", lambda: found[1]

    monkeypatch.setattr(runner, "makers", small_makers)
    monkeypatch.setattr(runner, "read_bandwidth", lambda device: 1e9)
    monkeypatch.setattr("syncfree.benchmarking.api.read_bandwidth", lambda device: 1e9)
    monkeypatch.chdir(tmp_path)
    return found


def bench(*arguments: object) -> int:
    return main(["bench", "--device", "cpu", "--seconds", "0.05", *map(str, arguments)])


def test_the_result_file(small, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--json", "result.json", "--plot", "result.svg") == 0
    shown = capsys.readouterr().out
    assert "sum 1000" in shown
    assert "plain torch" in shown
    facts = json.loads(Path("result.json").read_text())
    committed = json.loads(RESULTS[0].read_text())
    assert set(committed) <= set(facts)
    assert set(committed["hardware"]) <= set(facts["hardware"])
    rows = facts["rows"]
    assert [(row["workload"], row["contender"]) for row in rows] == [
        ("sum 1000", "syncfree"),
        ("sum 1000", "plain torch"),
        ("Sum.update", "syncfree"),
        ("Sum.update", "torchmetrics"),
    ]
    assert all(set(committed["rows"][0]) <= set(row) for row in rows)
    assert [row.get("launches") for row in rows] == [None, None, 0, 0]
    assert rows[0]["read_floor_us"] == pytest.approx(4.0)
    assert rows[1]["times_ours"] == pytest.approx(rows[1]["device_us"] / rows[0]["device_us"])
    assert rows[0]["share_of_floor"] == pytest.approx(4.0 / rows[0]["device_us"])
    assert facts["versions"]["torchmetrics"]
    assert "</svg>" in Path("result.svg").read_text()


def test_what_does_not_fit_is_named(small, monkeypatch, capsys) -> None:
    def too_large() -> Workload:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    found = runner.makers
    monkeypatch.setattr(
        runner, "makers", lambda suite, device: [("huge", too_large), *found(suite, device)]
    )
    assert bench("--suite", "psnr", "--json", "result.json") == 0
    assert "huge is left out: CUDA out of memory" in capsys.readouterr().err
    facts = json.loads(Path("result.json").read_text())
    assert facts["skipped"] == {"huge": "CUDA out of memory. Tried to allocate 2 GiB"}
    assert {row["workload"] for row in facts["rows"]} == {"sum 1000"}


def test_readme_figures_reads_it(small) -> None:
    bench("--json", "result.json")
    text = figures_tool().table(Path("result.json").absolute())
    assert "| sum 1000 |" in text
    assert "| Sum.update |" in text


def test_ours_alone(small) -> None:
    assert bench("--no-peers", "--json", "result.json") == 0
    rows = json.loads(Path("result.json").read_text())["rows"]
    assert {row["contender"] for row in rows} == {"syncfree"}


def test_chosen_suites(small) -> None:
    assert bench("--suite", "classes", "--json", "result.json") == 0
    rows = json.loads(Path("result.json").read_text())["rows"]
    assert {row["workload"] for row in rows} == {"Sum.update"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "speed"], f"--suite is one of {', '.join(SUITES)}, but got speed"),
        (["--device", "tpu"], "--device is auto, cpu or cuda, but got tpu"),
        (["--seconds", "0"], "--seconds is a time above 0, but got 0"),
        (["--json", "nowhere/x.json"], "cannot write nowhere/x.json"),
        (["idle-gap", "step"], "step is neither script.py:function nor module:function"),
        (["idle-gap", "step.py:f"], "there is no script step.py"),
        (["idle-gap", "no_such_module:f"], "there is no module no_such_module"),
        (["idle-gap", "json:nothing"], "json has no nothing"),
        (["idle-gap", "math:pi"], "math:pi is no function, but float"),
        (["idle-gap", "json:dumps", "--gaps", "1,x"], "--gaps is numbers of seconds"),
        (["idle-gap", "json:dumps", "--gaps", "-1"], "--gaps is numbers of seconds"),
        (["idle-gap", "json:dumps", "--repeats", "0"], "--repeats is a count of at least 1"),
    ],
)
def test_wrong_usage(small, arguments, message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


STEP = """
import beside_it
from dataclasses import dataclass

@dataclass
class Trainer:
    calls: int = 0

def step():
    return sum(range(100))

def make():
    return step

def broken():
    return 1 / 0

if __name__ == "__main__":
    raise SystemExit("this is run as a module")
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "step_of_test.py").write_text(STEP)
    (tmp_path / "beside_it.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "step_of_test.py"


@pytest.mark.parametrize(
    "target",
    ["step_of_test.py:step", "step_of_test:step", "step_of_test.py:make --factory"],
)
def test_idle_gap(script, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--gaps", "0.001", "--repeats", "2", "--device", "cpu"]
    files = ["--json", "gaps.json", "--plot", "gaps.png"]
    assert main(["bench", "idle-gap", *target.split(), *arguments, *files]) == 0
    assert capsys.readouterr().out.startswith("step on ")
    document = json.loads(Path("gaps.json").read_text())
    assert [each["gap"] for each in document["points"]] == [0.0, 0.001]
    assert Path("gaps.png").stat().st_size > 1000


def test_idle_gap_of_the_projects_network(tmp_path: Path, monkeypatch) -> None:
    """The command with which the figures of a small network are measured on a GPU."""
    # On a GPU too busy for a gate it would ask tier 3, after which torch.profiler is blind.
    monkeypatch.setattr("syncfree.benchmarking.torch_gpu.TorchGpu.waits_of", lambda *_: "")
    target = f"{ROOT / 'benchmarks' / 'keep_warm.py'}:network"
    file = tmp_path / "gaps.json"
    arguments = ["--factory", "--gaps", "0.001", "--repeats", "1", "--json", str(file)]
    assert main(["bench", "idle-gap", target, *arguments]) == 0
    document = json.loads(file.read_text())
    assert document["name"] == "call"
    assert [each["gap"] for each in document["points"]] == [0.0, 0.001]
    assert document["verdict"]["text"]


def test_idle_gap_of_a_function_that_fails(script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "idle-gap", "step_of_test.py:broken", "--device", "cpu"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "step_of_test.py" in shown


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_suites_are_complete(device: str) -> None:
    names = [name for suite in SUITES for name, _ in makers(suite, device)]
    assert len(names) == len(set(names))
    assert len(names) == {"cpu": 84, "cuda": 127}[device]


def test_the_committed_results_hold_the_workloads_that_are_measured() -> None:
    """One after another; the ids hold the shapes that the names hold."""
    facts = json.loads((ROOT / "benchmarks" / "results" / "h200.json").read_text())
    names = list(dict.fromkeys(row["workload"] for row in facts["rows"]))
    ids = [name for suite in SUITES for name, _ in makers(suite, "cuda")]
    assert facts["skipped"] == {}
    for each, name in zip(ids, names, strict=True):
        sizes = re.findall(r"\d+(?:x\d+)+|\d{2,}", each)
        assert all(size in name for size in sizes), (each, name)


def test_no_such_suite() -> None:
    with pytest.raises(ValueError, match="suite is one of psnr, ssim, ms-ssim, accuracy"):
        makers("speed", "cpu")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (psnr.workload, (1, 3, 32, 32)),
        (ssim.ssim, (1, 3, 32, 32)),
        (ssim.uniform_ssim, (1, 3, 32, 32)),
        (ssim.ssim_gradients, (1, 3, 32, 32)),
        (ssim.ms_ssim, (1, 3, 192, 192)),
        (accuracy.workload, (64, 10)),
        (accuracy.top_list, (64, 10)),
    ],
)
def test_contenders_of_a_workload_agree(make, shape) -> None:
    """Ratios mean something only between functions that compute the same."""
    workload = make(shape, torch.float32, "cpu")
    values = {name: call() for name, call in workload.contenders.items()}
    assert len(values) >= 2
    ours = values.pop("syncfree")
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, ours, rtol=1e-4, atol=1e-4, msg=name)
        elif name == "torchmetrics":  # the others leave out the border
            want = [*ours] if isinstance(value, list) else ours
            torch.testing.assert_close(value, want, rtol=1e-3, atol=1e-7, msg=name)


@pytest.mark.parametrize(("task", "shape"), [("binary", (64,)), ("multilabel", (64, 7))])
def test_contenders_of_other_tasks_agree(task: str, shape: tuple[int, ...]) -> None:
    workload = accuracy.of_labels(task, shape, "cpu")
    values = [call() for call in workload.contenders.values()]
    assert len(values) >= 2
    for value in values:
        torch.testing.assert_close(value, values[0])


def test_other_layouts_are_the_same_work() -> None:
    """The views hold other pixels of the same kind, as many within a percent or so."""
    shape = (2, 3, 256, 384)
    for name, metric, none in [
        ("PSNR", sf.peak_signal_noise_ratio, {"dim": (1, 2, 3), "reduction": "none"}),
        ("SSIM", sf.structural_similarity_index_measure, {"reduction": "none"}),
    ]:
        workload = layouts.image_layouts(name, metric, none, shape, "cpu")
        values = {name: call().mean() for name, call in workload.contenders.items()}
        assert len(values) == 6
        torch.testing.assert_close(values["syncfree channels-last"], values["syncfree"])
        for which, value in values.items():
            torch.testing.assert_close(value, values["syncfree"], rtol=0.01, atol=0, msg=which)
    tokens = layouts.token_logits((2, 9, 50), "cpu").contenders
    assert tokens["syncfree"]() == tokens["syncfree shifted view"]()
    pixels = layouts.pixel_layouts((2, 5, 16, 24), "cpu").contenders
    assert pixels["syncfree"]() == pixels["syncfree channels-last"]()
    assert pixels["syncfree"]() == pixels["syncfree int32 labels"]()
    assert pixels["syncfree per image"]().shape == (2,)
    assert 0 < pixels["syncfree odd size"]() < 1 > pixels["syncfree cropped views"]() > 0


def test_plot_of_scaling(tmp_path: Path) -> None:
    rows = run_suites_of(
        scaling.image_metric("PSNR", 1, 16, "size", "cpu"),
        scaling.image_metric("PSNR", 1, 64, "size", "cpu"),
        scaling.accuracy("macro", 8, 10, "cpu"),
    )
    facts = document(rows)
    plot_scaling(facts, tmp_path / "scaling.svg")
    shown = (tmp_path / "scaling.svg").read_text()
    assert "PSNR by size" in shown
    assert "accuracy macro by classes" in shown
    plot_rows(facts, tmp_path / "nothing.svg")  # has no bars, and that is no error
    with pytest.raises(ValueError, match="rows of the suite scaling"):
        plot_scaling({**facts, "rows": []}, tmp_path / "none.svg")


def run_suites_of(*workloads: Workload) -> list[dict]:
    return [row for w in workloads for row in rows_of(w, measure_workload(w, seconds=0.02))]


def test_the_restoration_loop_is_the_same_for_all() -> None:
    workload = restoration.workload((2, 3, 24, 24), "cpu")
    values = {name: call() for name, call in workload.contenders.items()}
    assert values.pop("syncfree no metrics").shape == (2, 3, 24, 24)
    ours = values["syncfree"]
    assert set(values) == {"syncfree", "syncfree side stream", "torchmetrics"}
    for name, found in values.items():
        torch.testing.assert_close(found, ours, rtol=1e-4, atol=1e-4, msg=name)


def test_steps_of_classes_run() -> None:
    for _, make in list(makers("classes", "cpu"))[12:16]:
        workload = make()
        assert workload.is_class
        assert set(workload.contenders) == {"syncfree", "torchmetrics"}
        for call in workload.contenders.values():
            call()


def test_plot_of_the_committed_results(tmp_path: Path) -> None:
    for path in RESULTS:
        plot_rows(json.loads(path.read_text()), tmp_path / f"{path.stem}.svg")
        assert "torchmetrics" in (tmp_path / f"{path.stem}.svg").read_text()


def test_measure_uses_the_given_backend() -> None:
    works = {"f": Work(lambda: None)}
    found = measure(works, Plan(max_seconds=0.02), CpuBackend(), torch.device("cpu"))
    assert found["f"].kind == "cpu"


def test_readme_figures_command(tmp_path: Path) -> None:
    """`--check` stays as it is: it writes nothing."""
    before = (ROOT / "README.md").read_text()
    command = [sys.executable, ROOT / "tools" / "readme_figures.py", "--check"]
    assert subprocess.run(command, check=False).returncode == 0
    assert (ROOT / "README.md").read_text() == before


def figures_tool():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import readme_figures
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return readme_figures


def gpu_row(**fields) -> dict:
    """A row of a step of a class on a GPU, in a loop 15.4 us of the host and alone 79 us."""
    row = {
        "workload": "Accuracy.update",
        "device": "cuda",
        "contender": "syncfree",
        "device_us": 10.2,
        "host_us": 79.0,
        "loop_us": 15.5,
        "loop_host_us": 15.4,
        "no_loop": "",
        "share_of_floor": 0.02,
        "times_ours": 1.0,
        "extra_mib": 0.0,
        "launches": 1.0,
    }
    return {**row, **fields}


def test_the_printed_table_says_which_host_time_is_which() -> None:
    alone = {"loop_us": None, "no_loop": "setup stands before each call"}
    rows = [
        gpu_row(),
        gpu_row(contender="torchmetrics", times_ours=5.7, extra_mib=None),
        gpu_row(workload="samplewise", loop_host_us=13.25, **alone),
        gpu_row(workload="paused", loop_host_us=None, **alone),
    ]
    top, below, *lines = lines_of(rows)
    looped, single = below.index("in a loop"), below.index("1 call")
    assert top[: looped + len("in a loop")].endswith("host us")
    assert top[: single + len("1 call")].endswith("host us")
    figures = [line.split()[-7:] for line in lines[:4]]
    assert [(each[1], each[2]) for each in figures] == [
        ("15.4", "79.0"),
        ("15.4", "79.0"),
        ("13.2*", "79.0"),
        ("-*", "79.0"),
    ]
    # The figure stands under its head.
    assert lines[0][: looped + len("in a loop")].endswith("15.4")
    assert lines[0][: single + len("1 call")].endswith("79.0")
    assert lines[1].startswith(" ")  # the workload is named once
    assert lines[4] == ""
    assert any(line.startswith("host us in a loop: until a call among") for line in lines)
    assert any(line.startswith("host us, 1 call: until a single call") for line in lines)
    assert lines[-1] == "* setup stands before each call"


def test_the_printed_table_of_a_cpu() -> None:
    row = gpu_row(device="cpu", loop_us=None, loop_host_us=None, no_loop="on the CPU", launches=0)
    *_, figures, legend = filter(None, lines_of([row]))
    assert figures.split()[-7:] == ["10.2", "-", "-", "2.0%", "1.00", "0.0", "0"]
    assert legend == "device us of the CPU: by its clock; the host's time is the same"


def test_readme_figures_of_loops_and_regions(tmp_path: Path) -> None:
    """Their ratios of device times would say nothing."""

    def rows(name: str, times: dict[str, float]) -> list[dict]:
        return [
            {**gpu_row(workload=name, contender=each, loop_us=us, loop_host_us=us), "launches": 1}
            for each, us in times.items()
        ]

    times = {"syncfree": 1100, "syncfree side stream": 1050, "syncfree no metrics": 1000}
    found = rows("restoration loop of 8, 1x3x8x8 float32", {**times, "torchmetrics": 3000})
    found += rows("100 timed regions", {"syncfree": 250, "torch.cuda.Event": 1100})
    for row in found:
        del row["launches"]
    facts = {
        "date": "2026-01-01",
        "hardware": {"gpu": "GPU", "cpu": "CPU", "threads": "1"},
        "versions": {"torch": "2", "torchmetrics": "1"},
        "rows": found,
    }
    file = tmp_path / "result.json"
    file.write_text(json.dumps(facts))
    text = figures_tool().table(file)
    assert "float32 | 1 ms | 100 µs (+10%) | 50 µs (+5%) | 2 ms (+200%) |" in text
    assert "| to time a region | syncfree | torch.cuda.Event |" in text
    assert "| host, in a loop | 2.5 µs | 11 µs |" in text
    assert "torchmetrics / ours |\n|---|---|---|---|---|---|---|\n\n" in text  # none in the first


def test_readme_figures_say_which_host_time_is_which(tmp_path: Path) -> None:
    def table(*rows: dict) -> str:
        facts = {
            "date": "2026-01-01",
            "hardware": {"gpu": "GPU", "cpu": "CPU", "threads": "1"},
            "versions": {"torch": "2", "torchmetrics": "1"},
            "rows": [each for row in rows for each in (row, {**row, "contender": "torchmetrics"})],
        }
        file = tmp_path / "result.json"
        file.write_text(json.dumps(facts))
        return figures_tool().table(file)

    looped = table(gpu_row())
    assert (
        "| step of a class | host, in a loop | launches | torchmetrics: host, in a loop" in looped
    )
    assert "| Accuracy.update | 15.4 µs | 1 | 15.4 µs | 1 | 1.0x |" in looped
    assert "`host, in a loop`: until a call among calls back to back" in looped
    assert "1 call" not in looped
    alone = table(gpu_row(loop_us=None, loop_host_us=None))
    assert "| Accuracy.update | 79 µs (1 call) | 1 | 79 µs (1 call) | 1 | 1.0x |" in alone
    assert "`(1 call)`: a single call" in alone
    on_cpu = gpu_row(device="cpu", loop_host_us=None)
    on_cpu["device_us"] = on_cpu["host_us"]
    assert "1 call" not in table(on_cpu)
