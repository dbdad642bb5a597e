"""The accuracy classes beside TorchMetrics' over all options, and bad labels met by them."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics import Metric

import syncfree
from accuracy_cases import make_elements, make_labels
from deferred_cases import current_line, labels
from syncfree import classification, functional

Batch = tuple[Tensor, Tensor]

AVERAGES = st.sampled_from(["micro", "macro", "weighted", "none", None])
SHAPES = st.lists(st.integers(1, 4), max_size=2)
FLOATS = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])


def pair(name: str, options: dict[str, Any], device: str) -> tuple[Metric, Metric]:
    ours, theirs = (getattr(module, name)(**options) for module in (classification, tm))
    return ours.to(device), theirs.to(device)


def follow(name: str, options: dict[str, Any], batches: list[Batch], device: str) -> None:
    """The same stream through both: batch values, states, and what is left at the end."""
    ours, theirs = pair(name, options, device)
    for i, (preds, target) in enumerate(batches):
        if i % 3 == 1:
            ours.update(preds, target)
            theirs.update(preds, target)
        else:
            torch.testing.assert_close(
                ours(preds, target), theirs(preds, target), rtol=1e-6, atol=1e-7
            )
    for state, want in theirs.metric_state.items():
        torch.testing.assert_close(getattr(ours, state), want, rtol=0, atol=0)
    torch.testing.assert_close(ours.compute(), theirs.compute(), rtol=1e-6, atol=1e-7)


def draw_shared(data: st.DataObject, samplewise: bool, ignore: st.SearchStrategy) -> dict[str, Any]:
    return {
        "multidim_average": "samplewise" if samplewise else "global",
        "ignore_index": data.draw(ignore, "ignore_index"),
        "validate_args": data.draw(st.booleans(), "validate_args"),
    }


def draw_sizes(data: st.DataObject, least: int) -> list[int]:
    return data.draw(st.lists(st.integers(least, 9), min_size=1, max_size=5), "sizes")


@pytest.mark.fuzz
@given(data=st.data())
def test_multiclass_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    classes = data.draw(st.integers(2, 40), "classes")
    samplewise = data.draw(st.booleans(), "samplewise")
    shape = data.draw(SHAPES, "shape") or ([2] if samplewise else [])
    with_scores = data.draw(st.booleans(), "scores")
    top_k = data.draw(st.integers(1, classes), "top_k") if with_scores else 1
    dtype = data.draw(FLOATS, "dtype")
    options = {
        "num_classes": classes,
        "top_k": top_k,
        "average": data.draw(AVERAGES, "average"),
        **draw_shared(data, samplewise, st.none() | st.integers(0, classes - 1) | st.just(-100)),
    }
    batches = []
    for n in draw_sizes(data, 1):
        target = make_labels((n, *shape), classes, options["ignore_index"], device)
        if with_scores:  # distinct ones, as topk does not say which of equal ones it takes
            preds = torch.rand(n, classes, *shape).argsort(1).to(dtype).to(device)
            hit = torch.rand(target.shape, device=device) < 0.4
            target = torch.where(hit, preds.argmax(1), target)
        else:
            preds = make_labels((n, *shape), classes, None, device)
        batches.append((preds, target))
    follow("MulticlassAccuracy", options, batches, device)


@pytest.mark.fuzz
@given(data=st.data())
def test_binary_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    samplewise = data.draw(st.booleans(), "samplewise")
    shape = data.draw(SHAPES, "shape") or ([2] if samplewise else [])
    kind = data.draw(st.sampled_from(["labels", "probabilities", "logits"]), "kind")
    dtype = torch.int64 if kind == "labels" else data.draw(FLOATS, "dtype")
    options = {
        "threshold": data.draw(st.floats(0, 1), "threshold"),
        **draw_shared(data, samplewise, st.sampled_from([None, 0, 1, -1])),
    }
    batches = [
        (
            make_elements(kind, dtype, (n, *shape), device),
            make_labels((n, *shape), 2, options["ignore_index"], device),
        )
        for n in draw_sizes(data, 2 if samplewise else 1)  # of one TorchMetrics drops a dimension
    ]
    follow("BinaryAccuracy", options, batches, device)


@pytest.mark.fuzz
@given(data=st.data())
def test_multilabel_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    samplewise = data.draw(st.booleans(), "samplewise")
    labels = data.draw(st.integers(2, 9), "labels")
    shape = [labels, *(data.draw(SHAPES, "shape") or ([2] if samplewise else []))]
    kind = data.draw(st.sampled_from(["labels", "probabilities", "logits"]), "kind")
    dtype = torch.int64 if kind == "labels" else data.draw(FLOATS, "dtype")
    options = {
        "num_labels": labels,
        "threshold": data.draw(st.floats(0, 1), "threshold"),
        "average": data.draw(AVERAGES, "average"),
        **draw_shared(data, samplewise, st.sampled_from([None, 0, 1, -1])),
    }
    batches = [
        (
            make_elements(kind, dtype, (n, *shape), device),
            make_labels((n, *shape), 2, options["ignore_index"], device),
        )
        for n in draw_sizes(data, 2 if samplewise else 1)
    ]
    follow("MultilabelAccuracy", options, batches, device)


# ---- Making one.


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("binary",), "BinaryAccuracy"),
        (("MULTICLASS", 0.5, 3), "MulticlassAccuracy"),
        (("Multilabel", 0.3, None, 4), "MultilabelAccuracy"),
    ],
)
def test_task_names_the_class(arguments: tuple, kind: str) -> None:
    ours, theirs = (module.Accuracy(*arguments) for module in (classification, tm))
    assert type(ours) is getattr(classification, kind)
    for name in ("threshold", "num_classes", "num_labels", "average", "top_k", "ignore_index"):
        assert getattr(ours, name, None) == getattr(theirs, name, None)
    assert issubclass(classification.Accuracy, tm.Accuracy)


BAD_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("Accuracy", {"task": "ternary"}, "Invalid Classification: expected one of"),
    ("Accuracy", {"task": "multiclass"}, "`num_classes` must be type `int`"),
    ("Accuracy", {"task": "multiclass", "num_classes": 3, "top_k": None}, "`top_k` must be type"),
    ("Accuracy", {"task": "multilabel"}, "`num_labels` must be type `int`"),
    ("MulticlassAccuracy", {}, "`num_classes` can only be `None`"),
    ("MulticlassAccuracy", {"num_classes": 1}, "`num_classes` to be an integer larger than 1"),
    ("MulticlassAccuracy", {"num_classes": 3, "top_k": 4}, "`top_k` to be smaller or equal"),
    ("MulticlassAccuracy", {"num_classes": 3, "top_k": 0}, "`top_k` to be an integer larger than"),
    ("MulticlassAccuracy", {"num_classes": 3, "average": "mean"}, "`average` to be one of"),
    ("MultilabelAccuracy", {"num_labels": 3, "threshold": 2.0}, "`threshold` to be a float"),
    ("MultilabelAccuracy", {"num_labels": 1}, "`num_labels` to be an integer larger than 1"),
    ("BinaryAccuracy", {"multidim_average": "all"}, "`multidim_average` to be one of"),
    ("BinaryAccuracy", {"ignore_index": 1.5}, "`ignore_index` to either be `None` or an integer"),
    ("BinaryAccuracy", {"nonsense": 1}, "Unexpected keyword arguments: `nonsense`"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(classification, name)(**options)


@pytest.mark.parametrize("value", [np.int64(2), np.uint8(2), np.array(2)], ids=repr)
def test_integers_of_numpy_as_top_k(value: Any, device: str) -> None:
    preds, target = torch.rand(16, 5, device=device), torch.arange(16, device=device) % 5
    ours, theirs = pair("MulticlassAccuracy", {"num_classes": 5, "top_k": value}, device)
    torch.testing.assert_close(ours(preds, target), theirs(preds, target))
    got = functional.multiclass_accuracy(preds, target, 5, top_k=value)
    torch.testing.assert_close(got, ours.compute())
    with pytest.raises(ValueError, match=r"Convert it with `int\(top_k\)`"):
        classification.MulticlassAccuracy(5, top_k=torch.tensor(2))


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"average": "macro"}, {"average": "micro"}),
        ({"average": "micro"}, {"average": "none"}),
        ({"average": "micro"}, {"top_k": 2}),
    ],
    ids=str,
)
def test_options_changed_before_the_first_batch(
    options: dict[str, Any], changed: dict[str, Any], device: str
) -> None:
    """The states take the size that is wanted; later they cannot, and nothing changes."""
    preds, target = torch.rand(16, 5, device=device), torch.arange(16, device=device) % 5
    late, fresh = (
        classification.MulticlassAccuracy(5, **{**options, **more}).to(device)
        for more in ({}, changed)
    )
    before = late(preds, target)
    ((name, value),) = changed.items()
    with pytest.raises(ValueError, match=rf"`{name}` to be changed before the first.*`reset\(\)`"):
        setattr(late, name, value)
    torch.testing.assert_close(late(preds, target), before)
    late.reset()
    setattr(late, name, value)
    torch.testing.assert_close(late(preds, target), fresh(preds, target))
    late.reset()
    late.update(preds, target)
    torch.testing.assert_close(late.compute(), fresh.compute())
    torch.testing.assert_close(late.metric_state, fresh.metric_state)


@pytest.mark.parametrize("came_by", ["merge_state", "load_state_dict"])
def test_options_changed_after_counts_that_no_update_made(came_by: str, device: str) -> None:
    full, late = (classification.MulticlassAccuracy(5, average="micro") for _ in range(2))
    full.persistent(True)
    full.update(torch.rand(16, 5), torch.arange(16) % 5)
    full, late = full.to(device), late.to(device)
    getattr(late, came_by)(full if came_by == "merge_state" else full.state_dict())
    with pytest.raises(ValueError, match=r"`average` to be changed before the first"):
        late.average = "macro"
    torch.testing.assert_close(late.metric_state, full.metric_state)
    late.reset()
    late.average = "macro"
    assert late.tp.shape == (5,)


def test_changed_options_do_not_make_the_host_wait() -> None:
    tier = 2 if torch.cuda.is_available() else 0
    with syncfree.detect_syncs(tier=tier):
        metric = classification.MulticlassAccuracy(5).to("cuda")
        with syncfree.detect_syncs(tier=tier) as report:
            metric.average = "micro"
    assert report.count == 0, str(report)
    assert metric.tp.shape == (1,)


@pytest.mark.parametrize("made", ["global", "samplewise"])
def test_samples_are_not_set_apart_later(made: str, device: str) -> None:
    metric = classification.BinaryAccuracy(multidim_average=made).to(device)
    labels = torch.tensor([[0, 1], [1, 1]], device=device)
    before = metric(labels, labels)
    with pytest.raises(ValueError, match=r"`multidim_average` to stay as it was made"):
        metric.multidim_average = "global" if made == "samplewise" else "samplewise"
    assert metric.multidim_average == made
    torch.testing.assert_close(metric(labels, labels), before)


# ---- Bad inputs.


def test_inputs_that_do_not_fit_change_nothing(device: str) -> None:
    metric = classification.MulticlassAccuracy(5, average="micro").to(device)
    preds, target = torch.rand(8, 5, device=device), torch.zeros(8, device=device).long()
    metric.update(preds, target)
    for call in (metric, metric.update):
        with pytest.raises(TypeError, match="`preds` to be a tensor, but got ndarray"):
            call(np.zeros((8, 5)), target)
        with pytest.raises(ValueError, match=r"equal to number of classes, but got shape"):
            call(preds[:, :4], target)
        with pytest.raises(RuntimeError, match="on the same device"):
            call(preds, target.to("meta"))
        with pytest.raises(RuntimeError, match="same device"):
            call(preds.to("meta"), target.to("meta"))
        with pytest.raises(TypeError):
            call(preds)
    assert metric.update_count == 1
    assert sum(int(state) for state in metric.metric_state.values()) == 40


def test_no_gradient_and_none_asked_for(device: str) -> None:
    metric = classification.MulticlassAccuracy(5).to(device)
    preds = torch.rand(8, 5, device=device, requires_grad=True)
    value = metric(preds, preds.argmax(1))
    assert value.item() == 1
    assert not value.requires_grad


def test_cpu_raises_in_the_call_itself() -> None:
    for average in ("micro", "macro"):
        metric = classification.MulticlassAccuracy(5, average=average)
        metric.update(*labels("cpu"))
        before = copy.deepcopy(metric.metric_state)
        for call in (metric, metric.update):
            with pytest.raises(RuntimeError, match=r"7 at flat index 3, the first of 2.*\[0, 4\]"):
                call(*labels("cpu", 7, -1))
        torch.testing.assert_close(metric.metric_state, before)
        assert metric.compute().item() == 1
        assert metric.update_count == 1


@pytest.mark.parametrize("samplewise", [False, True])
def test_empty_batches(samplewise: bool, device: str) -> None:
    mode = "samplewise" if samplewise else "global"
    empty = torch.zeros(0, 4, device=device).long()
    for metric in (
        classification.BinaryAccuracy(multidim_average=mode).to(device),
        classification.MulticlassAccuracy(3, multidim_average=mode).to(device),
    ):
        value = metric(empty, empty)
        assert value.shape == ((0,) if samplewise else ())
        assert not value.any()
        metric.update(empty, empty)
        assert not metric.compute().any()


# ---- Bad labels on CUDA.


@pytest.fixture
def nothing_left() -> None:
    if torch.cuda.is_initialized():
        gc.collect()
        syncfree.check_errors()


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
