"""Tests that time a GPU have it alone, do not wait for ever, and leave other GPUs to others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from gpu_turns import in_shares, turn

LONG = 20.0
A_WHILE = 0.3


class User:
    """Takes its turn in a thread of its own, until it is told to leave."""

    def __init__(self, pool: ThreadPoolExecutor, folder: Path, gpus: str, alone: bool) -> None:
        self.entered, self.may_leave = Event(), Event()
        self._future = pool.submit(self._use, folder, gpus, alone)

    def _use(self, folder: Path, gpus: str, alone: bool) -> None:
        with turn(folder, gpus, alone=alone):
            self.entered.set()
            assert self.may_leave.wait(LONG)

    def leave(self) -> None:
        self.may_leave.set()
        self._future.result(LONG)


@pytest.fixture
def use(tmp_path: Path):
    users: list[User] = []
    with ThreadPoolExecutor(8) as pool:

        def start(gpus: str, *, alone: bool = False) -> User:
            users.append(User(pool, tmp_path / "turns", gpus, alone))
            return users[-1]

        yield start
        for user in users:
            user.leave()


def test_others_share(use) -> None:
    assert all(use("0").entered.wait(LONG) for _ in range(3))


@pytest.mark.parametrize("first_is_alone", [True, False])
def test_one_alone_shares_with_nobody(use, first_is_alone: bool) -> None:
    first = use("0", alone=first_is_alone)
    assert first.entered.wait(LONG)
    second = use("0", alone=not first_is_alone)
    assert not second.entered.wait(A_WHILE)
    first.leave()
    assert second.entered.wait(LONG)


def test_who_waits_to_be_alone_is_not_overtaken(use) -> None:
    before, alone = use("0"), None
    assert before.entered.wait(LONG)
    alone = use("0", alone=True)
    assert not alone.entered.wait(A_WHILE)
    late = use("0")
    assert not late.entered.wait(A_WHILE)
    before.leave()
    assert alone.entered.wait(LONG)
    assert not late.entered.wait(A_WHILE)
    alone.leave()
    assert late.entered.wait(LONG)


def test_another_gpu_is_free(use) -> None:
    assert use("0", alone=True).entered.wait(LONG)
    assert use("1", alone=True).entered.wait(LONG)


def test_all_of_several_in_any_order(use) -> None:
    both = use("10", alone=True)
    assert both.entered.wait(LONG)
    others = [use("0"), use("1"), use("01", alone=True)]
    assert not any(other.entered.wait(A_WHILE) for other in others)
    both.leave()
    for other in others:
        other.may_leave.set()
    for other in others:
        assert other.entered.wait(LONG)


@pytest.mark.parametrize("processes", [1, 2, 27])
def test_each_share_begins_with_what_comes_first(processes: int) -> None:
    first, later = [("first", i) for i in range(997)], [("later", i) for i in range(1511)]
    order = in_shares(first, later, processes)
    assert [each for each in order if each[0] == "first"] == first
    assert [each for each in order if each[0] == "later"] == later
    begin = 0
    for i in range(processes):  # as work stealing cuts it, to a test or two
        end = begin + (len(order) - begin) // (processes - i)
        kinds = [kind for kind, _ in order[begin:end]]
        assert set(kinds[2 : len(kinds) // 3]) == {"first"}
        assert set(kinds[len(kinds) // 2 : -2]) == {"later"}
        begin = end
