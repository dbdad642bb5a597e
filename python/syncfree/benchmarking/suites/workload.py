"""One piece of work of a suite, and the contenders that do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

Call = Callable[[], object]

F32, F16, BF16, U8 = torch.float32, torch.float16, torch.bfloat16, torch.uint8
SMALL, MEDIUM, LARGE = (16, 3, 256, 256), (8, 3, 1080, 1920), (32, 3, 1080, 1920)
# A batch for an evaluation on a laptop or a CI machine.
ON_CPU = (4, 3, 512, 768)


@dataclass(frozen=True)
class Workload:
    """One piece of work.

    Args:
        name: The name in the result file and the README.
        device: ``"cuda"`` or ``"cpu"``.
        bytes: Bytes that any implementation must read.
        contenders: The calls by name, on the same tensors; syncfree's is ``"syncfree"``.
        is_class: Whether it is a step of a metric class, whose launches are counted too.
        setups: Functions by contender that are called before each of its calls, untimed.
    """

    name: str
    device: str
    bytes: int
    contenders: dict[str, Call] = field(default_factory=dict)
    is_class: bool = False
    setups: dict[str, Call] = field(default_factory=dict)


Makers = Iterator[tuple[str, Callable[[], Workload]]]
"""Names and makers; a maker allocates, so that one workload lives at a time."""


def images(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Images and noisy copies of them."""
    x = torch.rand(shape, device=device)
    y = (x + 0.05 * torch.randn(shape, device=device)).clamp(0, 1)
    if dtype == torch.uint8:
        return (x * 255).to(dtype), (y * 255).to(dtype)
    return x.to(dtype), y.to(dtype)


def top_of(dtype: torch.dtype) -> float:
    """The highest value of such images."""
    return 255.0 if dtype == torch.uint8 else 1.0


def size_name(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """For example ``"16x3x256x256 float32"``."""
    return f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
