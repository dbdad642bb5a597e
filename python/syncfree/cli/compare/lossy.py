"""Refuses pictures whose samples Pillow would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from syncfree.cli.compare.problems import refused

# The modes to which pictures of each mode are converted without a loss.
PLAIN = {"1": "L", "L": "L", "RGB": "RGB", "P": "RGB", "YCbCr": "RGB", "RGBX": "RGB"}
# TIFF tags
_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLES_PER_PIXEL = 258, 262, 277
_EXTRA_SAMPLES, _SAMPLE_FORMAT = 338, 339
_SIGNED = 2  # as a sample format
_UNSPECIFIED = 0  # as what an extra sample is


def refuse_lossy(image: Image.Image, path: Path) -> None:
    """Refuse what Pillow would decode with a loss, or what has no known data range."""
    mode, reason = image.mode, None
    bits = _bits_per_sample(image)
    maximum = _stated_maximum(image)
    # Phones write JPEGs with previews or gain maps as further frames: the first is the picture.
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1:
        reason = f"holds {frames} frames or pages; save the one to compare"
    elif _has_lost_bands(image):
        reason = "more samples per pixel than gray or color and alpha; save the bands to compare"
    elif maximum is not None and maximum < 256 and 255 % maximum:
        # Pillow rounds to 0..65535 too, but by less than a hundredth of a step of 12 bits.
        reason = f"samples from 0 to {maximum}, which Pillow rounds; store it with 8 or 16 bits"
    elif mode == "CMYK":
        reason = "CMYK has no defined RGB samples; convert it to RGB with its color profile"
    elif mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):
        if bits not in (16, None):
            reason = f"gray with {bits} bits per sample; store it with 8 or 16"
        elif image.has_transparency_data:
            reason = (
                "16-bit gray with transparent pixels is refused with or without --background; "
                "store it without transparency"
            )
        elif image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0:  # type: ignore[attr-defined]
            reason = "16-bit gray in which 0 is white; store it with 0 as black"
    elif bits is not None and bits > 8 and mode not in ("I", "F"):
        is_gray = "LA" in str(decoder_arguments(image))
        kind = "gray with transparency" if is_gray else "color"
        reason = f"{kind} of {bits} bits per sample, of which Pillow keeps only 8; store it with 8"
    elif image.format == "TIFF" and _SIGNED in image.tag_v2.get(_SAMPLE_FORMAT, ()):  # type: ignore[attr-defined]
        reason = "signed samples have no known data range"
    elif mode not in PLAIN and mode not in ("LA", "PA", "RGBA"):
        reason = f"pixel type {mode!r} has no known data range"
    if reason is not None:
        raise refused("unsupported", (path,), reason)


def _has_lost_bands(image: Image.Image) -> bool:
    """Whether Pillow skips samples of a TIFF, as it does with those of unspecified meaning."""
    if image.format != "TIFF":
        return False
    tags = image.tag_v2  # type: ignore[attr-defined]
    extra = tags.get(_EXTRA_SAMPLES, ())
    has_unnamed = _UNSPECIFIED in (extra if isinstance(extra, tuple) else (extra,))
    return has_unnamed or tags.get(_SAMPLES_PER_PIXEL, 1) > len(image.getbands())


def _bits_per_sample(image: Image.Image) -> int | None:
    """Bits per sample in the file, or `None` for formats that never have more than 8."""
    if image.format == "TIFF":
        bits = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]
        return max(bits) if isinstance(bits, tuple) else int(bits)
    if image.format == "PNG":
        return 16 if "16" in str(decoder_arguments(image)) else 8
    maximum = _stated_maximum(image)
    return None if maximum is None else 16 if maximum > 255 else 8


def _stated_maximum(image: Image.Image) -> int | None:
    """The sample that a PGM or PPM calls white, which Pillow stretches to 255 or 65535."""
    arguments = decoder_arguments(image)
    is_stretched = image.format == "PPM" and isinstance(arguments, tuple) and len(arguments) == 2
    return int(arguments[1]) if is_stretched else None


def decoder_arguments(image: Image.Image) -> Any:
    """The arguments of Pillow's decoder, which alone tell the samples' form; None without any."""
    tiles = getattr(image, "tile", None)  # none where a file ends before its samples
    return tiles[0][3] if tiles else None
