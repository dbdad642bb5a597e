"""What to write instead of a wait."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torchmetrics

from syncfree.detector.suggestions import suggest


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"api": "Tensor.item", "source": 'print(f"loss {loss.item()}")'}, "syncfree.deferred"),
        (
            {"api": "aten::_to_copy", "source": "metric.load_state_dict(saved)"},
            "sync-ok: checkpoint",
        ),
        (
            {"api": "Tensor.item", "source": "losses.append(loss.item())"},
            "append `tensor.detach()`",
        ),
        ({"api": "Tensor.item", "source": "if loss.item() > 3:"}, "torch.where(condition"),
        (
            {"api": "torch.cuda.synchronize", "source": "torch.cuda.synchronize(); x.unique()"},
            "CUDA events",
        ),
        ({"api": "linalg.inv", "source": "a = linalg.inv(b) + x.unique()[0]"}, "sync-ok: reason"),
        ({"api": "cudaStreamSynchronize", "source": "a = x.unique()"}, "neighbors"),
        ({"api": "torch.where", "source": "y = torch.where(m)"}, "nonzero_static"),
        ({"api": "Deferred.value", "source": "v = shown.value()"}, "`.latest()`"),
        ({"api": "Tensor.new_tensor", "source": "y = x.new_tensor([1])"}, "torch.full"),
        ({"api": "Tensor.item", "source": "assert loss.item() < 9"}, "torch._assert_async("),
        (
            {"api": "Tensor.__bool__", "source": ").all()", "statement": "assert (x > 0 ).all()"},
            "torch._assert_async(",
        ),
        ({"api": "Tensor.item", "source": "x = loss.item() * 2"}, "0-d tensor"),
        ({"api": "aten::_local_scalar_dense", "source": "c = w[b]"}, "x[i.reshape(1)]"),
        ({"api": "Tensor.__index__", "source": "k = w[:b]"}, "torch.arange(len(x)"),
        ({"api": "Tensor.__int__", "source": "d = w[int(b)] * 2"}, "x[i.reshape(1)]"),
        ({"api": "Tensor.item", "source": "x = losses[i].item() * 2"}, "arithmetic, comparisons"),
        ({"api": "Tensor.item", "source": "x = losses[0] * y"}, "arithmetic, comparisons"),
        ({"api": "Tensor.__float__", "source": "x = y + outputs['loss']"}, "arithmetic"),
        (
            {
                "api": "Tensor.item",
                "source": "step, loss.item()))",
                "statement": "print('{} {:.3f}'.format( step, loss.item()))",
            },
            "append `tensor.detach()`",
        ),
        (
            {"api": "Tensor.item", "source": "n = x.item() if torch.is_tensor(x) else x"},
            "0-d tensor",
        ),
        ({"api": "Tensor.item", "source": "n = 1 if x.item() > 2 else 3"}, "torch.where"),
        ({"api": "Tensor.__bool__", "source": "if mask.any():"}, "torch.where(condition"),
        ({"api": "Tensor.__float__", "source": "writer.add_scalar('a', float(x))"}, "deferred"),
        ({"api": "Tensor.tolist", "source": "logger.info(x.tolist())"}, "deferred"),
        ({"api": "Tensor.tolist", "source": "a, b = x.tolist()"}, "Go on with the tensor:"),
        ({"api": "aten::masked_select", "source": "x[mask].mean()"}, "torch.where(mask, x, 0)"),
        ({"api": "aten::masked_fill_", "source": "x.masked_fill_(m, y)"}, "where(mask, value"),
        ({"api": "aten::segment_reduce"}, "unsafe=True"),
        ({"api": "aten::nonzero", "source": "i = x.nonzero()"}, "nonzero_static"),
        ({"api": "aten::unique_dim", "source": "x.unique()"}, "scatter_add_"),
        ({"api": "aten::_unique2", "source": "x.unique()"}, "scatter_add_"),
        ({"api": "aten::bincount", "source": "torch.bincount(x)"}, "scatter_add_"),
        ({"api": "aten::histc", "source": "torch.histc(x)"}, "`min=` and `max=`"),
        ({"api": "cuStreamSynchronize", "source": "n = torch.histc(y)"}, "`min=` and `max=`"),
        ({"api": "aten::repeat_interleave.Tensor"}, "output_size="),
        ({"api": "aten::one_hot"}, "num_classes="),
        ({"api": "Tensor.cpu", "source": "a = b.cpu()", "direction": "d2h"}, "syncfree.deferred"),
        ({"api": "Tensor.numpy", "source": "a = b.numpy()"}, "Stay on the device"),
        (
            {"api": "aten::_to_copy", "source": "x.cuda()", "direction": "h2d"},
            "pin_memory().to(device, non_blocking=True)",
        ),
        (
            {
                "api": "Tensor.to",
                "source": "x.to(device)",
                "direction": "h2d",
                "host_memory": "pinned",
            },
            "The source is pinned",
        ),
        (
            {"api": "cuMemcpyHtoD_v2", "source": "torch.tensor(3, device=d)", "direction": "h2d"},
            "`device=`",
        ),
        (
            {"api": "torch.tensor", "source": "n = tensor(3, device=d)", "direction": "h2d"},
            "`device=`",
        ),
        ({"api": "Tensor.new", "source": "n = x.new([3])", "direction": "h2d"}, "`device=`"),
        (
            {"api": "Tensor.new_tensor", "source": "n = x.new_tensor(3)", "direction": "h2d"},
            "`device=`",
        ),
        (
            {"api": "Tensor.item", "source": "total += loss.item()  # and not the mean"},
            "total += loss.detach()",
        ),
        # The sum of what a graph hangs on would keep all graphs.
        ({"api": "Tensor.item", "source": "losses.update(loss.item(), n)"}, "without its graph"),
        ({"api": "Tensor.__float__", "source": "total += float(loss) * n"}, "without its graph"),
        ({"api": "Tensor.item", "source": "losses[k] = loss.item()"}, "append `tensor.detach()`"),
        ({"api": "Tensor.item", "source": "losses += [loss.item()]"}, "append `tensor.detach()`"),
        ({"api": "Tensor.item", "source": "kept['loss'] = loss.item()"}, "append `tensor.detach()"),
        ({"api": "Tensor.__bool__", "source": "best = max(acc1, best)"}, "torch.maximum(a, b)"),
        ({"api": "Tensor.__bool__", "source": "if max(a, b) > 3:"}, "torch.where(condition"),
        ({"api": "Tensor.__bool__", "source": "if x.max() > 3:"}, "torch.where(condition"),
        ({"api": "Tensor.__bool__", "source": "if is_best:"}, "once an epoch"),
        (
            {
                "api": "Tensor.to",
                "source": "net.to(device)",
                "direction": "h2d",
                "host_memory": "pageable",
                "one_time": True,
            },
            "nothing to do where this runs before the loop",
        ),
        (
            {
                "api": "aten::index",
                "source": "x[[0, 2]]",
                "direction": "h2d",
                "host_memory": "pageable",
                "one_time": True,
            },
            "The index is on the host",
        ),
        (
            {
                "api": "Tensor.to",
                "source": "ema.update_parameters(net)",
                "direction": "h2d",
                "host_memory": "pageable",
                "reader": "/torch/optim/swa_utils.py:AveragedModel.update_parameters",
            },
            "torch keeps a value on the host",
        ),
        ({"api": "torch.cuda.synchronize"}, "wait_stream"),
        ({"api": "Event.query"}, "A loop on `query()`"),
        ({"api": "print", "source": "print(x)"}, "Printing a tensor"),
        ({"api": "Tensor.__format__"}, "Printing a tensor"),
        ({"api": "GradScaler.step"}, "fused=True"),
        # What torch reads for itself is not what the line could leave out.
        ({"api": "Tensor.item", "source": "scaler.step(optimizer)"}, "fused=True"),
        ({"api": "Tensor.item", "source": "self.grad_scaler.step(o)"}, "fused=True"),
        ({"api": "Tensor.item", "source": "scaler.step(o); n = loss.item()"}, "0-d tensor"),
        (
            {
                "api": "Tensor.__bool__",
                "source": "clip_grad_norm_(p, 1.0, error_if_nonfinite=True)",
            },
            "error_if_nonfinite=False",
        ),
        ({"api": "Tensor.__bool__", "source": "if clip_grad_norm_(p, 1.0) > 3:"}, "torch.where"),
        (
            {
                "api": "torch.cuda.synchronize",
                "source": "torch.cuda.synchronize(); torch.cuda.empty_cache()",
            },
            "wait_stream",
        ),
        (
            {
                "api": "torch.cuda.empty_cache",
                "source": "torch.cuda.synchronize(); torch.cuda.empty_cache()",
            },
            "torch's allocator",
        ),
        ({"api": "cuCtxSynchronize", "source": "torch.cuda.empty_cache()"}, "torch's allocator"),
        (
            {
                "api": "Tensor.__bool__",
                "source": "policy = Categorical(logits=scores)",
                "reader": "/torch/distributions/distribution.py:Distribution.__init__",
            },
            "validate_args=False",
        ),
        (
            {
                "api": "Tensor.__bool__",
                "source": "y = self.encoder(x, mask=self.mask)",
                "reader": "/torch/nn/modules/transformer.py:_detect_is_causal_mask",
            },
            "is_causal=True",
        ),
        (
            {
                "api": "Tensor.item",
                "source": "self._scale_and_step(loss)",
                "reader": "/torch/amp/grad_scaler.py:GradScaler._maybe_opt_step",
            },
            "fused=True",
        ),
        (
            {
                "api": "Tensor.item",
                "source": "kept = scaler.state_dict()",
                "reader": "/torch/amp/grad_scaler.py:GradScaler.get_scale",
            },
            "torch needs the value on the host itself",
        ),
        (
            {
                "api": "Tensor.__float__",
                "source": "schedule.step(loss)",
                "reader": "/torch/optim/lr_scheduler.py:ReduceLROnPlateau.step",
            },
            "torch needs the value on the host itself",
        ),
        (
            {
                "api": "Tensor.item",
                "source": "scaler.step(o); n = loss.item()",
                "reader": "/torch/amp/grad_scaler.py:GradScaler._maybe_opt_step",
            },
            "0-d tensor",
        ),
        ({"api": "aten::_nested_tensor_from_mask", "reader": "x.py:y"}, "enable_nested_tensor"),
        (
            {"api": "aten::index", "source": "x[chosen]", "direction": "h2d"},
            "The index is on the host",
        ),
        ({"api": "clip_grad_norm_"}, "error_if_nonfinite"),
        ({"api": "cuMemFree_v2"}, "empty_cache"),
        ({"api": "ncclBarrier"}, "barrier"),
        # The driver's names do not say what was written: operators and the line do.
        (
            {"api": "cuStreamSynchronize", "op_stack": ("aten::nonzero", "aten::index")},
            "Keep the full shape",
        ),
        ({"api": "aten::index", "op_stack": ("aten::index",)}, "Keep the full shape"),
        (
            {"api": "cudaMalloc", "op_stack": ("aten::empty", "aten::index")},
            "torch's allocator",
        ),
        (
            {
                "api": "cuMemcpyHtoDAsync_v2",
                "op_stack": ("aten::copy_", "aten::to", "aten::index"),
                "direction": "h2d",
            },
            "pin_memory",
        ),
        (
            {
                "api": "cuStreamSynchronize",
                "op_stack": ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"),
                "source": "if x.any():",
            },
            "Decide on the device",
        ),
        ({"api": "cuStreamSynchronize", "source": "n = torch.bincount(y)"}, "scatter_add_"),
        ({"api": "cuStreamSynchronize", "source": "log(loss.item())"}, "deferred"),
        ({"api": "torch sync debug mode", "source": "y = x.cpu()"}, "Stay on the device"),
        ({"api": "torch sync debug mode", "source": "y = x.to('cuda')"}, "non_blocking=True"),
        ({"api": "torch.cuda.Event.synchronize", "source": "x = shown.value()"}, ".ready()"),
        ({"api": "cuCtxSynchronize", "source": "solve(a)"}, "sync-ok"),
        # A checkpoint has to wait; what is read for it has not.
        ({"api": "UntypedStorage.cpu", "direction": "d2h"}, 'allow_sync("checkpoint")'),
        (
            {"api": "cuMemcpyDtoHAsync_v2", "source": "torch.save(net, f)", "direction": "d2h"},
            "# sync-ok: checkpoint",
        ),
        ({"api": "torch sync debug mode", "source": "torch.save(net, f)"}, "# sync-ok: checkpoint"),
        ({"api": "Tensor.item", "source": "torch.save({'l': loss.item()}, f)"}, "0-d tensor"),
    ],
    ids=str,
)
def test_suggestions(fields: dict, part: str) -> None:
    assert part in suggest(**fields)


@pytest.mark.parametrize(
    ("of", "fields", "part"),
    [
        (
            torchmetrics.functional.classification.multiclass_stat_scores,
            {"api": "aten::index", "op_stack": ["aten::nonzero"], "source": "preds = preds[idx]"},
            "`syncfree.classification` has the same class",
        ),
        (
            torchmetrics.functional.classification.multiclass_accuracy,
            {"api": "Tensor.item", "source": "x.item()"},
            "`syncfree.classification` has the same class",
        ),
        (
            torchmetrics.MeanMetric,
            {"api": "Tensor.__bool__", "source": "if nans.any() or nans_weight.any():"},
            '`nan_strategy="disable"`',
        ),
    ],
)
def test_waits_of_torchmetrics_are_not_for_the_user_to_rewrite(
    of: Any, fields: dict, part: str
) -> None:
    assert part in suggest(**fields, file=inspect.getsourcefile(of))


def test_the_advice_for_aggregators_helps() -> None:
    """TorchMetrics' own option; without NaN it changes no value."""
    means = [torchmetrics.MeanMetric(nan_strategy=each) for each in ("warn", "disable")]
    for mean in means:
        mean.update(torch.tensor([1.0, 2.0]))
    assert means[0].compute() == means[1].compute() == 1.5


@pytest.mark.parametrize(
    "of",
    [
        torchmetrics.image.PeakSignalNoiseRatio,
        torchmetrics.image.MultiScaleStructuralSimilarityIndexMeasure,
        torchmetrics.functional.image.peak_signal_noise_ratio,
        torchmetrics.functional.image.structural_similarity_index_measure,
    ],
)
def test_image_metrics_are_advised_to_become_ours(of: Any) -> None:
    file = inspect.getsourcefile(of)
    source = "n = tensor(3, device=d)"
    found = suggest(api="torch.tensor", source=source, file=file)
    assert "`syncfree.image` has the class of the same name" in found
    for other in (torchmetrics.image.UniversalImageQualityIndex, torchmetrics.Metric):
        file = inspect.getsourcefile(other)
        assert "`device=`" in suggest(api="torch.tensor", source=source, file=file)
