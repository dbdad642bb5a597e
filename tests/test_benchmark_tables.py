"""README's figures, and the tables that `syncfree bench` prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmark_figures import RESULTS, ROOT, figures_tool, gpu_row
from syncfree.benchmarking.suites.text import lines_of


def test_readme_figures_command() -> None:
    """`--check` stays as it is: it writes nothing."""
    pages = [ROOT / "README.md", ROOT / "docs" / "figures.md"]
    before = [page.read_text() for page in pages]
    command = [sys.executable, ROOT / "tools" / "readme_figures.py", "--check"]
    assert subprocess.run(command, check=False).returncode == 0
    assert [page.read_text() for page in pages] == before


def test_rows_that_readme_shows_were_measured() -> None:
    documents = [json.loads(file.read_text()) for file in RESULTS]
    assert not any("unfinished" in document for document in documents)
    work_name = figures_tool().work_name
    measured = {work_name(row) for document in documents for row in document["rows"]}
    assert set(figures_tool("readme_figures").IN_README) <= measured


def page_of(rows: list[dict], folder: Path, only: tuple[str, ...] = ()) -> str:
    """What is shown of a result file with these rows."""
    facts = {
        "date": "2026-01-01",
        "hardware": {"gpu": "GPU", "cpu": "CPU", "threads": "1"},
        "versions": {"torch": "2", "torchmetrics": "1"},
        "rows": rows,
    }
    file = folder / "result.json"
    file.write_text(json.dumps(facts))
    return figures_tool().table(file, only=only)


def test_several_ways_of_ours_have_a_row_each(tmp_path: Path) -> None:
    rows = [
        gpu_row(workload="SSIM", contender=contender, device_us=us, times_ours=us / 100)
        for contender, us in (("syncfree", 100.0), ("syncfree ssim_loss", 80.0), ("peer", 240.0))
    ]
    for row in rows:
        del row["launches"]
    lines = page_of(rows, tmp_path).splitlines()
    assert [line for line in lines if line.startswith("| SSIM")] == [
        "| SSIM | 100 µs | 2% | 15.4 µs | peer 240 µs | 2.4x | - |",
        "| SSIM: `ssim_loss` | 80 µs | 2% | 15.4 µs | peer 240 µs | 3.0x | - |",
    ]
    assert "ssim_loss" not in page_of(rows, tmp_path, only=("SSIM",))


def test_the_printed_table_says_which_host_time_is_which() -> None:
    alone = {"loop_us": None, "no_loop": "setup runs between the calls"}
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
    assert any(line.startswith("host us in a loop: the host's time per call") for line in lines)
    assert any(line.startswith("host us, 1 call: until a single call") for line in lines)
    assert lines[-1] == "* setup runs between the calls"


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
    text = page_of(found, tmp_path)
    assert "float32 | 1 ms | 100 µs (+10%) | 50 µs (+5%) | 2 ms (+200%) |" in text
    assert "| to time a region | syncfree | torch.cuda.Event |" in text
    assert "| host, in a loop | 2.5 µs | 11 µs |" in text
    assert "torchmetrics / ours |\n|---|---|---|---|---|---|---|\n\n" in text  # none in the first


def test_readme_figures_say_which_host_time_is_which(tmp_path: Path) -> None:
    def table(*rows: dict) -> str:
        pairs = [each for row in rows for each in (row, {**row, "contender": "torchmetrics"})]
        return page_of(pairs, tmp_path)

    looped = table(gpu_row())
    assert (
        "| step of a class | host, in a loop | launches | torchmetrics: host, in a loop" in looped
    )
    assert "| Accuracy.update | 15.4 µs | 1 | 15.4 µs | 1 | 1.0x |" in looped
    assert "`host, in a loop`: the host's time per call when calls follow one another" in looped
    assert "1 call" not in looped
    alone = table(gpu_row(loop_us=None, loop_host_us=None))
    assert "| Accuracy.update | 79 µs (1 call) | 1 | 79 µs (1 call) | 1 | 1.0x |" in alone
    assert "`(1 call)`: a single call" in alone
    on_cpu = gpu_row(device="cpu", loop_host_us=None)
    on_cpu["device_us"] = on_cpu["host_us"]
    assert "1 call" not in table(on_cpu)
