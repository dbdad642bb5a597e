"""`syncfree bench`: its options, its result file, and what is wrong usage."""

from __future__ import annotations

import json
import sys
import weakref
from pathlib import Path

import pytest
import torch

from benchmark_figures import RESULTS, ROOT, figures_tool
from syncfree.benchmarking.suites import SUITES, Workload, runner
from syncfree.cli import main
from syncfree.cli.bench.target import load_function
from syncfree.errors import BenchmarkError


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


@pytest.mark.parametrize("fails", ["maker", "call"])
def test_what_does_not_fit_is_let_go_of_before_the_next(small, monkeypatch, fails: str) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    held: dict[str, bool] = {}

    def is_held() -> bool:
        return any(each() is not None for each in made)

    def huge() -> Workload:
        x = torch.rand(1000)
        made.append(weakref.ref(x))

        def ours() -> torch.Tensor:
            raise torch.OutOfMemoryError(f"no room beside {x.nbytes} bytes")

        if fails == "maker":
            ours()
        assert is_held()
        return Workload("huge", "cpu", x.nbytes, {"syncfree": ours})

    def following() -> Workload:
        held["at the next maker"] = is_held()
        return small[0]

    monkeypatch.setattr(
        runner, "makers", lambda suite, device: [("huge", huge), ("next", following)]
    )
    monkeypatch.setattr(
        runner, "forget", lambda device: held.setdefault("where memory is freed", is_held())
    )
    assert {row["workload"] for row in runner.run_suites(["psnr"], "cpu", seconds=0.05)} == {
        "sum 1000"
    }
    assert len(made) == 1
    assert held == {"where memory is freed": False, "at the next maker": False}


def test_a_peer_that_raises_is_named_and_left_out(small, capsys) -> None:
    def broken() -> None:
        raise NotImplementedError("not on this processor\nbut on others")

    small[0].contenders["torchmetrics"] = broken
    assert bench("--suite", "psnr", "--json", "result.json") == 0
    reason = "NotImplementedError: not on this processor"
    assert f"sum 1000, torchmetrics is left out: {reason}" in capsys.readouterr().err
    facts = json.loads(Path("result.json").read_text())
    assert facts["skipped"] == {"sum 1000, torchmetrics": reason}
    assert [row["contender"] for row in facts["rows"]] == ["syncfree", "plain torch"]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, 130), (BenchmarkError, 2)])
def test_what_was_measured_before_a_run_broke_off_is_written(
    small, capsys, error: type[BaseException], status: int
) -> None:
    def broken() -> None:
        raise error("enough")

    small[1].contenders["syncfree"] = broken
    assert bench("--json", "result.json", "--plot", "result.svg") == status
    assert "what had been measured is in result.json" in capsys.readouterr().err
    facts = json.loads(Path("result.json").read_text())
    assert facts["unfinished"] == error.__name__
    assert {row["workload"] for row in facts["rows"]} == {"sum 1000"}
    assert bench("--suite", "psnr", "--json", "result.json") == 0
    assert "unfinished" not in json.loads(Path("result.json").read_text())


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
        (["--suite", "psnr", "--plot", "b.foo"], "no image format is called 'foo'"),
        (["idle-gap", "json:dumps", "--plot", "p.foo"], "no image format is called 'foo'"),
        (["idle-gap", "step"], "step is neither script.py:function nor module:function"),
        (["idle-gap", "step.py:f"], "there is no script step.py"),
        (["idle-gap", "no_such_module:f"], "there is no module no_such_module"),
        (["idle-gap", "json:nothing"], "json has no nothing"),
        (["idle-gap", "math:pi"], "math:pi is no function, but float"),
        (["idle-gap", "json:dumps"], "json:dumps is called without arguments, but needs obj"),
        (["idle-gap", "json:dumps", "--gaps", "1,x"], "--gaps is seconds of at least 0"),
        (["idle-gap", "json:dumps", "--gaps", "-1"], "--gaps is seconds of at least 0"),
        (["idle-gap", "json:dumps", "--repeats", "0"], "--repeats is a count of at least 1"),
    ],
)
def test_wrong_usage(small, arguments, message, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--suite", "psnr"], ["idle-gap", "json:dumps"]])
@pytest.mark.parametrize("option", [["--json", "x.json"], ["--plot", "x.png"]])
def test_a_folder_that_takes_no_files_is_refused_before_the_run(
    small, monkeypatch: pytest.MonkeyPatch, capsys, arguments: list[str], option: list[str]
) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)  # root may write anywhere
    assert main(["bench", *arguments, *option]) == 2
    shown = capsys.readouterr()
    assert f"cannot write {option[1]}: you may not write in its folder {Path.cwd()}" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_full_disk_costs_no_table(small, capsys, option: str) -> None:
    Path("full.png").symlink_to("/dev/full")  # opens, and refuses every byte
    assert bench("--suite", "psnr", option, "full.png") == 2
    shown = capsys.readouterr()
    assert "cannot write full.png: No space left on device" in shown.err
    assert "sum 1000" in shown.out


STEP = """
import beside_it
import sys
from dataclasses import dataclass

GIVEN = sys.argv[1:]

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


def test_a_script_is_not_given_the_options_of_the_command(script, monkeypatch) -> None:
    """It may read options of its own when it is imported."""
    monkeypatch.setattr(sys, "argv", ["syncfree", "bench", "idle-gap", "step_of_test.py:step"])
    monkeypatch.delitem(sys.modules, "step_of_test", raising=False)
    step = load_function("step_of_test.py:step")
    assert step.__globals__["GIVEN"] == []
    assert sys.argv[1:] == ["bench", "idle-gap", "step_of_test.py:step"]


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


def test_idle_gap_of_a_function_whose_arguments_a_decorator_gives(script, capsys) -> None:
    script.write_text(
        "import functools\n"
        "def given(function):\n"
        "    return functools.wraps(function)(lambda: function(3))\n"
        "@given\n"
        "def step(number):\n"
        "    return number\n"
    )
    arguments = ["--gaps", "0.001", "--repeats", "1", "--device", "cpu"]
    assert main(["bench", "idle-gap", "step_of_test.py:step", *arguments]) == 0
    assert capsys.readouterr().out.startswith("step on ")


def test_a_sweep_that_was_written_is_drawn_again(script, capsys) -> None:
    arguments = ["step_of_test.py:step", "--gaps", "0.001", "--repeats", "2", "--device", "cpu"]
    assert main(["bench", "idle-gap", *arguments, "--json", "gaps.json", "--plot", "1.svg"]) == 0
    printed = capsys.readouterr().out
    arguments = ["gaps.json", "--json", "again.json", "--plot", "2.svg"]
    assert main(["bench", "idle-gap", *arguments]) == 0
    assert capsys.readouterr().out == printed
    assert Path("again.json").read_text() == Path("gaps.json").read_text()
    assert Path("2.svg").read_text() == Path("1.svg").read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read gaps.json: No such file or directory"),
        (b"{", "cannot read gaps.json: it holds no JSON, as --json of this command writes (Exp"),
        (b"[1]", "cannot read gaps.json: this is no sweep over idle gaps"),
        (b"\xff", "cannot read gaps.json: "),
    ],
)
def test_a_file_that_is_no_sweep(tmp_path, monkeypatch, capsys, content, message) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("gaps.json").write_bytes(content)
    assert main(["bench", "idle-gap", "gaps.json"]) == 2
    assert message in capsys.readouterr().err


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


def test_a_factory_that_makes_no_function(script, capsys: pytest.CaptureFixture[str]) -> None:
    target = "step_of_test.py:step"
    assert main(["bench", "idle-gap", target, "--factory", "--device", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert f"with --factory {target} returns the function" in " ".join(shown.split())
    assert "returned int" in " ".join(shown.split())
    assert "Traceback" not in shown


@pytest.mark.parametrize("code", ["0", "3", "", "'usage: train.py DATA'"])
@pytest.mark.parametrize("place", ["function", "script"])
def test_idle_gap_of_a_program_that_exits(script, code: str, place: str, capsys) -> None:
    ends = f"raise SystemExit({code})\n"
    body = f"def step():\n    {ends}" if place == "function" else f"step = print\n{ends}"
    Path("ending.py").write_text(body)
    assert main(["bench", "idle-gap", "ending.py:step", "--device", "cpu"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    status = code.strip("'") or "0"
    assert f"the program exited with {status} before the sweep was done" in shown


def test_idle_gap_of_a_function_that_fails(script, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "idle-gap", "step_of_test.py:broken", "--device", "cpu"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "step_of_test.py" in shown
