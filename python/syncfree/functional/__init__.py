"""Metrics as functions, under TorchMetrics' names."""

from syncfree.functional.image import peak_signal_noise_ratio
from syncfree.functional.safe_divide import safe_divide

__all__ = ["peak_signal_noise_ratio", "safe_divide"]
