"""What a metric looks at in each call, in C and in Python."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from fake_driver import FakeDriver
from syncfree import _metric_checks as checks
from syncfree import _runtime

STREAM = 0x901  # that of the fake driver's current device

in_both = pytest.mark.parametrize("language", ["C", "Python"])


def function_of(name: str, language: str) -> Callable[..., bool]:
    return getattr(checks, f"{name}_in_python") if language == "Python" else getattr(_runtime, name)


class Hollow:
    """Something that can be called, and is false."""

    def __len__(self) -> int:
        return 0

    def __call__(self) -> None: ...


@in_both
def test_unset_entries(language: str) -> None:
    all_unset = function_of("all_unset", language)
    holder = {"hooks": OrderedDict(), "none": None, "off": False}
    other = {"full": {1: 2}, "function": Hollow(), "on": True, "number": 0, "list": [], "none": 1}
    assert all_unset()
    assert all_unset(holder, ())
    assert all_unset(holder, ("hooks", "none", "off", "missing"))
    assert all_unset(holder, tuple(holder), other, ("missing",), {}, tuple(other))
    for name in other:
        assert not all_unset(other, (name,))
        assert not all_unset(holder, tuple(holder), other, ("missing", name))
        assert not all_unset(other, (name,), holder, tuple(holder))


@in_both
def test_references(language: str) -> None:
    is_held_by_more = function_of("is_held_by_more", language)
    holder: dict[str, Any] = {"alone": object(), "twice": object(), "other": object()}
    kept = holder["twice"]
    names = dict.fromkeys(("alone", "twice", "missing"))
    assert is_held_by_more(holder, names, 1)
    assert not is_held_by_more(holder, names, 2)
    assert not is_held_by_more(holder, {"alone": None}, 1)
    assert is_held_by_more(holder, {"alone": None}, 0)
    more = [kept]
    assert is_held_by_more(holder, names, 2)
    del kept, more
    assert not is_held_by_more(holder, names, 1)


@in_both
def test_states_that_are_shared(language: str) -> None:
    are_shared = function_of("are_shared", language)
    own: dict[str, Any] = {"_defaults": {"tp": None, "missing": None}, "tp": torch.zeros(1)}
    own["other"] = own["_defaults"]
    assert not are_shared(own)
    kept = own["tp"]
    assert are_shared(own)
    own["_followers"] = 1
    assert not are_shared(own)
    more = [kept]
    assert are_shared(own)
    del kept, more
    own["_followers"] = 0
    assert not are_shared(own)
    detached = own["tp"].detach()
    assert are_shared(own)
    del detached
    assert not are_shared(own)
    with pytest.raises(KeyError, match="_defaults"):
        are_shared({})


ALIASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "detached": torch.Tensor.detach,
    "data": lambda state: state.data,
    "view": lambda state: state[:1],
    "array": torch.Tensor.numpy,
    "array of detached": lambda state: state.detach().numpy(),
}


@in_both
@pytest.mark.parametrize("alias", ALIASES)
def test_users_of_a_storage(alias: str, language: str) -> None:
    is_held_by_more = function_of("is_held_by_more", language)
    holder = {"state": torch.zeros(3)}
    for _ in range(2):
        assert not is_held_by_more(holder, holder, 1)
        kept = ALIASES[alias](holder["state"])
        # Whoever means to hold the tensor does not mean that.
        assert is_held_by_more(holder, holder, 2)
        del kept
        assert not is_held_by_more(holder, holder, 1)
        # This makes an object of the storage, which stays and holds it for nobody.
        holder["state"].untyped_storage()


@in_both
def test_tensors_without_a_storage(language: str) -> None:
    is_held_by_more = function_of("is_held_by_more", language)
    holder = {"sparse": torch.eye(2).to_sparse(), "meta": torch.zeros(1, device="meta")}
    assert not is_held_by_more(holder, holder, 1)


def test_c_finds_the_users() -> None:
    """Where torch keeps their number; if that has changed, Python asks torch, in 0.5 us a state."""
    assert checks.is_held_by_more is _runtime.is_held_by_more
    assert checks.are_shared is _runtime.are_shared


def test_other_places_are_not_looked_at() -> None:
    tensor = torch.zeros(1)
    impl, storage = tensor._cdata, tensor.untyped_storage()._cdata
    for places in ((impl + 16, storage), (impl, storage + 16)):
        assert not _runtime.look_into_storages(tensor, *places)
    assert not _runtime.look_into_storages(object(), impl, storage)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("all_unset", ({},)),
        ("all_unset", ({}, (), {})),
        ("all_unset", ([], ())),
        ("all_unset", ({}, [])),
        ("are_shared", ()),
        ("are_shared", ([],)),
        ("are_shared", ({"_defaults": []},)),
        ("are_shared", ({"_defaults": {}, "_followers": "1"},)),
        ("is_held_by_more", ({}, {})),
        ("is_held_by_more", ({}, (), 1)),
        ("is_held_by_more", ({}, {}, "1")),
        ("look_into_storages", (0, 0)),
        ("look_into_storages", (0, "0", 0)),
        ("is_stream_capturing", (0, 0)),
        ("is_stream_capturing", ("0", 0, 0)),
    ],
)
def test_other_arguments(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(_runtime, name)(*arguments)


def capture_question(fake: FakeDriver) -> Callable[[], bool]:
    names = "fake_device", "fake_stream_of", "cuStreamIsCapturing"
    return partial(_runtime.is_stream_capturing, *map(fake.address, names))


def test_capture_of_the_current_stream(fake: FakeDriver) -> None:
    is_capturing = capture_question(fake)
    assert not is_capturing()
    fake.begin_capture(STREAM)
    assert is_capturing()
    fake.end_capture(STREAM)
    assert not is_capturing()
    fake.begin_capture(STREAM + 1)
    assert not is_capturing()
    fake.end_capture(STREAM + 1)


def test_torch_does_not_tell(fake: FakeDriver) -> None:
    fake.break_device()
    with pytest.raises(RuntimeError, match="does not tell the current CUDA device"):
        capture_question(fake)()


def test_a_forked_child_asks_nobody(fake: FakeDriver) -> None:
    is_capturing = capture_question(fake)
    fake.begin_capture(STREAM)
    assert is_capturing()
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = int(is_capturing())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fake.end_capture(STREAM)
