"""Image metrics as functions, under TorchMetrics' names."""

from syncfree.functional.image.psnr import peak_signal_noise_ratio

__all__ = ["peak_signal_noise_ratio"]
