"""`no_sync`: a function, or a block of code, that must not make the host wait."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, overload

from syncfree.detector.allow import Pattern
from syncfree.detector.callables import kind_of_call
from syncfree.detector.regions import Region, detect_syncs
from syncfree.detector.report import Report
from syncfree.detector.session import enter_scope, leave_scope, regions_here
from syncfree.detector.tiers import TierChoice
from syncfree.errors import DetectorError

F = TypeVar("F", bound=Callable[..., Any])


@overload
def no_sync(function: F, /) -> F: ...


@overload
def no_sync(
    *,
    max_syncs: int = 0,
    allow: Sequence[Pattern] = (),
    tier: TierChoice = "auto",
    raise_at: Literal["exit", "call"] = "exit",
    threads: Literal["inside", "all"] = "inside",
) -> NoSync: ...


def no_sync(
    function: Callable[..., Any] | None = None,
    /,
    *,
    max_syncs: int = 0,
    allow: Sequence[Pattern] = (),
    tier: TierChoice = "auto",
    raise_at: Literal["exit", "call"] = "exit",
    threads: Literal["inside", "all"] = "inside",
) -> Any:
    """Makes a function, or a block of code, raise if it makes the host wait for the GPU.

    A decorator for functions, coroutine functions, and plain and asynchronous generators; each call
    is judged separately. A generator is judged at each ``yield``, and what its caller does in
    between does not count. For a block of code write ``with no_sync():``, which is
    ``with detect_syncs("raise"):``.

    Args:
        function: The function, where the decorator is written without arguments.
        max_syncs: As for :func:`syncfree.detect_syncs`, like all that follow.
        allow: Waits that are intended.
        tier: How waits are detected.
        raise_at: Where the error is raised.
        threads: Whose waits count.

    Raises:
        SyncError: From the decorated function, or at the end of the block: the host waited too
            often.
        ValueError: An option has a wrong value.
        TypeError: There is no such option, or the decorated object is not a function.

    Example:
        >>> import syncfree, torch
        >>> @syncfree.no_sync
        ... def step(batch):
        ...     return batch.mean()
        >>> @syncfree.no_sync(max_syncs=1)
        ... def validate(batch):
        ...     return batch.mean().item()
        >>> with syncfree.no_sync():
        ...     mean = step(torch.ones(3))
    """
    make_region = functools.partial(
        detect_syncs,
        "raise",
        max_syncs=max_syncs,
        allow=allow,
        tier=tier,
        raise_at=raise_at,
        threads=threads,
    )
    make_region()  # wrong options raise here, not at the first call
    if function is None:
        return NoSync(make_region)
    return _guarded(make_region, function)


class NoSync:
    """`no_sync` with its options: a decorator, and a context manager for blocks of code."""

    def __init__(self, make_region: Callable[[], Region]) -> None:
        self._make_region = make_region
        self._open: list[Region] = []

    def __call__(self, function: F) -> F:
        """The function, guarded."""
        guarded: F = _guarded(self._make_region, function)
        return guarded

    def __enter__(self) -> Report:
        region = self._make_region()
        report = region.__enter__()
        self._open.append(region)
        return report

    def __exit__(self, *details: Any) -> None:
        # Threads and tasks that share the guard may leave in another order than they entered. If
        # the block ends in another context than it began in, `regions_here` has none of its
        # regions.
        here = [each for each in regions_here() if each in self._open] or self._open
        if not here:
            raise DetectorError("this no_sync block is left, but it is not open: enter it first")
        region = here[-1]
        self._open.remove(region)
        region.__exit__(*details)


def _guarded(make_region: Callable[[], Region], function: Any) -> Any:
    if isinstance(function, (staticmethod, classmethod)):  # decorated above @staticmethod
        return type(function)(_guarded(make_region, function.__func__))
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"no_sync decorates functions, but got {function!r}; for a block of code write "
            "`with syncfree.no_sync():`"
        )
    kind = kind_of_call(function)
    if kind == "asynchronous generator":

        async def guarded(*args: Any, **kwargs: Any) -> Any:
            # An async generator has no `yield from`, so the values are passed on one by one.
            with _listening(make_region) as region:
                generator = function(*args, **kwargs)
                resume: Callable[[], Any] = functools.partial(anext, generator)
                while True:
                    try:
                        with _inside(region):
                            value = await resume()
                    except StopAsyncIteration:
                        region.judge()
                        return
                    region.judge()
                    try:
                        sent = yield value
                    except GeneratorExit:
                        with _inside(region):
                            await generator.aclose()
                        raise
                    except BaseException as error:
                        resume = functools.partial(generator.athrow, error)
                    else:
                        resume = functools.partial(generator.asend, sent)

    elif kind == "generator":

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with _listening(make_region) as region:
                return (yield from _steps(region, function(*args, **kwargs)))

    elif kind == "coroutine":

        async def guarded(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            with make_region():
                return await function(*args, **kwargs)

    else:

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with make_region():
                return function(*args, **kwargs)

    return functools.wraps(function)(guarded)


@contextmanager
def _listening(make_region: Callable[[], Region]) -> Iterator[Region]:
    region = make_region()
    region.open()
    try:
        yield region
    finally:
        region.close()


@contextmanager
def _inside(region: Region) -> Iterator[None]:
    enter_scope(region)
    try:
        yield
    finally:
        leave_scope(region)


def _steps(region: Region, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Runs a generator with its own code inside of the region, and its caller's code outside."""
    resume: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            with _inside(region):
                value = resume()
        except StopIteration as end:
            region.judge()
            return end.value
        region.judge()
        try:
            sent = yield value
        except GeneratorExit:
            with _inside(region):
                generator.close()
            raise
        except BaseException as error:
            resume = functools.partial(generator.throw, error)
        else:
            resume = functools.partial(generator.send, sent)
