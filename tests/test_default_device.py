"""Where the program made another device the default, or has modes of operators: ours stay ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import syncfree
import syncfree.functional as F
from evaluation_cases import Data, expected, halve, mse
from syncfree.distributed import evaluate
from syncs_command import python


@pytest.fixture(params=["meta", *["cuda"] * torch.cuda.is_available()])
def default(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def test_a_value_that_comes_later(default: torch.device, device: str) -> None:
    tensor = torch.arange(6.0, device=device)
    with default:
        value = syncfree.deferred(tensor).value()
    assert torch.equal(value, tensor.cpu())


def test_evaluation(default: torch.device, device: str) -> None:
    data = Data(4)
    with default:
        found = evaluate(halve, data, {"mse": mse}, device=device, batch=2)
    torch.testing.assert_close(found.values["mse"], expected(data, mse), rtol=1e-5, atol=1e-6)


def test_numbers_as_items(default: torch.device) -> None:
    data = [(index, index + 0.5) for index in range(3)]
    with default:
        found = evaluate(lambda x: x.double(), data, {"off": lambda a, b: b - a}, device="cpu")
    assert found.values["off"].tolist() == [0.5, 0.5, 0.5]


def test_functions_and_classes(default: torch.device, device: str) -> None:
    preds, target = torch.rand(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0)).to(
        device
    )
    labels = torch.tensor([0, 1, 2, 2], device=device)
    metrics: list[tuple[Any, Any]] = [
        (syncfree.PeakSignalNoiseRatio(data_range=1.0), (preds, target)),
        (syncfree.StructuralSimilarityIndexMeasure(data_range=1.0), (preds, target)),
        (syncfree.MulticlassAccuracy(3), (labels, labels.flip(0))),
        (syncfree.MulticlassAccuracy(3, multidim_average="samplewise"), (labels[None],) * 2),
    ]

    def values() -> list[torch.Tensor]:
        found = [F.peak_signal_noise_ratio(preds, target, data_range=1.0)]
        for metric, batch in metrics:
            metric.to(device).reset()
            found += [metric(*batch), metric.compute()]
        return found

    plain = values()
    with default:
        elsewhere = values()
    torch.testing.assert_close(elsewhere, plain, rtol=0, atol=0)


def test_lists_of_a_metric_made_elsewhere(device: str) -> None:
    """Its states are empty lists, which have no device."""
    with torch.device("meta"):
        metric = syncfree.MulticlassAccuracy(3, multidim_average="samplewise")
    labels = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]], device=device)
    for _ in range(2):
        assert torch.equal(metric(labels, labels), torch.ones(2, device=device))
        metric.reset()


DETECTOR = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import syncfree
from syncfree.detector.tier3 import memory, tier


class Look(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))


seen = []
x = torch.ones(1 << 22, device="cpu")
with torch.device("cuda"), Look(), syncfree.detect_syncs(tier=3):
    x.to("cuda", non_blocking=True)
print(set(seen), tier._mark_memory[0].is_pinned(), len(memory._measured))
"""


@pytest.mark.needs_cuda
def test_the_detector(tmp_path: Path) -> None:
    """What it measures and marks once in a process is not the program's to place or to see."""
    # In a process of its own: neither tier 3 nor torch.profiler works where the other came first.
    done = python(tmp_path, "-c", DETECTOR)
    assert done.stdout.split("\n")[0] == "{'aten._to_copy.default'} True 1", done.stderr
