"""Measures one batch of pictures of equal shape on its device, without a wait."""

from __future__ import annotations

import torch
from torch import Tensor

from syncfree import functional
from syncfree.cli.compare.images import SMALLEST_SSIM_SIDE, Layout
from syncfree.cli.compare.options import METRICS, CompareOptions


def luma(rgb: Tensor) -> Tensor:
    """BT.601 luma in studio swing of 8-bit RGB, in float32 without rounding.

    `Y = 16 + (65.481 R + 128.553 G + 24.966 B) / 255` for R, G, B in 0..255, so that Y runs from 16
    (black) to 235 (white): the first row of MATLAB's `rgb2ycbcr`, which restoration papers report
    on (their code skips the rounding to 8 bits as well, for example `rgb2ycbcr` in BasicSR).

    Args:
        rgb: B x 3 x H x W samples in 0..255, any dtype and layout.

    Returns:
        B x 1 x H x W float32 luma, with the data range of 255 that is customary for it.

    Reference:
        Recommendation ITU-R BT.601-7, section 2.5.

    Example:
        >>> import torch
        >>> from syncfree.cli.compare.measure import luma
        >>> luma(torch.tensor([0.0, 255.0]).view(2, 1, 1, 1).expand(2, 3, 1, 1)).view(-1)
        tensor([ 16., 235.])
    """
    red, green, blue = rgb.to(torch.float32).unbind(1)
    return ((65.481 * red + 128.553 * green + 24.966 * blue) / 255 + 16).unsqueeze(1)


def measure(
    reference: Tensor, test: Tensor, layout: Layout, options: CompareOptions
) -> tuple[Tensor, Tensor | None]:
    """Measure each picture of a batch.

    Args:
        reference: B x H x W x C samples on the device that shall measure.
        test: as `reference`.
        layout: color and data range of the pictures.
        options: the metrics asked for, and whether maps are.

    Returns:
        The float32 values, one row per name in `METRICS` and one column per picture, NaN in the
        rows that were not needed; and the SSIM maps as B x H x W uint8, 0 for SSIM of 0 and less,
        255 for 1, averaged over the channels, if maps were asked for.
    """
    target, preds = reference.permute(0, 3, 1, 2), test.permute(0, 3, 1, 2)
    if layout.color == "y":
        target, preds = luma(target), luma(preds)
    found = _values(preds, target, layout, options)
    nothing = target.new_full((target.shape[0],), torch.nan, dtype=torch.float32)
    values = torch.stack([found.get(name, nothing).to(torch.float32) for name in METRICS])
    return values, _ssim_maps(preds, target, layout) if options.maps is not None else None


def _values(
    preds: Tensor, target: Tensor, layout: Layout, options: CompareOptions
) -> dict[str, Tensor]:
    """PSNR, by which identical pictures are recognized, and whatever else was asked for."""
    # For half types this function would round its value to the type; the fused pass does not.
    if options.metrics == ("psnr",) and preds.dtype not in (torch.float16, torch.bfloat16):
        psnr = functional.peak_signal_noise_ratio(
            preds, target, data_range=layout.data_range, reduction="none", dim=(1, 2, 3)
        )
        return {"psnr": psnr}
    if min(layout.height, layout.width) < SMALLEST_SSIM_SIDE:
        return _tiny(preds, target, layout)
    quality = functional.image_quality(
        preds, target, data_range=layout.data_range, reduction="none"
    )
    return {"psnr": quality.psnr, "ssim": quality.ssim, "mae": quality.mae}


def _tiny(preds: Tensor, target: Tensor, layout: Layout) -> dict[str, Tensor]:
    """PSNR and MAE of pictures too small for the fused pass, one by one.

    One by one, because a reduction over a batch may add in another order for another batch size.
    """
    differences = [p.double() - t.double() for p, t in zip(preds, target, strict=True)]
    mse = torch.stack([difference.square().mean() for difference in differences])
    mae = torch.stack([difference.abs().mean() for difference in differences])
    return {"psnr": 10 * torch.log10(layout.data_range**2 / mse), "mae": mae}


def _ssim_maps(preds: Tensor, target: Tensor, layout: Layout) -> Tensor:
    full: Tensor
    _, full = functional.structural_similarity_index_measure(
        preds.to(torch.float32),
        target.to(torch.float32),
        reduction="none",
        data_range=layout.data_range,
        return_full_image=True,
    )
    return (full.mean(1).clamp(0, 1) * 255).round().to(torch.uint8)
