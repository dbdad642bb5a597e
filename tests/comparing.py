"""Pictures, folders and a float64 oracle for the tests of `syncfree compare`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio
from torchmetrics.functional.image import structural_similarity_index_measure

from syncfree.cli import main

# What float32 results of 8-bit pictures may miss: dB, SSIM, and steps of the data range.
TOLERANCE = {"psnr": 1e-4, "ssim": 2e-6, "mae": 1e-5}


def picture(seed, height=24, width=32, channels=3, top=255):
    """A smooth picture with noise, so that SSIM's variances are neither 0 nor those of noise."""
    random = np.random.default_rng(seed)
    down, across = np.mgrid[:height, :width]
    waves = np.sin(down / 3 + seed) + np.cos(across / 5 - seed)
    smooth = (waves[..., None] + 2) / 4 + random.normal(0, 0.05, (height, width, channels))
    return (smooth.clip(0, 1) * top).astype(np.uint8 if top == 255 else np.uint16).squeeze()


def distorted(array, seed=1, strength=9):
    """The picture with Gaussian noise of `strength` 8-bit steps."""
    top = 255 if array.dtype == np.uint8 else 65535
    noise = np.random.default_rng(seed).normal(0, strength * top / 255, array.shape)
    return (array + noise).clip(0, top).astype(array.dtype)


def save(path, content, **options):
    """Write an array or a Pillow image, or whatever a function writes to the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
        return
    image = content if isinstance(content, Image.Image) else Image.fromarray(content)
    image.save(path, **options)


def planes(array):
    """A B x C x H x W float64 tensor of one picture."""
    return torch.from_numpy(np.atleast_3d(np.asarray(array, np.float64))).permute(2, 0, 1)[None]


def oracle(reference, test, data_range=255):
    """PSNR, SSIM and MAE in float64, by other people's code."""
    a, b = np.asarray(reference, np.float64), np.asarray(test, np.float64)
    ssim = structural_similarity_index_measure(planes(b), planes(a), data_range=float(data_range))
    return {
        "psnr": peak_signal_noise_ratio(a, b, data_range=data_range),
        "ssim": ssim.item(),
        "mae": np.abs(a - b).mean(),
    }


def assert_matches(row, reference, test):
    """The row of the JSON file holds what the oracle says about these samples."""
    expected = oracle(reference, test, row["data_range"])
    for name, value in expected.items():
        allowed = TOLERANCE[name] * (row["data_range"] / 255 if name == "mae" else 1)
        assert row[name] == pytest.approx(value, rel=0, abs=allowed), name


class Folders:
    """A folder of references, one of pictures to judge, and the command run on them."""

    def __init__(self, base: Path):
        self.ref, self.test, self.report = base / "ref", base / "test", base / "report.json"

    def add(self, name, reference, test, test_name=None, **options):
        """Write a pair; `options` are for Pillow."""
        save(self.ref / name, reference, **options)
        save(self.test / (test_name or name), test, **options)

    def add_good(self):
        """A pair that always compares, so that a problem beside it must not cost it."""
        self.add("good.png", picture(0), distorted(picture(0)))

    def compare(self, *options, paths=None):
        """Run `syncfree compare`; returns its exit status and the JSON file's content."""
        self.report.unlink(missing_ok=True)
        arguments = [*(paths or (self.ref, self.test)), "--json", self.report, *options]
        status = main(["compare", *map(str, arguments)])
        return status, json.loads(self.report.read_text()) if self.report.exists() else None
