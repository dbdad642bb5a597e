"""Losses for images, forward and backward without a wait.

Each is a function and an ``nn.Module``. Both images get a gradient if they want one. Each direction
is one pass over them, and nothing but the images is kept; MS-SSIM does as much for each scale.
"""

from syncfree.losses.ms_ssim import MSSSIMLoss, ms_ssim_loss
from syncfree.losses.ssim import L1SSIMLoss, SSIMLoss, l1_ssim_loss, ssim_loss

__all__ = [
    "L1SSIMLoss",
    "MSSSIMLoss",
    "SSIMLoss",
    "l1_ssim_loss",
    "ms_ssim_loss",
    "ssim_loss",
]
