"""pytest plugin: the fixture `gpu_benchmark`, which is pytest-benchmark's with times of the GPU.

pytest loads it at its start in every project, so it imports nothing else before a test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from syncfree.benchmarking.result import Comparison, Result


class GpuBenchmark:
    """Has the interface of pytest-benchmark's fixture and feeds its tables and files.

    Times are those of :func:`syncfree.benchmark`: between GPU events, or by the CPU's clock if
    there is no GPU. pytest-benchmark's options (``--benchmark-max-time``, ``--benchmark-disable``,
    ``--benchmark-only``, ``--benchmark-json``, ``--benchmark-compare``) apply.

    Args:
        inner: pytest-benchmark's own fixture.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def group(self) -> str | None:
        """The table that the test is shown in."""
        group: str | None = self._inner.group
        return group

    @group.setter
    def group(self, name: str | None) -> None:
        self._inner.group = name

    @property
    def extra_info(self) -> dict[str, Any]:
        """Values that are saved with the figures."""
        info: dict[str, Any] = self._inner.extra_info
        return info

    @property
    def enabled(self) -> bool:
        """False under ``--benchmark-disable``: functions are then called once and not measured."""
        return not self._inner.disabled

    @property
    def stats(self) -> Any:
        """pytest-benchmark's statistics of the last function; times in seconds."""
        return self._inner.stats

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Measures ``function(*args, **kwargs)`` and returns what it returns."""
        self._use("gpu_benchmark(...)")
        return self._measured(function, args, kwargs, {})

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **options: Any,
    ) -> Any:
        """Measures with a setup before each call, or with options of `syncfree.benchmark`.

        Args:
            target: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.
            setup: Called before each call, untimed; returns None or ``(args, kwargs)``.
            **options: Options of :func:`syncfree.benchmark`. pytest-benchmark's ``rounds``,
                ``warmup_rounds`` and ``iterations`` are accepted and have no effect: the precision
                of the median decides when to stop.

        Returns:
            What the function returns.
        """
        self._use("gpu_benchmark.pedantic(...)")
        for name in ("rounds", "warmup_rounds", "iterations"):
            options.pop(name, None)
        keywords = dict(kwargs or {})
        if setup is None:
            return self._measured(target, args, keywords, options)
        from syncfree.benchmarking.arguments import require_whole_call

        require_whole_call(target)

        def prepare() -> tuple[tuple[Any, ...], Mapping[str, Any]]:
            made = setup()
            for_args, for_kwargs = (args, keywords) if made is None else made
            return for_args, for_kwargs

        def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            return target(*args, **kwargs)

        if self.enabled:
            for_args, for_kwargs = prepare()
            given = (*for_args, *for_kwargs.values())
            self._measure(call, (), given, {**options, "setup": prepare})
        return call(*prepare())

    def compare(
        self, contenders: Mapping[str, Callable[[], Any]], **options: Any
    ) -> Comparison | None:
        """Measures contenders in turn in one run; each gets a line of its own in the table.

        Args:
            contenders: Functions by name.
            **options: Options of :func:`syncfree.benchmark`.

        Returns:
            The figures; None under ``--benchmark-disable``.
        """
        if not self.enabled:
            self._use("gpu_benchmark.compare(...)")
            for call in contenders.values():
                call()
            return None
        from syncfree.benchmarking.api import benchmark

        measured = benchmark(contenders, **self._options(options))
        self.add(measured)
        return measured

    def add(self, measured: Comparison) -> None:
        """Puts figures that were measured before into the table, a line for each contender."""
        self._use("gpu_benchmark.add(...)")
        for name, result in measured.items():
            line = copy(self._inner)
            line.name = f"{self._inner.name} {name}"
            line.fullname = f"{self._inner.fullname} {name}"
            line.extra_info = {**self._inner.extra_info, "contender": name}
            _feed(line, result)

    def _measured(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Any:
        if self.enabled:
            # Not a lambda, which would hide a coroutine or generator function, and takes time too.
            call = partial(function, **kwargs) if kwargs else function
            self._measure(call, args, (*args, *kwargs.values()), options)
        return function(*args, **kwargs)

    def _measure(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        given: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        """Measures on the device of the tensors in `given`: `args` may not contain them all."""
        from syncfree.benchmarking.api import benchmark
        from syncfree.benchmarking.devices import device_of

        chosen = self._options(options)
        chosen["device"] = device_of(chosen.get("device"), given)
        _feed(self._inner, benchmark(call, *args, **chosen))

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"max_seconds": self._inner._max_time, **options}

    def _use(self, form: str) -> None:
        if self._inner._mode:
            self._inner.has_error = True
            raise RuntimeError(
                f"gpu_benchmark measures once a test, but was used as {self._inner._mode} before; "
                "compare({name: function}) measures several"
            )
        self._inner._mode = form


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds `benchmark` to the fixture names, by which pytest-benchmark recognizes its tests."""
    if not hasattr(config, "_benchmarksession"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and "gpu_benchmark" in item.fixturenames:
            item.fixturenames = [*item.fixturenames, "benchmark"]


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest) -> GpuBenchmark:
    """The fixture of pytest-benchmark, with times between GPU events, or by the CPU's clock.

    Example:
        def test_forward(gpu_benchmark, model, batch):
            gpu_benchmark(model, batch)
    """
    if not hasattr(request.config, "_benchmarksession"):
        raise pytest.UsageError("gpu_benchmark needs pytest-benchmark, which is not active here")
    return GpuBenchmark(request.getfixturevalue("benchmark"))


def _feed(line: Any, result: Result) -> None:
    """Gives a result to pytest-benchmark, whose unit is the second."""
    line.extra_info.update(
        {key: value for key, value in result.json().items() if key != "samples_us"}
    )
    stats = line._make_stats(1)
    for us in result.samples_us:
        stats.update(us * 1e-6)
