"""What `evaluate` takes as items, metrics and options, and what it says of anything else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from evaluation_cases import METRICS, Data, halve, mse
from syncfree.distributed import evaluate
from syncfree.distributed.inference import Inference
from syncfree.errors import DeviceError, EvaluationError


def test_a_metric_with_one_value_for_a_batch_is_refused():
    same = [Data(1)[0]] * 3
    with pytest.raises(EvaluationError, match=r"metric 'mean' gave shape \(\) for 3 items"):
        evaluate(halve, same, {"mean": lambda preds, target: preds.mean()}, device="cpu")


def first(outputs, targets):
    return outputs.flatten(1)[:, 0].double() + targets.flatten(1).sum(1)


@pytest.mark.parametrize(
    "target",
    [
        *(2, True, 0.1, np.int32(3), np.float64(0.1), np.float16(0.5), np.bool_(True)),
        *(np.arange(4.0)[::-1], np.array(2, dtype=np.int16)),
    ],
    ids=lambda value: f"{type(value).__name__}{np.shape(value)}",
)
def test_numbers_become_tensors_as_in_a_data_loader(target, device):
    """As torchvision's data sets give them."""
    data = [(np.full((2, 3), index, np.float32), target) for index in range(6)]
    seen = set()

    def noted(outputs, targets):
        seen.add((outputs.dtype, targets.dtype, targets.shape[1:]))
        return first(outputs, targets[:, None])

    found = evaluate(nn.Flatten().eval(), data, {"first": noted}, device=device)
    _, targets = default_collate([(source.copy(), np.copy(target)) for source, _ in data])
    _, kind = default_collate([(0, target if np.ndim(target) == 0 else target.copy())])
    assert seen == {(torch.float32, kind.dtype, targets.shape[1:])}
    want = np.arange(6) + np.sum(target, dtype=np.float64)
    np.testing.assert_array_equal(found.values["first"], want)


def test_inputs_may_be_numbers(device):
    found = evaluate(
        lambda x: x * 2, [(0.5, 1), (1.5, 2)], {"sum": lambda a, b: a + b}, device=device
    )
    assert found.values["sum"].tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((torch.rand(2), "cat"), "target of an item is a tensor, a number .* but got str;"),
        (([1, 2], 0), "input of an item .* but got list;"),
        ((np.array(["cat"]), 0), "input of an item .* but got numpy ndarray of <U3;"),
        ((torch.rand(2), None), "but got NoneType;"),
        ((torch.rand(2), 0, "name"), "gave tuple of 3; wrap it"),
        (7, "gave int; wrap it"),
        ({"image": torch.rand(2), "label": 0}, "gave dict; wrap it"),
    ],
)
def test_items_that_cannot_be_used_are_explained(item, message):
    with pytest.raises(EvaluationError, match=f"item 0: TypeError: .*{message}"):
        evaluate(halve, [item], {"first": first}, device="cpu")


def test_items_on_a_gpu_are_told_where_they_are_expected(monkeypatch):
    """torch says only what it cannot pin."""
    inference = Inference(halve, {"first": first}, torch.device("cpu"), batch=1, workers=1)
    monkeypatch.setattr(inference, "_device", torch.device("cuda:0"))
    there = torch.empty(2, device="meta")  # another device that is there without a GPU
    message = "the input of an item is on the CPU, .* but got one on meta; .* call .cpu()"
    with pytest.raises(TypeError, match=message):
        inference._load(0, [(there, torch.rand(2))])


@pytest.mark.parametrize("value", [0.5, [0.5, 0.5]], ids=["float", "list"])
def test_a_metric_that_gives_no_tensor_is_refused(value, device):
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"metric 'own' gave {kind}; it must give a tensor"):
        evaluate(halve, Data(2), {"own": lambda preds, target: value}, device=device)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": {}}, "at least one metric"),
        ({"schedule": "random"}, "dynamic, equal, cost"),
        ({"batch": 0}, "batch is at least 1"),
        ({"workers": -1}, "workers is at least 0, got -1"),
        ({"timeout": 0}, "timeout is more than 0 seconds, got 0"),
        ({"costs": [1.0]}, "a cost for each of 4 items, got 1"),
        ({"model": nn.Dropout()}, r"call model\.eval\(\)"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(**{"model": halve, "dataset": Data(4), "metrics": METRICS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": mse}, "mapping of names to functions, but got function"),
        ({"dataset": iter([])}, "has a length .* but got list_iterator"),
        ({"batch": 2.5}, r"batch is a whole number, got 2\.5"),
        ({"workers": 1.5}, r"workers is a whole number, got 1\.5"),
        ({"model": "x.pt"}, "model is a function or a module, but got 'x.pt'"),
        ({"metrics": {"psnr": 3}}, "metric 'psnr' is a function or a module, but got 3"),
    ],
)
def test_arguments_of_wrong_types(arguments, message):
    with pytest.raises(TypeError, match=message):
        evaluate(**{"model": halve, "dataset": Data(4), "metrics": METRICS, **arguments})


@pytest.mark.parametrize(
    ("gpus", "wanted", "seen"),
    [
        (0, "cuda", "no GPU"),
        (0, torch.device("cuda:1"), "no GPU"),
        (2, "cuda:2", "to cuda:1"),
        (2, 3, "to cuda:1"),
    ],
)
def test_a_gpu_that_is_not_there_is_named_at_once(monkeypatch, gpus, wanted, seen):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(DeviceError, match=f"asked for {wanted}, but torch sees .*{seen} here"):
        evaluate(halve, Data(1), METRICS, device=wanted)


@pytest.mark.parametrize("wanted", ["mps", "meta", "gpu", 1.5])
def test_a_device_of_another_kind_is_refused(wanted):
    with pytest.raises(DeviceError, match=f"cuda and cpu devices, but was asked for {wanted!r}"):
        evaluate(halve, Data(1), METRICS, device=wanted)
