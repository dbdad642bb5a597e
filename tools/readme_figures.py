"""Writes the measured figures into README.md and docs/figures.md.

`python tools/readme_figures.py` replaces the text between the markers by a sentence and tables from
the committed result files, and draws the pages' plots beside those files. `--check` fails if the
text would change; a test runs it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from figure_tables import (
    LOOPS,
    TIMED,
    host_us,
    processes_table,
    scaling_table,
    table,
    time_text,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

# Small and large workloads of each metric, also those in which a peer is ahead.
IN_README = (
    "PSNR 16x3x256x256 float32",
    "PSNR 32x3x1080x1920 float32",
    "PSNR 32x3x1080x1920 uint8",
    "SSIM 16x3x256x256 float32",
    "SSIM 32x3x1080x1920 float32",
    "SSIM and gradients 8x3x1080x1920 float32",
    "SSIM and gradients 8x3x1080x1920 float32: `ssim_loss`",
    "MS-SSIM 32x3x1080x1920 float32",
    "accuracy micro 256x1000 float32",
    "accuracy micro 4096x128256 bfloat16, 60% right",
    "accuracy micro top-5 4096x128256 bfloat16, 60% right",
    "accuracy macro 8x19x1024x1024 float32",
    "multilabel accuracy 8192x1000 float32",
    "MulticlassAccuracy.forward 256x1000 micro",
    "PeakSignalNoiseRatio.forward 16x3x256x256",
    "StructuralSimilarityIndexMeasure.forward 16x3x256x256",
    "100 timed regions",
    "restoration loop of 8, 8x3x512x512 float32",
    "PSNR 4x3x512x768 float32",
    "SSIM 4x3x512x768 float32",
    "MS-SSIM 4x3x512x768 float32",
    "accuracy micro 2x19x512x512 float32",
    "accuracy micro 512x128256 bfloat16, 100% right",
)


def figures(page: Path) -> str:
    """The figures of a page: README shows `IN_README` of the latest files, docs/figures.md all."""
    is_readme = page.name == "README.md"
    results = ("" if is_readme else "../") + "benchmarks/results"
    shown = []
    for path in latest() if is_readme else sorted(RESULTS.glob("*.json"), reverse=True):
        shown.append(table(path, results, IN_README if is_readme else ()))
        plot = RESULTS / f"{path.stem}{'' if is_readme else '-scaling'}.png"
        about = "Time over syncfree's" if is_readme else "Time by the bytes of the input"
        if plot.exists():
            shown.append(f"![{about}]({results}/{plot.name})")
    if not is_readme:
        files = sorted(RESULTS.glob("distributed/*.json"))
        shown += [processes_table(path, results) for path in files]
    files = sorted(RESULTS.glob("scaling/*.json"), reverse=True)
    if is_readme:
        files = [max(RESULTS.glob("scaling/restore-*.json"), key=date_of)]
    shown += [scaling_table(path, results) for path in files]
    return "\n\n".join(shown)


def headline(_: Path) -> str:
    """A sentence with two of the figures: device time of a small SSIM, host time of a step."""
    facts = next(f for f in map(read, latest()) if f["hardware"]["gpu"] != "none")
    times = {(row["workload"], row["contender"]): row for row in facts["rows"]}
    ssim, theirs = (
        times["SSIM 16x3x256x256 float32", who]["device_us"] for who in ("syncfree", "torchmetrics")
    )
    step, their_step = (
        host_us(times["MulticlassAccuracy.forward 256x1000 micro", who])
        for who in ("syncfree", "torchmetrics")
    )
    return (
        f"On an {facts['hardware']['gpu']}, SSIM of 16 x 3 x 256 x 256 takes {time_text(ssim)} "
        f"where TorchMetrics takes {time_text(theirs)},\nand a step of `MulticlassAccuracy` keeps "
        f"the host for {time_text(step)} instead of {time_text(their_step)} "
        "([more figures](#figures))."
    )


# The texts between the markers of a name, by page.
WRITTEN = {
    ROOT / "README.md": {"headline": headline, "figures": figures},
    ROOT / "docs" / "figures.md": {"figures": figures},
}


def read(path: Path) -> dict:
    """A result file."""
    return dict(json.loads(path.read_text()))


def date_of(path: Path) -> str:
    """The ISO date of a result, so that later dates compare greater."""
    return str(json.loads(path.read_text())["date"])


def latest() -> list[Path]:
    """The newest file of a GPU, then the newest of a CPU."""
    newest: dict[bool, tuple[str, Path]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        facts = json.loads(path.read_text())
        has_gpu = facts["hardware"]["gpu"] != "none"
        newest[has_gpu] = max(newest.get(has_gpu, ("", path)), (facts["date"], path))
    return [newest[has_gpu][1] for has_gpu in (True, False) if has_gpu in newest]


def main() -> int:
    """Rewrites or checks the pages."""
    is_check = "--check" in sys.argv[1:]
    if not is_check:
        draw()
    unchanged = True
    for page, parts in WRITTEN.items():
        text = updated = page.read_text()
        for name, write in parts.items():
            begin, end = f"<!-- {name}:begin -->\n", f"\n<!-- {name}:end -->"
            head, rest = updated.split(begin)
            _, tail = rest.split(end)
            updated = f"{head}{begin}{write(page)}{end}{tail}"
        unchanged = unchanged and updated == text
        if not is_check:
            page.write_text(updated)
    return int(is_check and not unchanged)


def is_drawn(row: dict) -> bool:
    """Whether a plot shows the row: syncfree and peers, without variants of syncfree and loops."""
    name, contender = row["workload"], row["contender"]
    is_work = name in IN_README and not name.startswith(LOOPS) and not name.endswith(TIMED)
    return is_work and not contender.startswith("syncfree ")


def draw() -> None:
    """Draws the plots of each result file beside it: bars for GPUs, and lines by size."""
    from syncfree.benchmarking.suites.plot import plot_rows
    from syncfree.benchmarking.suites.scaling_plot import plot_scaling

    for path in sorted(RESULTS.glob("*.json")):
        facts = json.loads(path.read_text())
        if facts["hardware"]["gpu"] != "none":
            chosen = [row for row in facts["rows"] if is_drawn(row)]
            plot_rows({**facts, "rows": chosen}, RESULTS / f"{path.stem}.png")
        if any(row["workload"].startswith("scaling: ") for row in facts["rows"]):
            plot_scaling(facts, RESULTS / f"{path.stem}-scaling.png")


if __name__ == "__main__":
    sys.exit(main())
