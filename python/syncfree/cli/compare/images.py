"""Reads a pair of pictures as tensors of equal shape: orientation, color, depth, alpha, crop."""

from __future__ import annotations

import logging
import math
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageColor, ImageOps, UnidentifiedImageError
from torch import Tensor

from syncfree.cli.compare.buffers import BufferPool, Lease
from syncfree.cli.compare.lossy import PLAIN, decoder_arguments, refuse_lossy
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.problems import PictureError, Problem, refused

# SSIM pads by reflection by 5 pixels, which needs a side of more than 5.
SMALLEST_SSIM_SIDE = 6

_BYTES_AT_ONCE = 256 << 20  # of a file; a larger one is not read into memory beside its samples
_KEY_STEPS = {"1": 255, "L;2": 85, "L;4": 17}
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
_SILENT = logging.NullHandler()
# What Pillow raises for headers whose fields contradict each other.
_DAMAGED = (TypeError, LookupError, ArithmeticError, struct.error)


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


def load_pair(
    pair: Pair,
    options: CompareOptions,
    buffers: BufferPool,
    reserve: Callable[[int], None] = lambda size: None,
) -> PicturePair:
    """Decode both pictures of a pair and bring them to one shape.

    Args:
        pair: the two files.
        options: crop, luma, background, dtype and metrics decide what is refused and what is cut.
        buffers: gives the memory for the samples.
        reserve: called with the bytes of each picture's samples before it is decoded; may wait
            until there is room.

    Raises:
        PictureError: the pictures cannot be read, or comparing them would be wrong.
    """
    files = (pair.reference, pair.test)
    reference, test = _read_both(files, options, reserve)
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


def pixels_of(pair: Pair) -> int:
    """The reference's pixels, from the file's header alone; 1 for a file that cannot be read."""
    try:
        _refuse_no_file(pair.reference)
        with Image.open(pair.reference) as image:
            return int(max(1, image.width * image.height))
    except (PictureError, *UNREADABLE, *_DAMAGED):
        return 1


def quiet_pillow() -> None:
    """Keep Pillow's messages, which do not name the file, from standard error."""
    # The user named these files: a large one is no attack. Above Pillow's limit it is refused.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\b")
    logging.getLogger("PIL").addHandler(_SILENT)


def _read_both(
    files: tuple[Path, Path], options: CompareOptions, reserve: Callable[[int], None]
) -> list[Image.Image]:
    images: list[Image.Image] = []
    problems: list[Problem] = []
    for path in files:
        try:
            images.append(_read(path, options, reserve))
        except PictureError as error:
            problems += error.problems
    if problems:
        raise PictureError(*problems)
    return images


def _read(path: Path, options: CompareOptions, reserve: Callable[[int], None]) -> Image.Image:
    """The picture as mode L, RGB or I;16, upright, opaque."""
    try:
        _refuse_no_file(path)
        size = path.stat().st_size
        if size == 0:
            raise refused("unreadable", (path,), "empty file")
        # Given a name, Pillow would map some files into memory: it scrambles TIFFs whose
        # orientation tag turns them, and a file that shrinks meanwhile ends the process.
        with path.open("rb") as file, Image.open(_in_memory(file, size)) as opened:
            image: Image.Image = opened
            _hand_over_at_once(image)
            refuse_lossy(image, path)
            _widen_color_key(image)
            reserve(_sample_bytes(image, options))
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            if image.mode == "I":
                # Pillow reads 16-bit PGM, scaled to its full range, as 32-bit integers.
                return Image.fromarray(np.asarray(image).astype(np.uint16))
            if image.mode.startswith("I;16"):
                return image
            if image.has_transparency_data:
                return _opaque(image, path, options.background)
            mode = PLAIN[image.mode]
            return image if image.mode == mode else image.convert(mode)
    except UnidentifiedImageError as error:
        reason = "not an image that Pillow can read: its format or type of samples is unknown"
        raise refused("unreadable", (path,), reason) from error
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise refused("unreadable", (path,), reason) from error
    except _DAMAGED as error:
        reason = f"damaged: Pillow cannot make sense of it ({type(error).__name__}: {error})"
        raise refused("unreadable", (path,), reason) from error


def _in_memory(file: BinaryIO, size: int) -> BinaryIO:
    return BytesIO(file.read()) if size <= _BYTES_AT_ONCE else file


def _hand_over_at_once(image: Image.Image) -> None:
    """Give the decoder the whole file at once, not in pieces of 64 KiB.

    After each piece Pillow needs the GIL, for which decoders in many threads queue.
    """
    if len(getattr(image, "tile", ())) != 1 or not isinstance(image.fp, BytesIO):  # type: ignore[attr-defined]
        return  # for each tile or strip Pillow would copy all that follows it
    image.decodermaxblock = sys.maxsize  # type: ignore[attr-defined]
    if image.format == "PNG":
        piece = image.load_read  # type: ignore[attr-defined]
        image.load_read = lambda size: b"".join(iter(partial(piece, size), b""))  # type: ignore[attr-defined]


def _refuse_no_file(path: Path) -> None:
    """Refuse what is no regular file, such as a pipe, which could block the reader."""
    if not path.is_file():
        raise refused("unreadable", (path,), "gone, a broken link, or no regular file")


def _sample_bytes(image: Image.Image, options: CompareOptions) -> int:
    """The most bytes that the samples of a picture take, by its header."""
    deep = image.mode.startswith("I")
    channels = 1 if deep or image.mode in ("1", "L", "LA") else 3
    dtype = getattr(torch, options.dtype or ("float32" if deep else "uint8"))
    return image.width * image.height * channels * int(dtype.itemsize)


def _widen_color_key(image: Image.Image) -> None:
    """Widen the transparent gray to 8 bits: Pillow widens samples, but this at most from 1 bit."""
    step = _KEY_STEPS.get(str(decoder_arguments(image)))
    if image.format == "PNG" and step is not None and "transparency" in image.info:
        image.info["transparency"] = min(255, step * image.info["transparency"])


def _opaque(image: Image.Image, path: Path, background: str | None) -> Image.Image:
    color = image.convert("RGBA")
    least = color.getchannel("A").getextrema()[0]
    if least == 255:
        return image.convert("L" if image.mode in ("L", "LA") else "RGB")
    if background is None:
        reason = "has transparent pixels; name the color behind them with --background"
        raise refused("unsupported", (path,), reason)
    solid = Image.new("RGBA", color.size, background)
    mixed = Image.alpha_composite(solid, color).convert("RGB")
    red, green, blue = ImageColor.getrgb(background)[:3]
    is_gray = image.mode in ("1", "L", "LA") and red == green == blue
    return mixed.getchannel("R") if is_gray else mixed


def _crop(image: Image.Image, options: CompareOptions, files: tuple[Path, Path]) -> Image.Image:
    border = options.crop_border
    width, height = image.size
    width, height = width - 2 * border, height - 2 * border
    least = SMALLEST_SSIM_SIDE if "ssim" in options.metrics or options.maps else 1
    if min(width, height) < least:
        cropped = f" after cropping {border}" if border else ""
        need = f"at least {least}x{least} pixels"
        left = f"{width}x{height}" if min(width, height) > 0 else "no"
        reason = f"{left} pixels{cropped}, expected {need}"
        raise refused("too-small", files, reason + (" for SSIM" if least > 1 else ""))
    return image.crop((border, border, border + width, border + height)) if border else image


def _dtype(options: CompareOptions, files: tuple[Path, Path], *, deep: bool) -> torch.dtype:
    """The dtype of the samples; 8 bits are exact in every dtype that can be asked for."""
    if options.dtype is None:
        return torch.float32 if deep else torch.uint8
    if deep and options.dtype in ("uint8", "float16"):
        reason = f"16 bits per sample do not fit into {options.dtype}; leave --dtype out"
        raise refused("unsupported", files, reason)
    return cast(torch.dtype, getattr(torch, options.dtype))


def _fill(place: Tensor, image: Image.Image) -> None:
    array: npt.NDArray[np.generic] = np.asarray(image).reshape(place.shape)
    if place.dtype == torch.bfloat16:  # NumPy does not have it
        place.copy_(torch.from_numpy(array.astype(np.float32)))
    else:
        place.numpy()[...] = array
