"""Which of two ways a gradient is recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syncfree._ops.gradient import Differentiable

# Other than one op and its gradient.
WITHOUT_QUICK_WAY = {
    "DifferentiableImageQuality",
    "DifferentiableWideSsim",
    "DifferentiableWideSsimAndError",
    "PsnrWithGradient",
}


def differentiables() -> Iterator[type[Differentiable]]:
    for each in Differentiable.__subclasses__():
        if each.__module__.startswith("syncfree."):
            yield each


def take_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in differentiables():
        monkeypatch.setattr(each, "quick", each.apply)


@pytest.fixture(params=["quick", "usual"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By nodes of C++, and by those of Python, as where the module of the former is not there."""
    if request.param == "usual":
        take_the_usual_way(monkeypatch)
