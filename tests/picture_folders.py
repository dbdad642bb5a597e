"""Folders of pictures to compare."""

from pathlib import Path

import numpy as np
from PIL import Image


def two_folders(place: Path) -> tuple[Path, Path]:
    """Two folders of 25 small pairs, `00.png` the best and `24.png` the worst."""
    random = np.random.default_rng(0)
    for name in ("ref", "test"):
        (place / name).mkdir()
    for index in range(25):
        a = random.integers(60, 190, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(a).save(place / "ref" / f"{index:02}.png")
        Image.fromarray(a + np.uint8(index + 1)).save(place / "test" / f"{index:02}.png")
    return place / "ref", place / "test"
