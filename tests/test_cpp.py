"""C++ programs find the installed package, build against it, and compute what Python computes."""

from __future__ import annotations

import pytest
import torch

from cpp_programs import same_bits
from syncfree import functional as F
from syncfree.functional.classification import (
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)

REDUCTIONS = {"none": 0, "elementwise_mean": 1, "sum": 2}
AVERAGES = {"micro": 0, "macro": 1, "weighted": 2, "none": 3}
OK, NEEDS_SCRATCH = 0, 5


def images(device, *shape, dtype=torch.float32, layout=None):
    """Two batches; `layout` is channels_last or a step by which the width is strided."""
    shape = shape or (3, 3, 40, 37)
    width = shape[-1] * (layout if isinstance(layout, int) else 1)
    pair = torch.rand(2, *shape[:-1], width, dtype=torch.float64)
    if dtype == torch.uint8:
        pair *= 255
    first, second = pair.to(dtype).to(device)
    second = (0.75 * first + 0.25 * second).to(dtype)
    if isinstance(layout, int):
        return first[..., ::layout], second[..., ::layout]
    if layout == "channels_last":
        return tuple(x.to(memory_format=torch.channels_last) for x in (first, second))
    return first, second


def ssim_arguments(gaussian=True, sigma=(1.5,), kernel_size=(11,), reduction=1, valid=False):
    return gaussian, list(sigma), list(kernel_size), reduction, valid


def one_or_each(entries):
    return entries[0] if len(entries) == 1 else entries


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dim", [(), (0,), (1, -1), (1, 2, 3)], ids=str)
def test_psnr(ops, device, reduction, dim):
    preds, target = images(device)
    ours = ops.psnr(preds, target, [1.0], list(dim), REDUCTIONS[reduction], 10.0)
    assert same_bits(ours, F.peak_signal_noise_ratio(preds, target, 1.0, 10.0, reduction, dim))


@pytest.mark.parametrize("layout", ["channels_last", 3])
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.float16),
        (torch.uint8, torch.uint8),
        (torch.int64, torch.float32),
        (torch.float64, torch.bool),
    ],
    ids=str,
)
def test_psnr_of_other_dtypes_and_layouts(ops, device, dtypes, layout):
    preds, target = (x.to(t) for x, t in zip(images(device, layout=layout), dtypes, strict=True))
    for dim in [[], [1, 2, 3]]:
        ours = ops.psnr(preds, target, [0.1, 0.9], dim, 0, 2.0)
        assert same_bits(
            ours, F.peak_signal_noise_ratio(preds, target, (0.1, 0.9), 2.0, "none", dim)
        )


@pytest.mark.parametrize("layout", [None, "channels_last", 2])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8], ids=str
)
def test_ssim(ops, device, dtype, layout):
    preds, target = images(device, dtype=dtype, layout=layout)
    for name, code in REDUCTIONS.items():
        ours = ops.ssim(preds, target, [255.0], *ssim_arguments(reduction=code))
        assert same_bits(
            ours,
            F.structural_similarity_index_measure(preds, target, data_range=255.0, reduction=name),
        )


@pytest.mark.parametrize(("dtype", "data_range"), [(torch.float32, 1.0), (torch.uint8, 255.0)])
def test_rows_from_the_last_up(ops, device, dtype, data_range):
    """At a size from which on the CUDA kernel reads rows as vectors."""
    preds, target = images(device, 1, 1, 513, 516, dtype=dtype)
    turned = F.structural_similarity_index_measure(
        preds.flip(2), target.flip(2), data_range=data_range
    )
    assert same_bits(ops.bottom_up_ssim(preds, target, data_range), turned)


@pytest.mark.parametrize("data_range", [1.0, (0.2, 0.7), None], ids=str)
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 3, 24, 31), {"gaussian": False, "kernel_size": (7,)}),
        ((2, 1, 33, 24), {"sigma": (0.8, 1.5)}),
        ((2, 1, 33, 24), {"gaussian": False, "kernel_size": (3, 9)}),
        ((1, 2, 12, 17, 21), {"sigma": (0.5, 1.0, 1.5), "kernel_size": (5, 5, 13)}),
    ],
    ids=str,
)
def test_ssim_windows_and_map(ops, device, shape, window, data_range):
    preds, target = images(device, *shape)
    given = data_range if isinstance(data_range, tuple) else [data_range] * (data_range is not None)
    ours = ops.ssim_with_map(preds, target, list(given), *ssim_arguments(reduction=0, **window))
    python = F.structural_similarity_index_measure(
        preds,
        target,
        gaussian_kernel=window.get("gaussian", True),
        sigma=one_or_each(window.get("sigma", (1.5,))),
        kernel_size=one_or_each(window.get("kernel_size", (11,))),
        reduction="none",
        data_range=data_range,
        return_full_image=True,
    )
    assert same_bits(ours[0], python[0])
    assert same_bits(ours[1], python[1])


def test_valid_windows(ops, device):
    preds, target = images(device)
    ours = ops.ssim_with_map(preds, target, [1.0], *ssim_arguments(valid=True))
    python = F.structural_similarity_index_measure(
        preds, target, data_range=1.0, return_full_image=True, preset="wang"
    )
    assert same_bits(ours[0], python[0])
    assert same_bits(ours[1], python[1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("data_range", [1.0, None], ids=str)
def test_ms_ssim(ops, device, reduction, data_range):
    preds, target = images(device, 2, 3, 177, 190)
    betas = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
    given = [] if data_range is None else [data_range]
    ours = ops.ms_ssim(preds, target, given, list(betas), 1, REDUCTIONS[reduction])
    assert same_bits(
        ours,
        F.multiscale_structural_similarity_index_measure(
            preds, target, data_range=data_range, betas=betas, reduction=reduction
        ),
    )


@pytest.mark.parametrize("reduction", ["none", "elementwise_mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_image_quality(ops, device, dtype, reduction):
    preds, target = images(device, dtype=dtype)
    ours = ops.image_quality(preds, target, [0.0, 0.9], REDUCTIONS[reduction])
    python = F.image_quality(preds, target, (0.0, 0.9), reduction=reduction)
    assert all(same_bits(a, b) for a, b in zip(ours, python, strict=True))


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("samplewise", [False, True])
@pytest.mark.parametrize("top_k", [1, 2])
def test_multiclass(ops, device, average, samplewise, top_k):
    scores = torch.randn(6, 5, 7, device=device)
    target = torch.randint(0, 5, (6, 7), device=device)
    ours = ops.multiclass(scores, target, 5, AVERAGES[average], top_k, samplewise, 3, None)
    python = multiclass_accuracy(
        scores,
        target,
        num_classes=5,
        average=average,
        top_k=top_k,
        multidim_average="samplewise" if samplewise else "global",
        ignore_index=3,
    )
    assert same_bits(ours, python)


def test_labels(ops, device):
    preds, target = torch.randint(0, 9, (2, 50), device=device)
    ours = ops.multiclass(preds, target, 0, 0, 1, False, None, None)
    assert same_bits(ours, multiclass_accuracy(preds, target, average="micro"))


@pytest.mark.parametrize("samplewise", [False, True])
def test_binary_and_multilabel(ops, device, samplewise):
    scores = torch.randn(6, 4, 5, device=device)
    target = torch.randint(0, 2, (6, 4, 5), device=device)
    multidim = "samplewise" if samplewise else "global"
    ours = ops.binary(scores, target, 0.4, samplewise, None)
    assert same_bits(ours, binary_accuracy(scores, target, 0.4, multidim_average=multidim))
    for average, code in AVERAGES.items():
        ours = ops.multilabel(scores, target, 4, code, 0.4, samplewise, None)
        python = multilabel_accuracy(
            scores, target, 4, 0.4, average=average, multidim_average=multidim
        )
        assert same_bits(ours, python)


def test_bad_labels(ops, device):
    scores, bad = torch.randn(4, 3, device=device), torch.zeros((), dtype=torch.int64).to(device)
    target = torch.tensor([0, 7, 2, -1], device=device)
    if device == "cpu":
        with pytest.raises(RuntimeError, match="7 at flat index 1, the first of 2"):
            ops.multiclass(scores, target, 3, 0, 1, False, None, bad)
    else:
        assert ops.multiclass(scores, target, 3, 0, 1, False, None, bad).isnan()
    assert bad.item() == 2


def test_tensors_that_do_not_fit(ops, device):
    x = torch.rand(2, 3, 32, 32, device=device)
    for preds, target, message in [
        (x, x[:1], "same shape"),
        (x, x.to(torch.complex64), r"expected a tensor of float16.* at::abs"),
        (x, x.to(torch.uint16), r"expected a tensor of float16.* Convert it"),
        (x, x.to("meta"), "on the CPU or on CUDA, but got meta"),
        (x.long(), x.long(), "floating dtype or uint8"),
        (x[0], x[0], r"\(B, C, H, W\)"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            ops.ssim(preds, target, [1.0], *ssim_arguments())
    with pytest.raises(RuntimeError, match="at most 8 dimensions"):
        ops.psnr(*[x.reshape(2, 1, 1, 1, 1, 3, 1, 32, 32)] * 2, [1.0], [], 1, 10.0)
    negated = torch.view_as_complex(torch.rand(2, 3, 32, 32, 2, device=device)).conj().imag
    with pytest.raises(RuntimeError, match=r"resolve_neg\(\)"):
        ops.ssim(negated, x, [1.0], *ssim_arguments())
    with pytest.raises(IndexError, match="out of range"):
        ops.psnr(x, x, [1.0], [4], 1, 10.0)


def test_scratch_of_the_caller(ops, device):
    preds, target = images(device, 2, 3, 64, 64)
    expected = F.structural_similarity_index_measure(preds, target, data_range=1.0)
    value = torch.empty((), device=device)
    code, message, bytes_needed = ops.core_ssim(preds, target, value, None)
    assert (code, message) == (OK, "")
    assert same_bits(value, expected)
    assert bytes_needed == 0 if device == "cpu" else 0 < bytes_needed < 1 << 20
    if device == "cuda":
        # Any content, any alignment.
        scratch = torch.full((bytes_needed + 1,), 255, dtype=torch.uint8, device=device)[1:]
        value.fill_(-1)
        assert ops.core_ssim(preds, target, value, scratch)[0] == OK
        assert same_bits(value, expected)
        code, message, _ = ops.core_ssim(preds, target, value, scratch[:16])
        assert code == NEEDS_SCRATCH
        assert f"at least {bytes_needed} bytes" in message


@pytest.mark.needs_cuda
def test_current_stream_without_a_wait(ops):
    preds, target = images("cuda", 2, 3, 200, 180)
    betas = [0.5, 0.5]
    calls = [
        lambda x: ops.psnr(x, target, [1.0], [1, 2, 3], 0, 10.0),
        lambda x: ops.ssim(x, target, [], *ssim_arguments()),
        lambda x: ops.ms_ssim(x, target, [1.0], betas, 1, 1),
        lambda x: ops.image_quality(x, target, [1.0], 0)[0],
        lambda x: ops.multiclass(x.flatten(2), labels, 3, 1, 1, False, None, None),
    ]
    labels = torch.randint(0, 3, (2, 200 * 180), device="cuda")
    expected = [call(preds) for call in calls]
    late = torch.zeros_like(preds)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for call in calls:  # the first call of a stream finds its scratch memory
            call(preds)
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)
        late.copy_(preds)
        torch.cuda.set_sync_debug_mode("error")
        try:
            values = [call(late) for call in calls]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert not side.query(), "a call waited for the stream"
    side.synchronize()
    assert all(same_bits(a, b) for a, b in zip(values, expected, strict=True))


@pytest.mark.needs_cuda
def test_graph_capture(ops):
    preds, target = images("cuda", 2, 3, 64, 80)
    other, _ = images("cuda", 2, 3, 64, 80)
    value = torch.empty((), device="cuda")
    # Kernels are loaded by the first call.
    ops.ms_ssim(preds, target, [1.0], [0.5, 0.5], 1, 1)
    ops.ssim(preds, target, [1.0], *ssim_arguments())
    expected = [
        F.structural_similarity_index_measure(other, target, data_range=1.0),
        F.multiscale_structural_similarity_index_measure(
            other, target, data_range=1.0, betas=(0.5, 0.5)
        ),
    ]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        code, message, _ = ops.core_ssim(preds, target, value, None)
        captured = [
            ops.ssim(preds, target, [1.0], *ssim_arguments()),
            ops.ms_ssim(preds, target, [1.0], [0.5, 0.5], 1, 1),
        ]
    assert code == NEEDS_SCRATCH
    assert "captures a graph" in message
    preds.copy_(other)
    for _ in range(3):
        graph.replay()
        assert all(same_bits(a, b) for a, b in zip(captured, expected, strict=True))


@pytest.mark.needs_two_gpus
def test_device_of_the_tensors(ops):
    preds, target = images("cuda:1")
    ours = ops.ssim(preds, target, [1.0], *ssim_arguments())
    assert torch.cuda.current_device() == 0
    assert same_bits(ours, F.structural_similarity_index_measure(preds, target, data_range=1.0))
    with pytest.raises(RuntimeError, match="on the device of `preds`"):
        ops.ssim(preds, target.to("cuda:0"), [1.0], *ssim_arguments())
