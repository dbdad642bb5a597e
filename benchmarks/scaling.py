"""How work scales over the GPUs of one host: dynamic and fixed shares, computing and decoding.

`python benchmarks/scaling.py restore --counts 1,4 --json FILE` denoises decoded pictures in
page-locked memory, so that the GPUs are the limit. `compare` in place of `restore` makes PNG files
of mixed sizes and runs `syncfree compare` on them, so that decoding is the limit. Each process gets
the same share of the cores, even if it is alone. A short run before measures how much work fills
`--seconds` with the first count of processes. The start of processes is not part of the seconds.
Progress goes to stderr, and each row to the file as soon as it is known. `--limit` bounds the total
time. `--devices cpu` rehearses without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import syncfree
from scaling_plot import draw
from syncfree.distributed import Evaluation, Fleet, evaluate, launch, local_devices

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from restore_images import NoisyPictures, TotalVariation, psnr, ssim

SCHEDULES = {"dynamic": "dynamic", "equal": "equal", "pixels": "cost"}
ITERATIONS = 200  # of the denoiser: the most that scikit-image's takes
BATCH = 32  # large enough to make the GPU the bottleneck, and little to wait for at the end
PICTURES = 128  # different pictures, which the data set repeats
TRIAL = 1 / 8  # of `--seconds`: the length of the short run before
SIZES = ((256, 256), (384, 512), (512, 768), (720, 1280))  # of the files

Row = dict[str, Any]


class Repeated:
    """A data set that repeats another one until it has this length."""

    def __init__(self, data: NoisyPictures, length: int) -> None:
        self._data, self._length = data, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self._data[index % len(self._data)]


def restore(
    fleet: Fleet, device: str, images: int, given: argparse.Namespace, result: Path
) -> None:
    """One process: denoises and evaluates with each schedule; rank 0 writes the rows."""
    if device == "cpu":
        torch.set_num_threads(given.cores)
    pictures = NoisyPictures(given.pictures, given.scale, pinned=device != "cpu")
    if fleet.rank == 0:
        progress(given, f"{fleet.world} x {given.devices}: pictures made, warming up")
    model = TotalVariation(iterations=given.iterations).eval().to(device)

    def judged(length: int, schedule: str) -> Evaluation:
        data = Repeated(pictures, length)
        costs = [data[index][0].numel() for index in range(length)]
        return evaluate(model, data, {"psnr": psnr, "ssim": ssim}, device=device, costs=costs,
                        batch=BATCH, workers=given.cores, schedule=SCHEDULES[schedule])  # fmt: skip

    # First kernels load and memory is reserved; then a short run measures the speed, which is the
    # same for all ranks.
    some = given.pictures * fleet.world
    judged(some, "dynamic")
    if not images:
        images = max(some, round(given.seconds * some / judged(some, "dynamic").statistics.seconds))
    rows = []
    for schedule in _schedules(given, fleet.world):
        if not _all_go(fleet, schedule, images, given):
            break
        found = judged(images, schedule)
        ranks = [{**asdict(rank.report), **asdict(rank)} for rank in found.statistics.ranks]
        means = {name: values.mean().item() for name, values in found.values.items()}
        rows.append(_row(schedule, images, {**asdict(found.statistics), "ranks": ranks}) | means)
    if fleet.rank == 0:
        result.write_text(json.dumps(rows))


def _all_go(fleet: Fleet, schedule: str, images: int, given: argparse.Namespace) -> bool:
    """Whether to run; rank 0 decides, because the ranks' clocks could disagree."""
    key = f"go/{schedule}"
    if fleet.rank == 0:
        fleet.store.set(key, str(begins(given, fleet.world, schedule, images)))
    return bool(fleet.store.get(key) == b"True")


def restore_rows(given: argparse.Namespace) -> Iterator[Row]:
    """Rows of all counts, with new processes for each count."""
    devices = local_devices() if given.devices == "cuda" else ["cpu"] * max(given.counts)
    images = 0
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        for count in given.counts:
            launch(restore, devices[:count], (images, given, result))
            rows = json.loads(result.read_text())
            yield from rows
            if not rows:
                return
            images = rows[0]["images"]


def make_pair(folder: Path, index: int) -> None:
    """A smooth picture with noise, and the same with more noise."""
    random = np.random.default_rng(index)
    height, width = SIZES[index % len(SIZES)]
    y, x = np.mgrid[:height, :width][..., None]
    smooth = 128 + 80 * np.sin(x / (20 + index % 17) + np.arange(3)) * np.cos(y / 31)
    for name, sigma in (("ref", 2), ("test", 6)):
        noisy = smooth + random.normal(0, sigma, smooth.shape)
        pixels = noisy.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{index:03}.png", compress_level=1)


def make_pictures(folder: Path, given: argparse.Namespace) -> float:
    """Makes the folders `ref` and `test`; returns how many pairs are decoded per second."""
    for name in ("ref", "test"):
        (folder / name).mkdir()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(make_pair, [folder] * given.pictures, range(given.pictures)))
    files = sorted(folder.glob("*/*.png"))

    def decode(file: Path) -> None:
        with Image.open(file) as image:
            image.load()

    begin = time.perf_counter()
    with ThreadPoolExecutor(given.cores) as pool:
        list(pool.map(decode, files))
    return given.pictures / (time.perf_counter() - begin)


def link_pictures(folder: Path, pictures: int, pairs: int) -> None:
    """Extends the folders to `pairs` pairs, with links to the first `pictures` of them."""
    for name in ("ref", "test"):
        for index in range(pictures, pairs):
            link = folder / name / f"again-{index:06}.png"
            if not link.exists():
                link.hardlink_to(folder / name / f"{index % pictures:03}.png")


def compare_rows(given: argparse.Namespace) -> Iterator[Row]:
    """Rows of all counts, each from its own run of `syncfree compare`."""
    with tempfile.TemporaryDirectory() as name:
        folder, first = Path(name), given.counts[0]
        decoded = first * make_pictures(folder, given)
        # Decoding is most of the work, but not all, so a run of the real command tells its speed.
        pairs = max(given.pictures, round(decoded * given.seconds * TRIAL))
        link_pictures(folder, given.pictures, pairs)
        progress(given, f"{given.pictures} pairs made; a run of {pairs} tells the speed")
        trial = _compared(folder, first, "dynamic", given)
        pairs = max(pairs, round(pairs * given.seconds / trial["seconds"]))
        link_pictures(folder, given.pictures, pairs)
        for count in given.counts:
            for schedule in _schedules(given, count):
                if not begins(given, count, schedule, pairs):
                    return
                yield _row(schedule, pairs, _compared(folder, count, schedule, given))


def _compared(folder: Path, count: int, schedule: str, given: argparse.Namespace) -> dict[str, Any]:
    """What `syncfree compare` reports about its processes."""
    gpus = str(count) if given.devices == "cuda" else f"cpu:{count}"
    subprocess.run(
        [sys.executable, "-m", "syncfree", "compare", folder / "ref", folder / "test",
         "--gpus", gpus, "--schedule", schedule, "--workers", str(given.cores),
         "--json", folder / "report.json"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    fleet: dict[str, Any] = json.loads((folder / "report.json").read_text())["fleet"]
    return fleet


def progress(given: argparse.Namespace, text: str) -> None:
    """Prints a line to stderr, with the seconds since the beginning."""
    print(f"{time.time() - given.begin:6.1f} s  {text}", file=sys.stderr, flush=True)


def begins(given: argparse.Namespace, count: int, schedule: str, images: int) -> bool:
    """Whether a run can end within the limit; prints that it begins, or that it is left out."""
    seconds = given.seconds * given.counts[0] / count
    what = f"{count} {'process' if count == 1 else 'processes'}, {schedule}"
    late = time.time() - given.begin + seconds > given.limit
    if late:
        progress(given, f"{what}: left out, as it would end after --limit {given.limit:g}")
    else:
        progress(given, f"{what}: {images} images, about {seconds:.0f} s")
    return not late


def _schedules(given: argparse.Namespace, world: int) -> list[str]:
    """The schedules to run: one process has nothing to share, so it needs only one."""
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


def main() -> None:
    """Print a line for each count and schedule, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=("restore", "compare"))
    parser.add_argument("--counts", default="1,2", help="of processes, rising")
    parser.add_argument("--schedules", default="dynamic,equal,pixels", help="of several processes")
    parser.add_argument("--seconds", type=float, default=12, help="of the first count's run")
    parser.add_argument("--limit", type=float, default=math.inf,
                        help="seconds for all; a run that would end later is left out")  # fmt: skip
    parser.add_argument("--cores", type=int, help="threads of each process; default: its part")
    parser.add_argument("--devices", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pictures", type=int, default=PICTURES, help="different ones")
    parser.add_argument("--scale", type=float, default=1, help="restore: of the pictures' sides")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="restore: the model's")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    given.begin = time.time()
    given.counts = [int(count) for count in given.counts.split(",")]
    given.schedules = given.schedules.split(",")
    there = torch.cuda.device_count() if given.devices == "cuda" else max(given.counts)
    if max(given.counts) > there:
        parser.error(f"--counts up to {max(given.counts)}, but there are {there} GPUs")
    if set(given.schedules) - set(SCHEDULES):
        parser.error(f"--schedules are some of {', '.join(SCHEDULES)}")
    cores = len(os.sched_getaffinity(0))
    given.cores = given.cores or max(1, cores // max(given.counts))

    facts: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "work": given.work,
        "gpu": torch.cuda.get_device_name() if given.devices == "cuda" else "none",
        "cores": cores,
        "cores_per_process": given.cores,
        "versions": {"torch": torch.__version__, "syncfree": syncfree.__version__},
        "rows": [],
    }
    print("processes  schedule  images  seconds  images/s  speed-up  efficiency  imbalance  idle")
    for row in restore_rows(given) if given.work == "restore" else compare_rows(given):
        facts["rows"].append(row)
        first = facts["rows"][0]
        row["speedup"] = first["processes"] * row["images_per_second"] / first["images_per_second"]
        row["efficiency"] = row["speedup"] / row["processes"]
        idle = sum(rank["idle_share"] for rank in row["ranks"]) / row["processes"]
        print(
            f"{row['processes']:9}  {row['schedule']:8}  {row['images']:6}  {row['seconds']:7.2f}  "
            f"{row['images_per_second']:8.1f}  {row['speedup']:8.2f}  {row['efficiency']:10.1%}  "
            f"{row['imbalance']:9.1%}  {idle:4.0%}",
            flush=True,
        )
        if given.json is not None:
            given.json.parent.mkdir(parents=True, exist_ok=True)
            given.json.write_text(json.dumps(facts, indent=1) + "\n")
    if not facts["rows"]:
        sys.exit(f"no run ends within --limit {given.limit:g}")
    if given.plot is not None:
        draw(facts, given.plot)
    progress(given, "done")


if __name__ == "__main__":
    main()
