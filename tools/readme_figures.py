"""Writes README.md's measured figures from the committed result files, and nothing by hand.

`python tools/readme_figures.py` replaces what stands between the markers; `--check` fails if that
would change the file, which a test does. `--plots FOLDER` draws each result file there as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def time_text(us: float) -> str:
    """Three significant digits with a unit."""
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"


def host_us(row: dict) -> float:
    """Of a call back to back; of a single one where that is all that was measured."""
    looped = row.get("loop_host_us")
    return row["host_us"] if looped is None else looped


def ratio_text(row: dict | None) -> str:
    """A contender's time over ours."""
    return "-" if row is None else f"{row['times_ours']:.1f}x"


def table(path: Path) -> str:
    """One result file as a Markdown table."""
    facts = json.loads(path.read_text())
    hardware, versions = facts["hardware"], facts["versions"]
    gpu = hardware["gpu"] != "none"
    where = hardware["gpu"] if gpu else f"{hardware['cpu']}, {hardware['threads']} threads"
    lines = [
        f"**{where}**, torch {versions['torch']}, torchmetrics {versions['torchmetrics']}, "
        f"{facts['date']} ([{path.name}](benchmarks/results/{path.name}))",
        "",
        # A CPU's caches hold the inputs, and its host time is its time.
        f"| work | syncfree {'| share of read floor | host ' if gpu else ''}"
        "| best peer | peer / ours | torchmetrics / ours |",
        "|---" * (7 if gpu else 5) + "|",
    ]
    by_workload: dict[str, list[dict]] = {}
    for row in facts["rows"]:
        if not row["workload"].startswith("scaling: "):  # has a plot of its own
            by_workload.setdefault(row["workload"], []).append(row)
    layouts = {name: by_workload.pop(name) for name in list(by_workload) if "layouts: " in name}
    steps = {name: rows for name, rows in by_workload.items() if "launches" in rows[0]}
    for name, rows in by_workload.items():
        if name in steps:
            continue
        ours = next(r for r in rows if r["contender"] == "syncfree")
        peers = [r for r in rows if not r["contender"].startswith("syncfree")]
        best = min(peers, key=lambda r: r["device_us"], default=None)
        theirs = next((r for r in peers if r["contender"] == "torchmetrics"), None)
        peer = f"{best['contender']} {time_text(best['device_us'])}" if best else "none runs it"
        on_gpu = f"| {ours['share_of_floor']:.0%} | {time_text(host_us(ours))} " if gpu else ""
        lines.append(
            f"| {name} | {time_text(ours['device_us'])} {on_gpu}| {peer} "
            f"| {ratio_text(best)} | {ratio_text(theirs)} |"
        )
    return "\n".join([*lines, *step_table(steps, gpu), *layout_table(layouts)])


def layout_table(layouts: dict[str, list[dict]]) -> list[str]:
    """What tensors that are not plain cost."""
    if not layouts:
        return []
    lines = ["", "| same work on other tensors | plain | time over plain |", "|---|---|---|"]
    for name, (plain, *others) in layouts.items():
        cells = [f"{r['contender'].removeprefix('syncfree ')} {ratio_text(r)}" for r in others]
        time = time_text(plain["device_us"])
        lines.append(f"| {name.removeprefix('layouts: ')} | {time} | {', '.join(cells)} |")
    return lines


def step_table(steps: dict[str, list[dict]], gpu: bool) -> list[str]:
    """What a training loop pays for each step of a class, and what that puts on the GPU."""
    # `compute` and `reset` run once an epoch: they stand in the result file only.
    steps = {name: rows for name, rows in steps.items() if ".update" in name or ".forward" in name}
    if not steps:
        return []
    columns = ["host", "launches"] if gpu else ["time"]
    heads = ["step of a class", *columns, f"torchmetrics: {columns[0]}", *columns[1:]]
    lines = ["", f"| {' | '.join(heads)} | theirs / ours |", "|---" * (len(heads) + 1) + "|"]
    for name, rows in steps.items():
        ours, theirs = (
            next(row for row in rows if row["contender"] == library)
            for library in ("syncfree", "torchmetrics")
        )
        cells = []
        for row in (ours, theirs):
            cells += [time_text(host_us(row)), *([f"{row['launches']:g}"] if gpu else [])]
        ratio = host_us(theirs) / host_us(ours)
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.1f}x |")
    return lines


def processes_table(path: Path) -> str:
    """What `compute()` costs where metrics are reduced over processes."""
    facts = json.loads(path.read_text())
    versions = facts["versions"]
    lines = [
        f"**`compute()` over {facts['processes']} processes**, {facts['backend']}, "
        f"{facts['gpu']} each, torch {versions['torch']}, "
        f"torchmetrics {versions['torchmetrics']}, {facts['date']} "
        f"([{path.name}](benchmarks/results/distributed/{path.name}))",
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


def scaling_table(path: Path) -> str:
    """What more GPUs gain; with the plot, if it lies beside the result."""
    facts = json.loads(path.read_text())
    limit = {"restore": "which its GPUs limit", "compare": "which decoding limits"}[facts["work"]]
    folder = f"benchmarks/results/scaling/{path.stem}"
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


def main() -> int:
    """Rewrites or checks README.md."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    shown = [table(path) for path in sorted(RESULTS.glob("*.json"), reverse=True)]
    shown += [processes_table(path) for path in sorted(RESULTS.glob("distributed/*.json"))]
    shown += [scaling_table(path) for path in sorted(RESULTS.glob("scaling/*.json"), reverse=True)]
    tables = "\n\n".join(shown)
    updated = f"{head}{BEGIN}\n{tables}\n{END}{tail}"
    if "--check" in sys.argv[1:]:
        return int(updated != text)
    readme.write_text(updated)
    if "--plots" in sys.argv[1:]:
        draw(Path(sys.argv[sys.argv.index("--plots") + 1]))
    return 0


def draw(folder: Path) -> None:
    """Each result file as a plot of its own."""
    from syncfree.benchmarking.suites.plot import plot_rows
    from syncfree.benchmarking.suites.scaling_plot import plot_scaling

    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(RESULTS.glob("*.json")):
        facts = json.loads(path.read_text())
        plot_rows(facts, folder / f"{path.stem}.svg")
        if any(row["workload"].startswith("scaling: ") for row in facts["rows"]):
            plot_scaling(facts, folder / f"{path.stem}-scaling.svg")


if __name__ == "__main__":
    sys.exit(main())
