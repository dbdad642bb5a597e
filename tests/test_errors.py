"""Errors of the package on their way from one process to another."""

from __future__ import annotations

import pickle

import pytest

from syncfree.errors import (
    EvaluationError,
    MissingExtraError,
    RankError,
    SyncError,
    SyncfreeError,
    VirtualDeviceError,
)


@pytest.mark.parametrize(
    "error",
    [
        MissingExtraError("`syncfree compare`", "cli"),
        VirtualDeviceError("torch.cuda.CUDAGraph", "Leave it out."),
        SyncError("the host waits", None),
        RankError({1: "died", 0: "was stuck"}),
        EvaluationError({3: "ValueError: no"}, None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickled(error: SyncfreeError) -> None:
    error.__notes__ = ["in a worker"]
    read = pickle.loads(pickle.dumps(error))
    assert type(read) is type(error)
    assert str(read) == str(error)
    assert vars(read) == vars(error)
