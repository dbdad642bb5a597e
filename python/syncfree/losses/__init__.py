"""Losses for images, forward and backward without a wait.

Each is a function and an ``nn.Module``. Both images get a gradient if they require one. With the
default window forward and backward are one pass each over the images (over each scale for MS-SSIM),
and only the images and their smaller scales are saved. If one pass gives both the value and the
gradients, the gradients are kept too.
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
