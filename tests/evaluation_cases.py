"""A data set, a model and metrics for `syncfree.distributed.evaluate`, and what they must give."""

from __future__ import annotations

import torch

from syncfree.functional import peak_signal_noise_ratio


def mse(preds, target):
    return (preds - target).square().mean((1, 2, 3))


def mae(preds, target):
    return (preds - target).abs().mean((1, 2, 3))


def psnr(preds, target):
    return peak_signal_noise_ratio(preds, target, data_range=1.0, reduction="none", dim=(1, 2, 3))


METRICS = {"mse": mse, "mae": mae, "psnr": psnr}


def halve(x):
    return x / 2


class Data:
    """Pairs of mixed sizes; the items in `bad` cannot be read."""

    def __init__(self, length, bad=()):
        random = torch.Generator().manual_seed(3)
        shapes = [(3, 12 + 4 * (index % 3), 16) for index in range(length)]
        self.pairs = [
            (torch.rand(shape, generator=random), torch.rand(shape, generator=random))
            for shape in shapes
        ]
        self.bad = bad

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"no file {index}")
        return self.pairs[index]


def expected(data, metric):
    return torch.stack([metric(halve(a[None]), b[None])[0] for a, b in data.pairs]).double()
