"""TorchMetrics' own documented examples give what they say after the import is replaced."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import pytest
import torch
import torchmetrics.classification
import torchmetrics.functional.classification
import torchmetrics.functional.image
import torchmetrics.image

import syncfree.classification
import syncfree.functional
import syncfree.functional.classification
import syncfree.functional.image
import syncfree.image

SITES = [
    torchmetrics.classification,
    torchmetrics.image,
    torchmetrics.functional.classification,
    torchmetrics.functional.image,
]
OWN = {
    "torchmetrics.classification": syncfree.classification,
    "torchmetrics.image": syncfree.image,
    "torchmetrics.functional.classification": syncfree.functional.classification,
    "torchmetrics.functional.image": syncfree.functional.image,
}


def documented() -> Iterator[tuple[str, Any]]:
    """What has a docstring of its own, of the functions, classes and methods that we replace."""
    for site in SITES:
        for name in sorted(OWN[site.__name__]._OWN):
            theirs = getattr(site, name, None)
            if theirs is None:
                continue
            yield f"{site.__name__}.{name}", theirs
            if inspect.isclass(theirs):
                for method, function in vars(theirs).items():
                    if callable(function) and function.__doc__:
                        yield f"{site.__name__}.{name}.{method}", function


CASES = [(name, x) for name, x in documented() if ">>> " in (x.__doc__ or "")]


@pytest.mark.parametrize(("name", "theirs"), CASES, ids=[name for name, _ in CASES])
def test_example(name: str, theirs: Any) -> None:
    mpl.use("Agg")
    torch.manual_seed(42)
    text = inspect.getdoc(theirs) or ""
    replaced = text.replace("torchmetrics", "syncfree")
    # Some examples import nothing: theirs are run where these names are known.
    module = OWN.get(name.rsplit(".", 1)[0], syncfree.classification)
    scope: dict[str, Any] = {"torch": torch, "tensor": torch.tensor}
    scope |= {own: getattr(module, own) for own in module._OWN}
    test = doctest.DocTestParser().get_doctest(replaced, scope, name, None, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_all_are_there() -> None:
    """Every function and class of ours that TorchMetrics has shows an example there."""
    names = {name.split(".")[-1] for name, _ in CASES}
    assert names >= {
        "accuracy",
        "binary_accuracy",
        "multiclass_accuracy",
        "multilabel_accuracy",
        "BinaryAccuracy",
        "MulticlassAccuracy",
        "MultilabelAccuracy",
        "PeakSignalNoiseRatio",
        "peak_signal_noise_ratio",
        "structural_similarity_index_measure",
        "multiscale_structural_similarity_index_measure",
        "plot",
    }
