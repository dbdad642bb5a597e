"""What a comparison is asked to do, and the error for asking wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from syncfree.distributed.environment import available_cores
from syncfree.errors import SyncfreeError

METRICS = ("psnr", "ssim", "mae")
DTYPES = ("float32", "float16", "bfloat16", "uint8")


class UsageError(SyncfreeError, ValueError):
    """The comparison was asked for wrongly: a missing folder, an unknown metric, no pair at all."""


class LocalUsageError(UsageError):
    """Wrong for this one of several processes, which alone can report it."""


@dataclass(frozen=True)
class CompareOptions:
    """Settings of one comparison.

    Args:
        metrics: some of `psnr`, `ssim`, `mae`, in the order in which they are reported.
        device: `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:N`.
        batch: most pictures of one size measured together; changes the speed, never a result.
        crop_border: pixels cut off each side before comparing.
        y_channel: compare the BT.601 luma of color pictures instead of their RGB samples.
        background: color put behind transparent pixels, in any notation that Pillow's `ImageColor`
            knows; `None` refuses pictures with transparent pixels.
        workers: threads that decode.
        maps: folder for SSIM heat maps, or `None` for none.
        dtype: of the samples that travel to the device and are measured there, one of `DTYPES`;
            `None` is the smallest that holds all samples, uint8 for 8 bits and float32 for 16.
        streams: CUDA streams that batches go to in turn; with one, no copy overlaps a measurement.

    Raises:
        UsageError: an unknown metric, color or dtype, or a number out of range.

    Example:
        >>> from syncfree.cli.compare.options import CompareOptions
        >>> CompareOptions(metrics=("psnr",), crop_border=4).batch
        16
    """

    metrics: tuple[str, ...] = METRICS
    device: str = "auto"
    batch: int = 16
    crop_border: int = 0
    y_channel: bool = False
    background: str | None = None
    workers: int = field(default_factory=available_cores)
    maps: Path | None = None
    dtype: str | None = None
    streams: int = 3

    def __post_init__(self) -> None:
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown or not self.metrics or len(set(self.metrics)) < len(self.metrics):
            raise UsageError(
                f"metrics are some of {', '.join(METRICS)}, each once, with commas between; "
                f"got {','.join(self.metrics)!r}"
            )
        for name, least in (("batch", 1), ("workers", 1), ("streams", 1), ("crop_border", 0)):
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"{name.replace('_', '-')} is at least {least}, got {value}")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UsageError(f"dtype is one of {', '.join(DTYPES)}; got {self.dtype!r}")
        if self.background is not None and not _is_opaque_color(self.background):
            raise UsageError(
                f"background is an opaque color such as white or #808080, got {self.background!r}"
            )


def _is_opaque_color(text: str) -> bool:
    from PIL import ImageColor

    try:
        return len(ImageColor.getrgb(text)) == 3
    except ValueError:
        return False
