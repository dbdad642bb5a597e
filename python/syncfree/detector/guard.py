"""`no_sync`: a function that must not make the host wait."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, overload

from syncfree.detector.allow import Pattern
from syncfree.detector.regions import Region, detect_syncs
from syncfree.detector.session import enter_scope, leave_scope
from syncfree.detector.tiers import TierChoice

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
) -> Callable[[F], F]: ...


def no_sync(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function raise if it makes the host wait for the GPU.

    For functions, coroutine functions and generators of both kinds; each call is judged alone. A
    generator is judged at each ``yield``, and what its caller does in between does not count.

    Args:
        function: The function, where the decorator is written without arguments.
        options: ``max_syncs``, ``allow``, ``tier``, ``raise_at`` and ``threads`` of
            :func:`syncfree.detect_syncs`.

    Raises:
        SyncError: By the function: the host waited too often.
        ValueError: An option has a wrong value.
        TypeError: There is no such option, or what is decorated is no function.

    Example:
        >>> import syncfree
        >>> @syncfree.no_sync
        ... def step(batch):
        ...     return batch.mean()
        >>> @syncfree.no_sync(max_syncs=1)
        ... def validate(batch):
        ...     return batch.mean().item()
    """
    make_region = functools.partial(detect_syncs, "raise", **options)
    make_region()  # wrong options raise here, not at the first call
    if function is None:
        return functools.partial(_guarded, make_region)
    return _guarded(make_region, function)


def _guarded(make_region: Callable[[], Region], function: Any) -> Any:
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"no_sync decorates functions, but got {function!r}; for a block of code write "
            "`with syncfree.detect_syncs('raise'):`"
        )
    if inspect.isasyncgenfunction(function):

        async def guarded(*args: Any, **kwargs: Any) -> Any:
            # An async generator cannot delegate to another, so its values are handed on one by one.
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

    elif inspect.isgeneratorfunction(function):

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with _listening(make_region) as region:
                return (yield from _steps(region, function(*args, **kwargs)))

    elif inspect.iscoroutinefunction(function):

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
    """A generator whose own code is inside of the region, and its caller's is not."""
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
