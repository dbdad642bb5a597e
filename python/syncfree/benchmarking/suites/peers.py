"""Which other implementations are installed."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

PACKAGES = {
    "torchmetrics": "torchmetrics",
    "pytorch_msssim": "pytorch-msssim",
    "fused_ssim": "fused-ssim",
}


def is_there(module: str) -> bool:
    """Whether a peer can be imported; does not import it."""
    return find_spec(module) is not None


def versions() -> dict[str, str]:
    """The versions of the installed peers, by package."""
    return {
        package: metadata.version(package)
        for module, package in PACKAGES.items()
        if is_there(module)
    }
