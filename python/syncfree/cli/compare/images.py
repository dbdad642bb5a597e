"""Reads a pair of pictures as tensors of equal shape: orientation, color, depth, alpha, crop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from syncfree.cli.compare.buffers import BufferPool, Lease
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.problems import PictureError, Problem, refused

# SSIM pads by reflection by 5 pixels, which a side of 5 or less cannot give.
SMALLEST_SSIM_SIDE = 6

_PLAIN = {"1": "L", "L": "L", "RGB": "RGB", "P": "RGB", "YCbCr": "RGB", "RGBX": "RGB"}
_KEY_STEPS = {"L;2": 85, "L;4": 17}
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # TIFF tags
_SIGNED = 2  # as a sample format
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


class Layout(NamedTuple):
    """What pictures must share to be measured in one batch."""

    height: int
    width: int
    color: str
    data_range: float


@dataclass(frozen=True)
class PicturePair:
    """Two decoded pictures as height x width x channels tensors, in memory that is leased."""

    pair: Pair
    layout: Layout
    reference: Tensor
    test: Tensor
    memory: Lease

    @property
    def bytes(self) -> int:
        """Size of both pictures in memory."""
        return self.reference.nbytes + self.test.nbytes


def load_pair(pair: Pair, options: CompareOptions, buffers: BufferPool) -> PicturePair:
    """Decode both pictures of a pair and bring them to one shape.

    Args:
        pair: the two files.
        options: crop, luma, background, dtype and metrics decide what is refused and what is cut.
        buffers: gives the memory for the samples.

    Raises:
        PictureError: the pictures cannot be read, or comparing them would be wrong.
    """
    files = (pair.reference, pair.test)
    reference, test = _read_both(files, options.background)
    if reference.size != test.size:
        sizes = " and ".join("{}x{}".format(*image.size) for image in (reference, test))
        raise refused("size-mismatch", files, f"sizes differ: {sizes} (width x height)")
    deep = [image.mode.startswith("I;16") for image in (reference, test)]
    if deep[0] != deep[1]:
        raise refused("unsupported", files, "one image has 16 bits per sample, one has 8")
    if reference.mode != test.mode and not deep[0]:
        # Copying gray into three channels is exact; turning color into gray would not be.
        reference, test = reference.convert("RGB"), test.convert("RGB")
    reference, test = (_crop(image, options, files) for image in (reference, test))

    color = "gray" if deep[0] or reference.mode == "L" else "y" if options.y_channel else "rgb"
    width, height = reference.size
    layout = Layout(height, width, color, 65535.0 if deep[0] else 255.0)
    dtype = _dtype(options, files, deep=deep[0])
    shape = (2, height, width, len(reference.getbands()))
    memory = buffers.take(math.prod(shape) * dtype.itemsize)
    try:
        samples = memory.view(shape, dtype)
        for place, image in zip(samples, (reference, test), strict=True):
            _fill(place, image)
    except BaseException:
        memory.release()
        raise
    return PicturePair(pair, layout, samples[0], samples[1], memory)


def _read_both(files: tuple[Path, Path], background: str | None) -> list[Image.Image]:
    images: list[Image.Image] = []
    problems: list[Problem] = []
    for path in files:
        try:
            images.append(_read(path, background))
        except PictureError as error:
            problems += error.problems
    if problems:
        raise PictureError(*problems)
    return images


def _read(path: Path, background: str | None) -> Image.Image:
    """The picture as mode L, RGB or I;16, upright, opaque."""
    try:
        if not path.is_file():
            raise refused("unreadable", (path,), "gone, a broken link, or no regular file")
        if path.stat().st_size == 0:
            raise refused("unreadable", (path,), "empty file")
        # By its name, Pillow would map some files into memory: it scrambles TIFFs that their
        # orientation turns, and a file that shrinks meanwhile ends the process.
        with path.open("rb") as file, Image.open(file) as opened:
            image: Image.Image = opened
            _refuse_lossy(image, path)
            _widen_color_key(image)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            if image.mode == "I":
                # Pillow reads 16-bit PGM, scaled to its full range, as 32-bit integers.
                return Image.fromarray(np.asarray(image).astype(np.uint16))
            if image.mode.startswith("I;16"):
                return image
            if image.has_transparency_data:
                return _opaque(image, path, background)
            mode = _PLAIN[image.mode]
            return image if image.mode == mode else image.convert(mode)
    except UnidentifiedImageError as error:
        reason = "not an image of a known format, or of samples that Pillow has no type for"
        raise refused("unreadable", (path,), reason) from error
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise refused("unreadable", (path,), reason) from error


def _refuse_lossy(image: Image.Image, path: Path) -> None:
    """Refuse what Pillow would hand over cut down, or in a unit that nobody stated."""
    mode, reason = image.mode, None
    bits = _bits_per_sample(image)
    # Phones write JPEGs with previews or gain maps as further frames: the first is the picture.
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1:
        reason = f"holds {frames} frames or pages; save the one to compare"
    elif mode == "CMYK":
        reason = "CMYK has no defined RGB samples; convert it to RGB with its color profile"
    elif mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):
        if bits not in (16, None):
            reason = f"gray with {bits} bits per sample; store it with 8 or 16"
        elif image.has_transparency_data:
            reason = "16-bit gray with transparent pixels"
        elif image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0:  # type: ignore[attr-defined]
            reason = "16-bit gray in which 0 is white; store it with 0 as black"
    elif bits is not None and bits > 8 and mode not in ("I", "F"):
        reason = f"color with {bits} bits per sample, of which Pillow keeps only 8"
    elif image.format == "TIFF" and _SIGNED in image.tag_v2.get(_SAMPLE_FORMAT, ()):  # type: ignore[attr-defined]
        reason = "signed samples have no known data range"
    elif mode not in _PLAIN and mode not in ("LA", "PA", "RGBA"):
        reason = f"pixel type {mode!r} has no known data range"
    if reason is not None:
        raise refused("unsupported", (path,), reason)


def _bits_per_sample(image: Image.Image) -> int | None:
    """Bits per sample in the file, or `None` for formats that never have more than 8."""
    if image.format == "TIFF":
        bits = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]
        return max(bits) if isinstance(bits, tuple) else int(bits)
    tiles = getattr(image, "tile", None)
    arguments = tiles[0][3] if tiles else None
    if image.format == "PNG":
        return 16 if "16" in str(arguments) else 8
    if image.format == "PPM" and isinstance(arguments, tuple) and len(arguments) == 2:
        return 16 if arguments[1] > 255 else 8
    return None


def _widen_color_key(image: Image.Image) -> None:
    """Pillow widens gray of 2 and 4 bits to 8, but not the gray that is transparent."""
    tiles = getattr(image, "tile", None)  # none where a file ends before its samples
    if image.format == "PNG" and tiles and "transparency" in image.info:
        image.info["transparency"] *= _KEY_STEPS.get(str(tiles[0][3]), 1)


def _opaque(image: Image.Image, path: Path, background: str | None) -> Image.Image:
    color = image.convert("RGBA")
    least = color.getchannel("A").getextrema()[0]
    if least == 255:
        return image.convert("L" if image.mode in ("L", "LA") else "RGB")
    if background is None:
        reason = "has transparent pixels; name the color behind them with --background"
        raise refused("unsupported", (path,), reason)
    return Image.alpha_composite(Image.new("RGBA", color.size, background), color).convert("RGB")


def _crop(image: Image.Image, options: CompareOptions, files: tuple[Path, Path]) -> Image.Image:
    border = options.crop_border
    width, height = image.size
    width, height = width - 2 * border, height - 2 * border
    least = SMALLEST_SSIM_SIDE if "ssim" in options.metrics or options.maps else 1
    if min(width, height) < least:
        cropped = f" after cropping {border}" if border else ""
        need = f"at least {least}x{least} pixels"
        reason = f"{max(width, 0)}x{max(height, 0)} pixels{cropped}, expected {need}"
        raise refused("too-small", files, reason + (" for SSIM" if least > 1 else ""))
    return image.crop((border, border, border + width, border + height)) if border else image


def _dtype(options: CompareOptions, files: tuple[Path, Path], *, deep: bool) -> torch.dtype:
    """Of the samples; 8 bits are exact in every one that can be asked for."""
    if options.dtype is None:
        return torch.float32 if deep else torch.uint8
    if deep and options.dtype in ("uint8", "float16"):
        reason = f"16 bits per sample do not fit into {options.dtype}; leave --dtype out"
        raise refused("unsupported", files, reason)
    return cast(torch.dtype, getattr(torch, options.dtype))


def _fill(place: Tensor, image: Image.Image) -> None:
    array: npt.NDArray[np.generic] = np.asarray(image).reshape(place.shape)
    if place.dtype == torch.bfloat16:  # which NumPy does not have
        place.copy_(torch.from_numpy(array.astype(np.float32)))
    else:
        place.numpy()[...] = array
