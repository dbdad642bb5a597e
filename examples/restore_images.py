"""Denoises images on 1 to N devices, measures the results' quality, and reports the speed-up.

Run it as `python examples/restore_images.py --devices cpu --counts 1,2`, or on GPUs with
`--counts 1,2,4,8`. Images of mixed sizes go to whichever device is free.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from syncfree.distributed import Fleet, evaluate, launch, local_devices
from syncfree.functional import peak_signal_noise_ratio, structural_similarity_index_measure

SIZES = ((192, 256), (256, 256), (256, 384), (384, 512))
NOISE = 0.1


class TotalVariation(nn.Module):
    """Denoising by minimal total variation, with the dual iteration of Chambolle (2004).

    Args:
        weight: strength; about twice the standard deviation of the noise.
        iterations: number of dual iterations, each with two differences and a divergence.
    """

    def __init__(self, weight: float = 2 * NOISE, iterations: int = 40) -> None:
        super().__init__()
        self.weight = weight
        self.iterations = iterations

    def forward(self, noisy: Tensor) -> Tensor:
        """The denoised B x C x H x W images."""
        down, across = torch.zeros_like(noisy), torch.zeros_like(noisy)
        for _ in range(self.iterations):
            rest = self._divergence(down, across) - noisy / self.weight
            along = torch.zeros_like(noisy)
            along[..., :-1, :] = rest[..., 1:, :] - rest[..., :-1, :]
            beside = torch.zeros_like(noisy)
            beside[..., :-1] = rest[..., 1:] - rest[..., :-1]
            norm = 1 + 0.25 * torch.hypot(along, beside)
            down, across = (down + 0.25 * along) / norm, (across + 0.25 * beside) / norm
        return noisy - self.weight * self._divergence(down, across)

    @staticmethod
    def _divergence(down: Tensor, across: Tensor) -> Tensor:
        found = down + across
        found[..., 1:, :] -= down[..., :-1, :]
        found[..., 1:] -= across[..., :-1]
        return found


class NoisyPictures:
    """Pairs of a noisy and a clean picture, made once and kept in (pinned) memory.

    Args:
        length: number of pairs.
        scale: factor for the sides of the pictures.
        pinned: whether the memory is page-locked, so that a copy to the GPU makes nobody wait.
    """

    def __init__(self, length: int, scale: float, pinned: bool) -> None:
        random = torch.Generator().manual_seed(0)
        self._pairs = []
        # Thousands of small operations: threads that synchronize after each of them, in all
        # processes at once, would take many times as long as one thread.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for index in range(length):
            height, width = SIZES[index % len(SIZES)]
            clean = _picture(int(height * scale), int(width * scale), index)
            noisy = clean + NOISE * torch.randn(clean.shape, generator=random)
            self._pairs.append(tuple(x.pin_memory() if pinned else x for x in (noisy, clean)))
        torch.set_num_threads(threads)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self._pairs[index]


def _picture(height: int, width: int, seed: int) -> Tensor:
    """Smooth shading with discs on it, 3 x H x W in 0..1."""
    random = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    picture = (0.5 + 0.2 * torch.sin(x / 40 + seed) * torch.cos(y / 30)).expand(3, -1, -1).clone()
    for row, column, radius, *color in torch.rand(12, 6, generator=random).tolist():
        inside = (y - row * height) ** 2 + (x - column * width) ** 2 < (8 + 40 * radius) ** 2
        picture[:, inside] = torch.tensor(color)[:, None]
    return picture


def psnr(preds: Tensor, target: Tensor) -> Tensor:
    """PSNR in dB, one value per image."""
    return peak_signal_noise_ratio(preds, target, data_range=1.0, reduction="none", dim=(1, 2, 3))


def ssim(preds: Tensor, target: Tensor) -> Tensor:
    """SSIM, one value per image."""
    return structural_similarity_index_measure(preds, target, data_range=1.0, reduction="none")


def restore(
    fleet: Fleet, device: str, images: int, scale: float, schedule: str, result: Path
) -> None:
    """One process: restores its part of the images; rank 0 writes the results."""
    data = NoisyPictures(images, scale, pinned=device != "cpu")
    costs = [clean[0].numel() for _, clean in data]
    model = TotalVariation().eval().to(device)
    metrics = {"psnr": psnr, "ssim": ssim}
    # At the first batch kernels load and memory is reserved, which is not to be measured.
    first = [data[index] for index in range(min(len(data), 8 * fleet.world))]
    evaluate(model, first, metrics, device=device)
    found = evaluate(model, data, metrics, device=device, costs=costs, schedule=schedule)
    if fleet.rank == 0:
        summary = {
            "processes": fleet.world,
            "images": images,
            "seconds": found.statistics.seconds,
            "images_per_second": images / found.statistics.seconds,
            "imbalance": found.statistics.imbalance,
            "idle": [rank.idle_share for rank in found.statistics.ranks],
            "busy_seconds": [rank.report.busy_seconds for rank in found.statistics.ranks],
            "items": [rank.report.items for rank in found.statistics.ranks],
            **{name: values.mean().item() for name, values in found.values.items()},
        }
        result.write_text(json.dumps(summary))


def main() -> None:
    """Run with each number of devices and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256 if torch.cuda.is_available() else 64)
    parser.add_argument("--scale", type=float, default=1.0, help="of the images' sides")
    parser.add_argument("--counts", default="1,2")
    parser.add_argument("--devices", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--schedule", default="dynamic", help="dynamic, equal or cost")
    parser.add_argument("--json", type=Path, help="write all figures")
    arguments = parser.parse_args()

    counts = [int(count) for count in arguments.counts.split(",")]
    devices = local_devices() if arguments.devices == "cuda" else ["cpu"] * max(counts)
    if max(counts) > len(devices):
        parser.error(f"--counts up to {max(counts)}, but there are {len(devices)} devices")

    print("devices  seconds  images/s  speed-up  efficiency  PSNR (dB)    SSIM")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        for count in counts:
            launch(
                restore,
                devices[:count],
                (arguments.images, arguments.scale, arguments.schedule, result),
            )
            run = json.loads(result.read_text())
            runs.append(run)
            gains = f"{'-':>8}  {'-':>10}"
            if counts[0] == 1:  # otherwise there is nothing to compare with
                speedup = run["images_per_second"] / runs[0]["images_per_second"]
                run["speedup"], run["efficiency"] = speedup, speedup / count
                gains = f"{speedup:8.2f}  {speedup / count:10.1%}"
            print(
                f"{count:7}  {run['seconds']:7.2f}  {run['images_per_second']:8.1f}  {gains}  "
                f"{run['psnr']:9.3f}  {run['ssim']:.5f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
