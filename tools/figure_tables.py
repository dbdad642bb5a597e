"""The committed result files as Markdown tables, for README.md and docs/figures.md."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

LOOPS = "restoration loop"
TIMED = " timed regions"
HOST = "host, in a loop"
SINGLE = " (1 call)"
ABOUT_HOST = (
    f"`{HOST}`: the host's time per call when calls follow one another without a pause, which is "
    "what a loop pays for each."
)
ABOUT_SINGLE = (
    f"`{SINGLE.strip()}`: a single call, as there is no figure in a loop. The GPU was drained and "
    "its L2 cache flushed before it, and the host takes several times as long for it."
)


def time_text(us: float) -> str:
    """Three significant digits with a unit."""
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def host_us(row: dict) -> float:
    """The host time of a call back to back, or of a single one if that is all there is."""
    looped = row.get("loop_host_us")
    return row["host_us"] if looped is None else looped


def host_text(row: dict) -> str:
    """The host time, marked if it is that of a single call."""
    # Files from before `loop_host_us` existed have a loop's figure in `host_us`.
    single = row["device"] == "cuda" and row.get("loop_host_us", 0) is None
    return time_text(host_us(row)) + (SINGLE if single else "")


def with_legend(lines: list[str]) -> list[str]:
    """The lines of the tables, and a legend for their host times."""
    text = "\n".join(lines)
    legend = [about for mark, about in ((HOST, ABOUT_HOST), (SINGLE, ABOUT_SINGLE)) if mark in text]
    return [*lines, "", " ".join(legend)] if legend else lines


def work_name(row: dict) -> str:
    """The workload's name, with the function if several of syncfree's do it."""
    _, _, function = row["contender"].partition("syncfree ")
    return row["workload"] + (f": `{function}`" if function else "")


def ratio_text(row: dict | None, ours: dict | None = None) -> str:
    """A contender's time over syncfree's, or over that of another function of syncfree."""
    if row is None:
        return "-"
    return f"{row['times_ours'] / (ours['times_ours'] if ours else 1.0):.1f}x"


def table(path: Path, results: str = "benchmarks/results", only: Collection[str] = ()) -> str:
    """One result file as Markdown tables.

    Args:
        path: The file.
        results: The path from the page to the folder of result files.
        only: The workloads to show; all if it is empty.
    """
    facts = json.loads(path.read_text())
    hardware, versions = facts["hardware"], facts["versions"]
    gpu = hardware["gpu"] != "none"
    where = hardware["gpu"] if gpu else f"{hardware['cpu']}, {hardware['threads']} threads"
    lines = [
        f"**{where}**, torch {versions['torch']}, torchmetrics {versions['torchmetrics']}, "
        f"{facts['date']} ([{path.name}]({results}/{path.name}))",
        "",
        # On a CPU the caches hold the inputs, and the host time is the time.
        f"| work | syncfree {f'| share of read floor | {HOST} ' if gpu else ''}"
        "| best peer | peer / ours | torchmetrics / ours |",
        "|---" * (7 if gpu else 5) + "|",
    ]
    by_workload: dict[str, list[dict]] = {}
    for row in facts["rows"]:
        if only and row["workload"] not in only:
            continue
        if not row["workload"].startswith("scaling: "):  # these have a plot of their own
            by_workload.setdefault(row["workload"], []).append(row)
    layouts = {name: by_workload.pop(name) for name in list(by_workload) if "layouts: " in name}
    steps = {name: rows for name, rows in by_workload.items() if "launches" in rows[0]}
    loops = {name: rows for name, rows in by_workload.items() if name.startswith(LOOPS)}
    regions = {name: rows for name, rows in by_workload.items() if name.endswith(TIMED)}
    for name, rows in by_workload.items():
        if name in steps or name in loops or name in regions:
            continue
        peers = [r for r in rows if not r["contender"].startswith("syncfree")]
        best = min(peers, key=lambda r: r["device_us"], default=None)
        theirs = next((r for r in peers if r["contender"] == "torchmetrics"), None)
        peer = f"{best['contender']} {time_text(best['device_us'])}" if best else "none runs it"
        for ours in rows:
            work = work_name(ours)
            if ours in peers or (only and work not in only):
                continue
            on_gpu = f"| {ours['share_of_floor']:.0%} | {host_text(ours)} " if gpu else ""
            lines.append(
                f"| {work} | {time_text(ours['device_us'])} {on_gpu}| {peer} "
                f"| {ratio_text(best, ours)} | {ratio_text(theirs, ours)} |"
            )
    lines = [*lines, *step_table(steps, gpu), *region_table(regions)]
    lines += loop_table(loops)
    return "\n".join([*with_legend(lines), *layout_table(layouts)])


def region_table(regions: dict[str, list[dict]]) -> list[str]:
    """What timing a region costs the host; the events cost the GPU the same with every timer."""
    lines = []
    for name, rows in regions.items():
        heads = ["to time a region", *(row["contender"] for row in rows)]
        count = int(name.removesuffix(TIMED))
        cells = [time_text(host_us(row) / count) for row in rows]
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines.append(f"| {HOST} | {' | '.join(cells)} |")
    return lines


def loop_table(loops: dict[str, list[dict]]) -> list[str]:
    """What metrics add to a restoration loop."""
    if not loops:
        return []
    keys = ("syncfree no metrics", "syncfree", "syncfree side stream", "torchmetrics")
    heads = ("work", "no metrics", "syncfree adds", "on its own stream", "torchmetrics adds")
    lines = ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, rows in loops.items():
        found = {row["contender"]: row for row in rows}
        bare, *rest = (found.get(key) for key in keys)
        cells = [added_text(row, bare) for row in rest]
        lines.append(f"| {name} | {time_text(whole_us(bare))} | {' | '.join(cells)} |")
    return lines


def whole_us(row: dict) -> float:
    """The time of a call until all is done, back to back if known, as in a program."""
    looped = row.get("loop_us")
    return row["device_us"] if looped is None else looped


def added_text(row: dict | None, bare: dict) -> str:
    """How much more a contender takes than the loop without metrics."""
    if row is None:
        return "-"
    more = whole_us(row) - whole_us(bare)
    return f"{time_text(max(more, 0.0))} ({more / whole_us(bare):+.0%})"


def layout_table(layouts: dict[str, list[dict]]) -> list[str]:
    """What other tensors cost than dense ones."""
    if not layouts:
        return []
    lines = ["", "| same work on other tensors | plain | time over plain |", "|---|---|---|"]
    for name, (plain, *others) in layouts.items():
        cells = [f"{r['contender'].removeprefix('syncfree ')} {ratio_text(r)}" for r in others]
        time = time_text(plain["device_us"])
        lines.append(f"| {name.removeprefix('layouts: ')} | {time} | {', '.join(cells)} |")
    return lines


def step_table(steps: dict[str, list[dict]], gpu: bool) -> list[str]:
    """What each step of a class costs a training loop, and how many launches it makes."""
    # `compute` and `reset` run once an epoch, so they are only in the result file.
    steps = {name: rows for name, rows in steps.items() if ".update" in name or ".forward" in name}
    if not steps:
        return []
    columns = [HOST, "launches"] if gpu else ["time"]
    heads = ["step of a class", *columns, f"torchmetrics: {columns[0]}", *columns[1:]]
    lines = ["", f"| {' | '.join(heads)} | theirs / ours |", "|---" * (len(heads) + 1) + "|"]
    for name, rows in steps.items():
        ours, theirs = (
            next(row for row in rows if row["contender"] == library)
            for library in ("syncfree", "torchmetrics")
        )
        cells = []
        for row in (ours, theirs):
            cells += [host_text(row), *([f"{row['launches']:g}"] if gpu else [])]
        ratio = host_us(theirs) / host_us(ours)
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.1f}x |")
    return lines


def processes_table(path: Path, results: str = "benchmarks/results") -> str:
    """What `compute()` costs if metrics are reduced over processes."""
    facts = json.loads(path.read_text())
    versions = facts["versions"]
    lines = [
        f"**`compute()` over {facts['processes']} processes**, {facts['backend']}, "
        f"{facts['gpu']} each, torch {versions['torch']}, "
        f"torchmetrics {versions['torchmetrics']}, {facts['date']} "
        f"([{path.name}]({results}/distributed/{path.name}))",
        "",
        "| metric | syncfree: host | waits for the GPU | torchmetrics: host | waits "
        "| theirs / ours |",
        "|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(row["metric"] for row in facts["rows"])
    for name in names:
        ours, theirs = (
            next(r for r in facts["rows"] if (r["metric"], r["contender"]) == (name, library))
            for library in ("syncfree", "torchmetrics")
        )
        cells = [
            cell
            for row in (ours, theirs)
            for cell in (time_text(row["host_us"]), "yes" if row["waits"] else "no")
        ]
        ratio = theirs["host_us"] / ours["host_us"]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.1f}x |")
    return "\n".join(lines)


def scaling_table(path: Path, results: str = "benchmarks/results") -> str:
    """What more GPUs gain; with the plot, if there is one beside the result."""
    facts = json.loads(path.read_text())
    limit = {"restore": "which its GPUs limit", "compare": "which decoding limits"}[facts["work"]]
    folder = f"{results}/scaling/{path.stem}"
    lines = [
        f"**`benchmarks/scaling.py {facts['work']}`**, {limit}: {facts['gpu']}, "
        f"{facts['cores_per_process']} cores each, torch {facts['versions']['torch']}, "
        f"{facts['date']} ([{path.name}]({folder}.json))",
        "",
        "| GPUs | schedule | images/s | speed-up | efficiency | imbalance | GPUs idle |",
        "|---" * 7 + "|",
    ]
    for row in facts["rows"]:
        idle = sum(rank["idle_share"] for rank in row["ranks"]) / row["processes"]
        lines.append(
            f"| {row['processes']} | {row['schedule']} | {row['images_per_second']:.0f} "
            f"| {row['speedup']:.2f} | {row['efficiency']:.0%} | {row['imbalance']:.1%} "
            f"| {idle:.0%} |"
        )
    if path.with_suffix(".png").exists():
        lines += ["", f"![Images per second by GPUs, and what each GPU did]({folder}.png)"]
    return "\n".join(lines)
