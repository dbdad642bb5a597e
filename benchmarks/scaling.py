"""How work scales over the GPUs of one host: dynamic and fixed shares, computing and decoding.

`python benchmarks/scaling.py restore --counts 1,4 --json FILE` denoises pictures that lie decoded
in page-locked memory, so that the GPUs limit. With `compare` in place of `restore` it makes PNG
files of mixed sizes and runs `syncfree compare` over them, so that decoding limits. Each process
gets its part of the cores, also where it is alone. How much work fills `--seconds` on the first
count of processes is measured before. `--devices cpu` rehearses without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import syncfree
from syncfree.distributed import Evaluation, Fleet, evaluate, launch, local_devices

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from restore_images import NoisyPictures, TotalVariation, psnr, ssim

SCHEDULES = {"dynamic": "dynamic", "equal": "equal", "pixels": "cost"}
ITERATIONS = 200  # of the denoiser, as many as scikit-image's takes at most
BATCH = 32  # enough for a GPU to be the bottleneck, and little to wait for at the end
PICTURES = 128  # different ones; the data set goes through them again and again
SIZES = ((256, 256), (384, 512), (512, 768), (720, 1280))  # of the files

Row = dict[str, Any]


class Repeated:
    """A data set that goes through another one until it has this length."""

    def __init__(self, data: NoisyPictures, length: int) -> None:
        self._data, self._length = data, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self._data[index % len(self._data)]


def restore(
    fleet: Fleet, device: str, images: int, given: argparse.Namespace, result: Path
) -> None:
    """One process: denoises and judges with each schedule; rank 0 writes the rows."""
    if device == "cpu":
        torch.set_num_threads(given.cores)
    pictures = NoisyPictures(given.pictures, given.scale, pinned=device != "cpu")
    model = TotalVariation(iterations=given.iterations).eval().to(device)

    def judged(length: int, schedule: str) -> Evaluation:
        data = Repeated(pictures, length)
        costs = [data[index][0].numel() for index in range(length)]
        return evaluate(model, data, {"psnr": psnr, "ssim": ssim}, device=device, costs=costs,
                        batch=BATCH, workers=given.cores, schedule=SCHEDULES[schedule])  # fmt: skip

    # Kernels load and memory is reserved; then a short run tells the speed, to all ranks the same.
    some = given.pictures * fleet.world
    judged(some, "dynamic")
    if not images:
        images = max(some, round(given.seconds * some / judged(some, "dynamic").statistics.seconds))
    rows = []
    for schedule in _schedules(given, fleet.world):
        found = judged(images, schedule)
        ranks = [{**asdict(rank.report), **asdict(rank)} for rank in found.statistics.ranks]
        means = {name: values.mean().item() for name, values in found.values.items()}
        rows.append(_row(schedule, images, {**asdict(found.statistics), "ranks": ranks}) | means)
    if fleet.rank == 0:
        result.write_text(json.dumps(rows))


def restore_rows(given: argparse.Namespace) -> list[Row]:
    """Rows of all counts, in processes started for each."""
    devices = local_devices() if given.devices == "cuda" else ["cpu"] * max(given.counts)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        for count in given.counts:
            images = rows[0]["images"] if rows else 0
            launch(restore, devices[:count], (images, given, result))
            rows += json.loads(result.read_text())
    return rows


def make_pair(folder: Path, index: int) -> None:
    """A smooth picture with grain, and the same with more of it."""
    random = np.random.default_rng(index)
    height, width = SIZES[index % len(SIZES)]
    y, x = np.mgrid[:height, :width][..., None]
    smooth = 128 + 80 * np.sin(x / (20 + index % 17) + np.arange(3)) * np.cos(y / 31)
    for name, sigma in (("ref", 2), ("test", 6)):
        noisy = smooth + random.normal(0, sigma, smooth.shape)
        pixels = noisy.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{index:03}.png", compress_level=1)


def make_folders(folder: Path, given: argparse.Namespace) -> int:
    """Folders `ref` and `test`, with links so many that decoding them takes `given.seconds`."""
    for name in ("ref", "test"):
        (folder / name).mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(make_pair, [folder] * given.pictures, range(given.pictures)))
    files = sorted(folder.glob("*/*.png"))

    def decode(file: Path) -> None:
        with Image.open(file) as image:
            image.load()

    begin = time.perf_counter()
    with ThreadPoolExecutor(given.cores) as pool:
        list(pool.map(decode, files))
    seconds = (time.perf_counter() - begin) / given.counts[0]
    pairs = max(given.pictures, round(given.pictures * given.seconds / seconds))
    for name in ("ref", "test"):
        for index in range(given.pictures, pairs):
            original = folder / name / f"{index % given.pictures:03}.png"
            (folder / name / f"again-{index:06}.png").hardlink_to(original)
    return pairs


def compare_rows(given: argparse.Namespace) -> list[Row]:
    """Rows of all counts, each by a `syncfree compare` of its own."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = make_folders(folder, given)
        for count in given.counts:
            for schedule in _schedules(given, count):
                gpus = str(count) if given.devices == "cuda" else f"cpu:{count}"
                subprocess.run(
                    [sys.executable, "-m", "syncfree", "compare", folder / "ref", folder / "test",
                     "--gpus", gpus, "--schedule", schedule, "--workers", str(given.cores),
                     "--json", folder / "report.json"],
                    check=True, stdout=subprocess.DEVNULL,
                )  # fmt: skip
                report = json.loads((folder / "report.json").read_text())
                rows.append(_row(schedule, pairs, report["fleet"]))
    return rows


def _schedules(given: argparse.Namespace, world: int) -> list[str]:
    """One process has nothing to share."""
    return given.schedules if world > 1 else ["dynamic"]


def _row(schedule: str, images: int, fleet: dict[str, Any]) -> Row:
    kept = ("device", "items", "active_seconds", "busy_seconds", "transfer_seconds", "idle_share",
            "transfer_share", "clock_mhz", "reason", "lost")  # fmt: skip
    return {
        "processes": len(fleet["ranks"]),
        "schedule": schedule,
        "images": images,
        "seconds": fleet["seconds"],
        "images_per_second": images / fleet["seconds"],
        "imbalance": fleet["imbalance"],
        "startup_seconds": fleet["startup_seconds"],
        "ranks": [{name: rank[name] for name in kept} for rank in fleet["ranks"]],
    }


def draw(facts: dict[str, Any], path: Path) -> None:
    """Images per second against processes, and what each of the most processes did."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows, counts = facts["rows"], sorted({row["processes"] for row in facts["rows"]})
    first = rows[0]["images_per_second"] / rows[0]["processes"]
    left.plot(counts, [first * count for count in counts], "--", color="gray", label="ideal")
    for schedule in dict.fromkeys(row["schedule"] for row in rows):
        # One process is the beginning of each line.
        drawn = [row for row in rows if row["schedule"] == schedule or row is rows[0]]
        rates = [row["images_per_second"] for row in drawn]
        left.plot([row["processes"] for row in drawn], rates, "o-", label=schedule)
    left.set(xlabel="processes", ylabel="images/s", xticks=counts, ylim=(0, None))
    left.legend()
    bars: dict[str, tuple[float, float]] = {}
    for row in rows:
        for number, rank in enumerate(row["ranks"] if row["processes"] == counts[-1] else ()):
            busy = rank["busy_seconds"]
            bars[f"{row['schedule']} {number}"] = busy, max(0.0, row["seconds"] - busy)
    names, (busy, idle) = list(bars), zip(*bars.values(), strict=True)
    right.barh(names, busy, color="#2b6a99", label="busy")
    right.barh(names, idle, left=busy, color="#e6e6e6", label="idle")
    right.set(xlabel="seconds")
    right.invert_yaxis()
    right.legend()
    figure.savefig(path)


def main() -> None:
    """Print a line for each count and schedule, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=("restore", "compare"))
    parser.add_argument("--counts", default="1,2", help="of processes, rising")
    parser.add_argument("--schedules", default="dynamic,equal,pixels", help="of several processes")
    parser.add_argument("--seconds", type=float, default=12, help="of the first count's run")
    parser.add_argument("--cores", type=int, help="threads of each process; default: its part")
    parser.add_argument("--devices", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=PICTURES, help="different ones")
    parser.add_argument("--scale", type=float, default=1, help="restore: of the pictures' sides")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="restore: the model's")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    given.counts = [int(count) for count in given.counts.split(",")]
    given.schedules = given.schedules.split(",")
    there = torch.cuda.device_count() if given.devices == "cuda" else max(given.counts)
    if max(given.counts) > there:
        parser.error(f"--counts up to {max(given.counts)}, but there are {there} GPUs")
    if set(given.schedules) - set(SCHEDULES):
        parser.error(f"--schedules are some of {', '.join(SCHEDULES)}")
    cores = len(os.sched_getaffinity(0))
    given.cores = given.cores or max(1, cores // max(given.counts))

    rows = restore_rows(given) if given.work == "restore" else compare_rows(given)
    print("processes  schedule  images  seconds  images/s  speed-up  efficiency  imbalance  idle")
    for row in rows:
        row["speedup"] = (
            rows[0]["processes"] * row["images_per_second"] / rows[0]["images_per_second"]
        )
        row["efficiency"] = row["speedup"] / row["processes"]
        idle = sum(rank["idle_share"] for rank in row["ranks"]) / row["processes"]
        print(
            f"{row['processes']:9}  {row['schedule']:8}  {row['images']:6}  {row['seconds']:7.2f}  "
            f"{row['images_per_second']:8.1f}  {row['speedup']:8.2f}  {row['efficiency']:10.1%}  "
            f"{row['imbalance']:9.1%}  {idle:4.0%}"
        )
    facts = {
        "date": datetime.date.today().isoformat(),
        "work": given.work,
        "gpu": torch.cuda.get_device_name() if given.devices == "cuda" else "none",
        "cores": cores,
        "cores_per_process": given.cores,
        "versions": {"torch": torch.__version__, "syncfree": syncfree.__version__},
        "rows": rows,
    }
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(facts, indent=1) + "\n")
    if given.plot is not None:
        draw(facts, given.plot)


if __name__ == "__main__":
    main()
