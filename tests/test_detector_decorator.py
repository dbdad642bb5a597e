"""`syncfree.no_sync` on functions, coroutines, generators and methods."""

from __future__ import annotations

import asyncio
import contextvars
import functools

import pytest

import syncfree
from detector_stub import wait
from syncfree.errors import DetectorError, SyncError

pytestmark = pytest.mark.usefixtures("stub")


def test_plain_functions() -> None:
    @syncfree.no_sync
    def good(a: int, *, b: int) -> int:
        """Adds."""
        return a + b

    @syncfree.no_sync(max_syncs=1)
    def bad(times: int) -> str:
        for _ in range(times):
            wait()
        return "done"

    assert good(1, b=2) == 3
    assert (good.__name__, good.__doc__) == ("good", "Adds.")
    assert bad(1) == "done"
    with pytest.raises(SyncError):
        bad(2)
    assert bad(1) == "done"


def test_blocks_of_code() -> None:
    with syncfree.no_sync() as report:
        pass
    assert report.count == 0
    guard = syncfree.no_sync(max_syncs=1)
    with guard, guard:
        wait()

    def waits_twice() -> None:
        with guard:
            wait()
            wait()

    with pytest.raises(SyncError):
        waits_twice()
    with pytest.raises(ZeroDivisionError), guard:
        _ = 1 / 0


def test_blocks_of_tasks_that_take_turns() -> None:
    """One guard of a module, entered by both before either leaves it, the first one first."""
    guard = syncfree.no_sync()

    async def task(times: int, pauses: int) -> None:
        with guard:
            await asyncio.sleep(0)
            for _ in range(times):
                wait()
            for _ in range(pauses):
                await asyncio.sleep(0)

    async def main() -> list:
        return await asyncio.gather(task(1, 0), task(0, 3), return_exceptions=True)

    guilty, innocent = asyncio.run(main())
    assert isinstance(guilty, SyncError)
    assert guilty.report.count == 1
    assert innocent is None


def test_coroutine_functions() -> None:
    @syncfree.no_sync
    async def step(times: int) -> int:
        await asyncio.sleep(0)
        for _ in range(times):
            wait()
        return times

    async def main() -> list:
        return await asyncio.gather(step(0), step(1), step(0), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first, third) == (0, 0)
    assert isinstance(second, SyncError)
    assert second.report.count == 1


def test_generators() -> None:
    closed = []

    @syncfree.no_sync
    def batches(guilty: int):
        try:
            for n in range(3):
                if n == guilty:
                    wait()
                got = yield n
                if got == "throw":
                    pytest.fail("an exception was expected")
            if guilty == 3:
                wait()
            return "end"
        except ValueError:
            yield "caught"
        finally:
            closed.append(guilty)

    def everything(guilty: int):
        result = yield from batches(guilty)
        assert result == "end"

    for _ in everything(-1):
        wait()  # the caller's
    seen: list[int] = []
    with pytest.raises(SyncError):
        seen.extend(batches(1))
    with pytest.raises(SyncError):  # after the last one
        seen.extend(batches(3))
    assert seen == [0, 0, 1, 2]
    generator = batches(-1)
    assert next(generator) == 0
    assert generator.send("x") == 1
    assert generator.throw(ValueError) == "caught"
    generator.close()
    for _ in batches(5):
        break
    assert closed == [-1, 1, 3, -1, 5]


def test_asynchronous_generators() -> None:
    @syncfree.no_sync
    async def batches(guilty: int):
        for n in range(3):
            await asyncio.sleep(0)
            if n == guilty:
                wait()
            got = yield n
            assert got in (None, "sent")

    async def main() -> None:
        async for _ in batches(-1):
            wait()  # the caller's
        with pytest.raises(SyncError):
            async for _ in batches(1):
                pass
        generator = batches(-1)
        assert await anext(generator) == 0
        assert await generator.asend("sent") == 1
        await generator.aclose()

    asyncio.run(main())


def test_methods_and_static_methods() -> None:
    class Model:
        @syncfree.no_sync
        def step(self) -> Model:
            return self

        @staticmethod
        @syncfree.no_sync
        def other() -> None:
            wait()

    model = Model()
    assert model.step() is model
    with pytest.raises(SyncError):
        model.other()


class Awaited:
    async def __call__(self, times: int) -> str:
        await asyncio.sleep(0)
        for _ in range(times):
            wait()
        return "done"


class Batches:
    def __call__(self, times: int):
        yield "before"
        for _ in range(times):
            wait()


class LaterBatches:
    async def __call__(self, times: int):
        yield "before"
        for _ in range(times):
            wait()


async def everything_later(values) -> list:
    return [each async for each in values]


@pytest.mark.parametrize(
    ("made", "run", "result"),
    [
        (Awaited(), asyncio.run, "done"),
        (Batches(), list, ["before"]),
        (LaterBatches(), lambda it: asyncio.run(everything_later(it)), ["before"]),
    ],
    ids=["coroutine", "generator", "asynchronous generator"],
)
@pytest.mark.parametrize("form", [lambda it: it, functools.partial], ids=["object", "partial"])
def test_objects_whose_call_runs_later(made, run, result, form) -> None:
    guarded = syncfree.no_sync(form(made))
    assert run(guarded(0)) == result
    with pytest.raises(SyncError):
        run(guarded(1))


def test_the_decorator_above_staticmethod_and_classmethod() -> None:
    class Model:
        @syncfree.no_sync
        @staticmethod
        def static(times: int) -> int:
            for _ in range(times):
                wait()
            return times

        @syncfree.no_sync(max_syncs=1)
        @classmethod
        def of_the_class(cls, times: int) -> str:
            cls.static(0)
            for _ in range(times):
                wait()
            return cls.__name__

    assert (Model.static(0), Model().static(0)) == (0, 0)
    assert (Model.of_the_class(1), Model().of_the_class(0)) == ("Model", "Model")
    for guilty in (Model.static, Model().static, Model.of_the_class):
        with pytest.raises(SyncError):
            guilty(2)


def test_a_block_that_is_left_in_another_context() -> None:
    guard = syncfree.no_sync()
    contextvars.copy_context().run(guard.__enter__)
    wait()  # outside
    guard.__exit__(None, None, None)
    with pytest.raises(DetectorError, match="it is not open: enter it first"):
        guard.__exit__(None, None, None)


@pytest.mark.parametrize("thing", [int, 3, "step"])
def test_what_is_no_function(thing: object) -> None:
    with pytest.raises(TypeError, match="no_sync decorates functions"):
        syncfree.no_sync(thing)


def test_wrong_options_raise_at_the_decorator() -> None:
    with pytest.raises(ValueError, match="max_syncs"):
        syncfree.no_sync(max_syncs=-1)
    with pytest.raises(TypeError, match="mode"):
        syncfree.no_sync(mode="record")
