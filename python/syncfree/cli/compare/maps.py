"""Writes SSIM maps as heat maps."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from syncfree.errors import MissingExtraError

COLORMAP = "magma"


@lru_cache(maxsize=1)
def palette() -> bytes:
    """The 256 RGB colors of the heat map, from SSIM 0 and below (first) to 1 (last).

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib import colormaps
    except ImportError as error:
        raise MissingExtraError("`syncfree compare --maps`", "plot") from error
    colors = colormaps[COLORMAP](np.arange(256), bytes=True)
    return np.ascontiguousarray(colors[:, :3]).tobytes()


def map_file(folder: Path, name: str) -> Path:
    """Where the map of the picture `name` goes; the full name keeps `x.png` and `x.jpg` apart."""
    return folder / f"{name}.ssim.png"


def write_map(ssim: npt.NDArray[np.uint8], path: Path) -> None:
    """Write an H x W map, where 0 stands for SSIM of 0 and below and 255 for 1, as a palette PNG.

    The PNG's pixel values are the map itself, its palette the colors.

    Raises:
        OSError: the file cannot be written.
    """
    image = Image.fromarray(ssim)
    image.putpalette(palette())
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
