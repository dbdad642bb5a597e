"""Bad labels that the accuracy classes met on CUDA: raised later, with the line they came by."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

import syncfree
from deferred_cases import current_line, labels
from syncfree import classification, functional


@pytest.fixture
def nothing_left() -> None:
    if torch.cuda.is_initialized():
        gc.collect()
        syncfree.check_errors()


def test_validation_switched_on_has_a_place_of_its_own() -> None:
    """Its errors were those of the functions, which raised them in their calls."""
    metric = classification.MulticlassAccuracy(5, validate_args=False)
    assert metric._error_slot == 0
    metric.validate_args = True
    slot = metric._error_slot
    assert slot != 0
    metric.top_k = 2
    metric.validate_args = False
    metric.validate_args = True
    assert metric._error_slot == slot


@pytest.mark.needs_cuda
@pytest.mark.usefixtures("nothing_left")
class TestBadLabelsOnCuda:
    def spoiled(self, **options: Any) -> tuple[Metric, int]:
        """A metric that met two bad labels, and the line where."""
        metric = classification.MulticlassAccuracy(5, **options).cuda()
        metric.update(*labels("cuda"))
        metric.update(*labels("cuda", 7, -1))
        line = current_line() - 1
        torch.cuda.synchronize()
        return metric, line

    @pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
    def test_the_next_call_raises(self, average: str) -> None:
        for name in ("update", "forward", "compute"):
            metric, line = self.spoiled(average=average)
            arguments = () if name == "compute" else labels("cuda")
            with pytest.raises(RuntimeError, match="7 at flat index 3, the first of 2") as error:
                getattr(metric, name)(*arguments)
            text = str(error.value)
            assert f'Metric: MulticlassAccuracy. Call: file "{__file__}", line {line}.' in text
            assert metric.compute().isnan().all()
            metric.reset()
            metric.update(*labels("cuda"))
            assert metric.compute().nan_to_num().max().item() == 1
        syncfree.check_errors()

    def test_other_metrics_go_on(self) -> None:
        metric, line = self.spoiled()
        other = classification.MulticlassAccuracy(5).cuda()
        assert other(*labels("cuda")).item() == other.compute().item() == 1
        assert functional.multiclass_accuracy(*labels("cuda"), 5).item() == 1
        with pytest.raises(RuntimeError, match=f"line {line}"):
            syncfree.check_errors()
        assert metric.compute().isnan()

    def test_value_of_the_batch_is_nan(self) -> None:
        metric = classification.MulticlassAccuracy(5, average="none").cuda()
        metric(*labels("cuda"))  # loads the kernels, which may wait
        metric.reset()
        bad = labels("cuda", 9)  # waits, as it copies from the host
        torch.cuda._sleep(1_000_000_000)  # or it would raise at once
        assert metric(*bad).isnan().all()
        with pytest.raises(RuntimeError, match="9 at flat index 3"):
            syncfree.check_errors()

    def test_cached_value_does_not_hide_an_error(self) -> None:
        metric = classification.MulticlassAccuracy(5).cuda()
        metric.update(*labels("cuda"))
        metric.compute()  # loads the kernels, which may wait
        metric.reset()
        bad = labels("cuda", 7)  # waits, as it copies from the host
        torch.cuda._sleep(1_000_000_000)  # 0.5 s, within which this host is through
        metric.update(*bad)
        assert metric.compute().isnan()  # enqueued before the kernel had looked
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="7 at flat index 3"):
            metric.compute()

    def test_copies_have_errors_of_their_own(self) -> None:
        metric, _ = self.spoiled()
        for other in (metric.clone(), pickle.loads(pickle.dumps(metric))):
            assert other.compute().isnan()
            assert other._error_slot != metric._error_slot
        with pytest.raises(RuntimeError, match="7 at flat index 3"):
            metric.compute()

    def test_subclasses_raise_too(self) -> None:
        class Own(classification.MulticlassAccuracy):
            def compute(self) -> Tensor:
                return super().compute() / 2

        for step in ("compute", "forward"):
            metric = Own(5).cuda()
            metric.update(*labels("cuda", 7))
            torch.cuda.synchronize()
            with pytest.raises(RuntimeError, match="7 at flat index 3"):
                metric.compute() if step == "compute" else metric(*labels("cuda"))
            assert metric.compute().isnan()

    def test_without_validation_nothing_is_kept(self) -> None:
        metric = classification.MulticlassAccuracy(5, validate_args=False).cuda()
        assert metric._error_slot == 0
        assert metric(*labels("cuda", 7, -1)).item() == 1.0
        assert metric.compute().item() == 1.0
        syncfree.check_errors()

    def test_validation_switched_on(self) -> None:
        metric = classification.MulticlassAccuracy(5, validate_args=False).cuda()
        metric.validate_args = True
        metric.update(*labels("cuda", 7))
        torch.cuda.synchronize()
        assert functional.multiclass_accuracy(*labels("cuda"), 5).item() == 1
        with pytest.raises(RuntimeError, match=r"7 at flat index 3.*Metric: MulticlassAccuracy"):
            metric.update(*labels("cuda"))

    def test_samplewise(self) -> None:
        metric = classification.MulticlassAccuracy(5, multidim_average="samplewise").cuda()
        preds, target = (x.reshape(4, 5) for x in labels("cuda", 7))
        metric.update(preds, preds)
        metric.update(preds, target)
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="7 at flat index 3"):
            metric.compute()
        assert metric.compute().isnan().all()

    def test_states_know_nothing_of_it(self) -> None:
        metric, _ = self.spoiled()
        metric.persistent(True)
        assert list(metric.state_dict()) == list(metric.metric_state) == ["tp", "fp", "tn", "fn"]
        assert sum(int(state.sum()) for state in metric.metric_state.values()) == 38 * 5
        with pytest.raises(RuntimeError, match="7 at flat index 3"):
            syncfree.check_errors()

    def test_replays_keep_counting_them(self) -> None:
        metric = classification.MulticlassAccuracy(5).cuda()
        preds, target = labels("cuda")
        metric.update(preds, target)
        metric.reset()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            metric.update(preds, target)
            line = current_line() - 1
        graph.replay()
        target[2] = 11
        graph.replay()
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match=rf"11 at flat index 2.*line {line}\."):
            metric.compute()
        metric.reset()
        target[2] = 2
        graph.replay()
        assert metric.compute().item() == 1

    def test_compiled_calls_raise_too(self) -> None:
        torch._dynamo.reset()
        metric = classification.MulticlassAccuracy(5).cuda()
        step = torch.compile(metric.update, fullgraph=True)
        step(*labels("cuda", 7))
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="7 at flat index 3"):
            step(*labels("cuda"))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: syncfree.MulticlassAccuracy(num_class=5), "num_class"),
        (lambda: syncfree.MulticlassAccuracy(5, means="micro"), "means"),
        (lambda: syncfree.PeakSignalNoiseRatio(datarange=1.0), "datarange"),
        (lambda: syncfree.StructuralSimilarityIndexMeasure(datarange=1.0), "datarange"),
    ],
)
def test_a_misspelled_keyword_is_named(make: Callable[[], Any], name: str) -> None:
    """And not what is missing for it."""
    with pytest.raises(ValueError, match=f"Unexpected keyword arguments: `{name}`"):
        make()


@pytest.mark.parametrize("make", [syncfree.MulticlassAccuracy, syncfree.PeakSignalNoiseRatio])
def test_a_keyword_of_a_newer_torchmetrics_is_no_mistake(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another argument is wrong, that is what is told."""
    init = Metric.__init__

    def newer(self: Any, *, of_later: bool = False, **kwargs: Any) -> None:
        init(self, **kwargs)

    monkeypatch.setattr(Metric, "__init__", newer)
    make(3, of_later=True)
    for number in (-1, "3"):
        with pytest.raises((TypeError, ValueError), match=r"`(num_classes|data_range)`"):
            make(number, of_later=True)
        with pytest.raises(ValueError, match=r"Unexpected keyword arguments: `of_late`$"):
            make(number, of_later=True, of_late=True)


def test_an_update_that_raises_does_not_count() -> None:
    metric = classification.BinaryAccuracy()
    with pytest.raises(RuntimeError, match="expected only the following values"):
        metric.update(torch.rand(3), torch.tensor([0, 1, 2]))
    assert metric.update_count == 0
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        metric.compute()
