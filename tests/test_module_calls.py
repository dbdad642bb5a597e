"""A metric is called as any nn.Module: hooks, compilation and tracers see what they see of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from torch import Tensor, nn
from torch.nn.modules import module
from torchmetrics import Metric

from cases import image_pair
from syncfree.image import PeakSignalNoiseRatio

Register = Callable[[Metric, list[str]], Any]

ON_THE_METRIC: dict[str, Register] = {
    "forward": lambda m, seen: m.register_forward_hook(lambda *_: seen.append("after")),
    "forward, always": lambda m, seen: m.register_forward_hook(
        lambda *_: seen.append("always"), always_call=True
    ),
    "before forward": lambda m, seen: m.register_forward_pre_hook(lambda *_: seen.append("before")),
    "with keywords": lambda m, seen: m.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(f"{len(args)} {list(kwargs)}"), with_kwargs=True
    ),
    "backward": lambda m, seen: m.register_full_backward_hook(lambda *_: seen.append("backward")),
    "before backward": lambda m, seen: m.register_full_backward_pre_hook(
        lambda *_: seen.append("before backward")
    ),
}
ON_ALL_MODULES: dict[str, Register] = {
    "forward of all": lambda _, seen: module.register_module_forward_hook(
        lambda *_: seen.append("after")
    ),
    "before forward of all": lambda _, seen: module.register_module_forward_pre_hook(
        lambda *_: seen.append("before")
    ),
    "backward of all": lambda _, seen: module.register_module_full_backward_hook(
        lambda *_: seen.append("backward")
    ),
    "before backward of all": lambda _, seen: module.register_module_full_backward_pre_hook(
        lambda *_: seen.append("before backward")
    ),
}


@pytest.fixture
def pair(device: str) -> tuple[Tensor, Tensor]:
    return image_pair((2, 3, 8, 9), torch.float32, device)


@pytest.mark.parametrize("kind", [*ON_THE_METRIC, *ON_ALL_MODULES])
def test_hooks(kind: str, pair: tuple[Tensor, Tensor], device: str) -> None:
    """What they see, until they are removed, is what they see of TorchMetrics' class."""
    register = (ON_THE_METRIC | ON_ALL_MODULES)[kind]
    logs = []
    for metric in (PeakSignalNoiseRatio(1.0).to(device), tm.PeakSignalNoiseRatio(1.0).to(device)):
        seen: list[str] = []
        handle = register(metric, seen)
        try:
            preds = pair[0].clone().requires_grad_()
            metric(preds, target=pair[1]).backward()
            with pytest.raises(RuntimeError):
                metric(preds, pair[1][..., :5])
        finally:
            handle.remove()
        during = list(seen)
        metric(preds, pair[1]).backward()
        assert seen == during
        logs.append(during)
    assert logs[0] == logs[1] != []


def test_a_hook_changes_arguments_and_results(pair: tuple[Tensor, Tensor], device: str) -> None:
    metric, plain = (PeakSignalNoiseRatio(1.0).to(device) for _ in range(2))
    metric.register_forward_pre_hook(lambda _, args: (args[0] / 2, args[1]))
    metric.register_forward_hook(lambda _, args, value: value + 1)
    torch.testing.assert_close(metric(*pair), plain(pair[0] / 2, pair[1]) + 1)
    torch.testing.assert_close(metric.compute(), plain.compute())


class Doubled(PeakSignalNoiseRatio):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().forward(*args, **kwargs)


def test_forward_of_a_subclass_or_an_instance(pair: tuple[Tensor, Tensor], device: str) -> None:
    doubled, plain = (x(1.0).to(device) for x in (Doubled, PeakSignalNoiseRatio))
    want = plain(*pair)
    assert torch.equal(doubled(*pair), 2 * want)
    plain.forward = lambda *_: want + 1
    assert torch.equal(plain(*pair), want + 1)


class Empty(nn.Sequential):
    """A module that is false."""

    def forward(self, *_: Any) -> Any:
        return "empty"


def test_forward_that_comes_late(
    pair: tuple[Tensor, Tensor], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(PeakSignalNoiseRatio):
        pass

    metric = Own(1.0).to(device)
    metric(*pair)
    metric.__dict__["forward"] = Empty()
    assert metric(*pair) == "empty"
    del metric.__dict__["forward"]
    for cls in (PeakSignalNoiseRatio, Own):
        with monkeypatch.context() as patched:
            patched.setattr(cls, "forward", lambda *_: "patched")
            assert metric(*pair) == "patched"
    assert isinstance(metric(*pair), Tensor)


def test_a_name_that_subclasses_take(pair: tuple[Tensor, Tensor], device: str) -> None:
    class Own(PeakSignalNoiseRatio):
        def _step(self) -> None: ...

    assert torch.equal(Own(1.0).to(device)(*pair), PeakSignalNoiseRatio(1.0).to(device)(*pair))


@pytest.mark.parametrize("option", ["dist_sync_on_step", "compute_on_cpu"])
def test_options_as_properties(option: str, pair: tuple[Tensor, Tensor], device: str) -> None:
    changed = property(lambda self: False, lambda self, value: None)
    odd, plain = (
        x(1.0).to(device)
        for x in (type("Odd", (PeakSignalNoiseRatio,), {option: changed}), PeakSignalNoiseRatio)
    )
    assert torch.equal(odd(*pair), plain(*pair))
    assert torch.equal(odd.compute(), plain.compute())


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("way", ["in a function", "as a module", "in place"])
def test_compiles_whole(way: str, pair: tuple[Tensor, Tensor], device: str) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph

    options: dict[str, Any] = {"fullgraph": True, "backend": backend}
    metric, plain = (PeakSignalNoiseRatio(1.0).to(device) for _ in range(2))
    run: Any = metric
    if way == "in a function":
        run = torch.compile(lambda preds, target: metric(preds, target) + 0, **options)
    elif way == "as a module":
        run = torch.compile(metric, **options)
    else:
        metric.compile(**options)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            torch.testing.assert_close(run(*pair), plain(*pair))
    torch.testing.assert_close(metric.sum_squared_error, plain.sum_squared_error)
    assert len(graphs) == 1


@pytest.mark.usefixtures("fresh_compiler")
def test_hooks_are_compiled(pair: tuple[Tensor, Tensor], device: str) -> None:
    metric, plain = (PeakSignalNoiseRatio(1.0).to(device) for _ in range(2))
    metric.register_forward_hook(lambda _, args, value: value + 1)
    run = torch.compile(lambda *args: metric(*args), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(*pair), plain(*pair) + 1)


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.metric = PeakSignalNoiseRatio(1.0)

    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.metric(preds, target)
        return value


def test_traced_calls_have_the_scope_of_the_module(
    pair: tuple[Tensor, Tensor], device: str
) -> None:
    """By which torch.jit.trace tells the modules of a graph apart."""
    step = Step().to(device)
    traced = torch.jit.trace(step, pair, check_trace=False)
    assert "metric" in dict(traced.named_children())
    assert any("psnr_update" in str(node) for node in traced.metric.graph.nodes())


def test_a_tracer_of_fx_takes_it_for_a_leaf() -> None:
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, name: str) -> bool:
            return isinstance(m, Metric)

    graph = Tracer().trace(Step())
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["metric"]


class Counted(nn.Module):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return super().__call__(*args, **kwargs)


class Mixed(PeakSignalNoiseRatio, Counted):
    pass


class Own(PeakSignalNoiseRatio):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return super()._call_impl(*args, **kwargs)


@pytest.mark.parametrize("cls", [Mixed, Own])
def test_another_way_of_calling_modules(
    cls: type[PeakSignalNoiseRatio], pair: tuple[Tensor, Tensor], device: str
) -> None:
    metric = cls(1.0).to(device)
    assert torch.equal(metric(*pair), PeakSignalNoiseRatio(1.0).to(device)(*pair))
    assert metric.__dict__["calls"] == 1


def test_a_tool_that_calls_all_modules_in_its_way(
    pair: tuple[Tensor, Tensor], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric, seen, plain = PeakSignalNoiseRatio(1.0).to(device), [], nn.Module._call_impl

    def traced(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "_call_impl", traced)
    metric(*pair)
    assert seen == [metric]


class WithProperty(PeakSignalNoiseRatio):
    """Says of itself what otherwise stands in an attribute of each metric."""

    asked = 0

    @property
    def dist_sync_on_step(self) -> bool:
        type(self).asked += 1
        return False

    @dist_sync_on_step.setter
    def dist_sync_on_step(self, value: bool) -> None: ...


def test_a_property_is_asked_in_each_call(pair: tuple[Tensor, Tensor], device: str) -> None:
    metric = WithProperty(1.0).to(device)
    plain = PeakSignalNoiseRatio(1.0).to(device)
    before = WithProperty.asked
    assert torch.equal(metric(*pair), plain(*pair))
    assert WithProperty.asked > before


def test_a_batch_that_ops_do_not_serve_is_tried_once(
    pair: tuple[Tensor, Tensor], device: str
) -> None:
    tried = []

    class Unserved(PeakSignalNoiseRatio):
        def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
            tried.append(args)
            return NotImplemented

    metric, plain = Unserved(1.0).to(device), PeakSignalNoiseRatio(1.0).to(device)
    assert torch.equal(metric(*pair), plain(*pair))
    assert len(tried) == 1
