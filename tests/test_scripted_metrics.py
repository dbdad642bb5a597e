"""TorchScript beside the metric classes, which it leaves out of what it compiles."""

from __future__ import annotations

import warnings

import torch

from class_cases import ClassCase
from metric_contract import every_case


@every_case
def test_scripting_as_theirs(case: ClassCase) -> None:
    """TorchMetrics' classes can be a part of scripted modules, which leave them out."""
    ours, theirs = case.pair("cpu")
    outcomes = []
    for metric in (ours, theirs):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.jit.script(metric)
            outcomes.append(None)
        except (RuntimeError, NotImplementedError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


@every_case
def test_a_module_that_holds_one_is_scripted(case: ClassCase) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.metric, _ = case.pair("cpu")
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(Net())
    assert scripted(torch.ones(3)).shape == (3,)
