"""What the image functions take and refuse, beside TorchMetrics; on meta tensors too."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchmetrics
import torchmetrics.functional.image as tm
from packaging.version import Version
from torch import Tensor

import syncfree.functional as sf

FUNCTIONS = {
    "psnr": (sf.peak_signal_noise_ratio, tm.peak_signal_noise_ratio),
    "ssim": (sf.structural_similarity_index_measure, tm.structural_similarity_index_measure),
}


def images(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.rand(shape or (2, 3, 16, 16)), torch.rand(shape or (2, 3, 16, 16))


def error_of(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ssim", {"kernel_size": (11,)}),
        ("ssim", {"kernel_size": [11]}),
        ("ssim", {"kernel_size": ()}),
        ("ssim", {"kernel_size": (11, 11, 11)}),
        ("ssim", {"kernel_size": 10}),
        ("ssim", {"kernel_size": [11, 4]}),
        ("ssim", {"return_full_image": True, "return_contrast_sensitivity": True}),
        ("psnr", {"dim": 4}),
        ("psnr", {"dim": -5}),
        ("psnr", {"dim": (1, 7)}),
        ("psnr", {"dim": (1, 1)}),
        ("psnr", {"dim": [-3, 1]}),
    ],
)
def test_torchmetrics_error_and_words(name: str, arguments: dict) -> None:
    ours, theirs = (
        error_of(lambda f=f: f(*images(), data_range=1.0, **arguments)) for f in FUNCTIONS[name]
    )
    assert type(ours) is type(theirs)
    assert str(ours) == str(theirs)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        # TorchMetrics counts `sigma` right, but names `kernel_size`.
        ("ssim", {"sigma": (1.5,)}),
        ("ssim", {"sigma": [1.5]}),
        ("ssim", {"sigma": (1.5, 1.5, 1.5)}),
        ("ssim", {"sigma": (1.5,), "gaussian_kernel": False}),
        ("ssim", {"sigma": 0}),
        ("ssim", {"sigma": (1.5, -1.0)}),
        ("ssim", {"sigma": None}),
        ("ssim", {"sigma": ("a", "b")}),
        ("ssim", {"sigma": 1j}),
        ("ssim", {"kernel_size": None}),
        ("ssim", {"kernel_size": "11"}),
        ("ssim", {"kernel_size": (None, 1)}),
        ("ssim", {"kernel_size": 11.0, "gaussian_kernel": False}),
        ("ssim", {"k1": None}),
        ("ssim", {"k2": "0.03"}),
        ("ssim", {"data_range": [0.0, 1.0]}),
        ("ssim", {"data_range": "1"}),
        ("ssim", {"reduction": "mean"}),
        pytest.param(
            "psnr",
            {"data_range": None},
            marks=pytest.mark.skipif(
                Version(torchmetrics.__version__) < Version("1.8.1"),
                reason="TorchMetrics before 1.8.1 took the range from the data",
            ),
        ),
        ("psnr", {"data_range": [0.0, 1.0]}),
        ("psnr", {"data_range": 1j}),
        ("psnr", {"data_range": torch.tensor([1.0, 2.0])}),
        ("psnr", {"data_range": np.ones(2)}),
        ("psnr", {"data_range": ("0", "1")}),
        ("psnr", {"data_range": (None, 1)}),
        ("psnr", {"base": "10"}),
        ("psnr", {"reduction": "mean"}),
        ("psnr", {"reduction": []}),
        ("psnr", {"dim": True}),
        ("psnr", {"dim": 1.0}),
        ("psnr", {"dim": (1, 2.0)}),
        ("psnr", {"dim": (1, None)}),
        ("psnr", {"dim": {1, 2}}),
        ("psnr", {"dim": range(1, 3)}),
        ("psnr", {"dim": torch.tensor([1, 2])}),
        ("psnr", {"dim": np.array([1, 2])}),
    ],
)
def test_torchmetrics_error(name: str, arguments: dict) -> None:
    ours, theirs = (
        error_of(lambda f=f: f(*images(), **{"data_range": 1.0, **arguments}))
        for f in FUNCTIONS[name]
    )
    assert type(ours) is type(theirs)
    argument = next(iter(arguments))
    assert re.search(f"`{argument}`.* (Got|got|has dimension) ", str(ours))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shape_errors_come_first(name: str) -> None:
    preds, target = images()
    arguments = {"sigma": (1.5,)} if name == "ssim" else {"dim": 9}
    with pytest.raises(RuntimeError, match="expected to have the same shape"):
        FUNCTIONS[name][0](preds, target[:1], data_range=1.0, **arguments)


@pytest.mark.parametrize(
    ("name", "given", "plain"),
    [
        ("psnr", {"data_range": 2}, {"data_range": 2.0}),
        ("psnr", {"data_range": True}, {"data_range": 1.0}),
        ("psnr", {"data_range": np.float32(2)}, {"data_range": 2.0}),
        ("psnr", {"data_range": np.array(2)}, {"data_range": 2.0}),
        ("psnr", {"data_range": torch.tensor(2)}, {"data_range": 2.0}),
        ("psnr", {"data_range": torch.tensor([2.0])}, {"data_range": 2.0}),
        (
            "psnr",
            {"data_range": (torch.tensor(0.25), torch.tensor(0.75))},
            {"data_range": (0.25, 0.75)},
        ),
        ("psnr", {"data_range": (np.int64(0), 1)}, {"data_range": (0.0, 1.0)}),
        ("psnr", {"base": 2}, {"base": 2.0}),
        ("psnr", {"base": torch.tensor(2.0)}, {"base": 2.0}),
        ("psnr", {"dim": [1, 2]}, {"dim": (1, 2)}),
        ("psnr", {"dim": torch.Size([1, 2])}, {"dim": (1, 2)}),
        ("psnr", {"dim": (np.int64(1), np.int64(2))}, {"dim": (1, 2)}),
        ("ssim", {"data_range": 2}, {"data_range": 2.0}),
        ("ssim", {"data_range": torch.tensor(2.0)}, {"data_range": 2.0}),
        ("ssim", {"sigma": 2}, {"sigma": 2.0}),
        ("ssim", {"sigma": [2, np.float32(1)]}, {"sigma": (2.0, 1.0)}),
        ("ssim", {"sigma": torch.tensor(0.75)}, {"sigma": 0.75}),
        (
            "ssim",
            {"gaussian_kernel": 0, "kernel_size": np.int64(7)},
            {"gaussian_kernel": False, "kernel_size": 7},
        ),
        (
            "ssim",
            {"gaussian_kernel": None, "kernel_size": [7, torch.tensor(5)]},
            {"gaussian_kernel": False, "kernel_size": (7, 5)},
        ),
        ("ssim", {"k1": 1, "k2": np.float64(0.5)}, {"k1": 1.0, "k2": 0.5}),
    ],
)
def test_numbers_of_every_kind(name: str, given: dict, plain: dict) -> None:
    preds, target = images()
    ours, theirs = FUNCTIONS[name]
    common = {} if "data_range" in given else {"data_range": 1.0}
    if name == "psnr":
        common["reduction"] = "none"
    got = ours(preds, target, **common, **given)
    assert torch.equal(got, ours(preds, target, **common, **plain))
    torch.testing.assert_close(got, theirs(preds, target, **common, **given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("psnr", "data_range"),
        ("psnr", "base"),
        ("psnr", "dim"),
        ("ssim", "data_range"),
        ("ssim", "sigma"),
        ("ssim", "kernel_size"),
        ("ssim", "k1"),
    ],
)
def test_numbers_elsewhere_are_refused(name: str, argument: str) -> None:
    """The host would wait for them."""
    number = torch.tensor(1, device="meta")
    with pytest.raises(TypeError, match=f"`{argument}` in host memory, but got a tensor on meta"):
        FUNCTIONS[name][0](*images(), **{"data_range": 1.0, argument: number})


@pytest.mark.parametrize("bad", [None, 1.0, "images", [1.0], np.ones((2, 3, 16, 16))], ids=type)
@pytest.mark.parametrize(
    "call",
    [
        lambda p, t: sf.peak_signal_noise_ratio(p, t, 1.0, dim=(1, 2, 3)),
        lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=1.0),
        lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=1.0, sigma=(1.5,)),
        lambda p, t: sf.image_quality(p, t, 1.0),
        lambda p, t: sf.safe_divide(p, t),
    ],
    ids=["psnr", "ssim", "ssim-sigma", "image-quality", "safe-divide"],
)
def test_only_tensors(call: Callable[[object, object], object], bad: object) -> None:
    x = images()[0]
    kind = "None" if bad is None else type(bad).__name__
    for preds, target, name in (
        (bad, x, "preds|num"),
        (x, bad, "target|denom"),
        (x.clone().requires_grad_(), bad, "target|denom"),
        (bad, bad, "preds|num"),
    ):
        with pytest.raises(TypeError, match=f"`({name})` to be a tensor, but got {kind}"):
            call(preds, target)


def psnr(**options: object) -> Callable[[Tensor, Tensor], object]:
    return lambda p, t: sf.peak_signal_noise_ratio(p, t, 1.0, **options)


def ssim(**options: object) -> Callable[[Tensor, Tensor], object]:
    options = {"data_range": 1.0, **options}
    return lambda p, t: sf.structural_similarity_index_measure(p, t, **options)


def quality(**options: object) -> Callable[[Tensor, Tensor], object]:
    return lambda p, t: sf.image_quality(p, t, 1.0, **options)


BAD_CALLS = [
    (psnr(), (2, 3, 4), (2, 3, 5)),
    (psnr(), (2, 3, 4), (2, 3)),
    (psnr(dim=3), (2, 3, 4), (2, 3, 4)),
    (psnr(dim=(0, -3)), (2, 3, 4), (2, 3, 4)),
    (psnr(dim=0), (), ()),
    (sf.safe_divide, (2, 3), (4,)),
    (ssim(), (2, 3, 16, 16), (2, 3, 16, 17)),
    (ssim(), (3, 16, 16), (3, 16, 16)),
    (ssim(), (1, 1, 16, 5), (1, 1, 16, 5)),
    (ssim(), (2, 3, 0, 0), (2, 3, 0, 0)),
    (ssim(), (1, 1, 5, 16, 16), (1, 1, 5, 16, 16)),
    (ssim(kernel_size=(11, 11, 11)), (1, 1, 16, 16), (1, 1, 16, 16)),
    (ssim(kernel_size=4), (1, 1, 16, 16), (1, 1, 16, 16)),
    (ssim(sigma=-0.5), (1, 1, 16, 16), (1, 1, 16, 16)),
    (ssim(sigma=3.0, return_full_image=True), (1, 1, 8, 16), (1, 1, 8, 16)),
    (
        ssim(gaussian_kernel=False, kernel_size=17, return_contrast_sensitivity=True),
        (1, 1, 16, 8),
        (1, 1, 16, 8),
    ),
    (ssim(kernel_size=(5, 5, 3)), (1, 1, 16, 16, 4), (1, 1, 16, 16, 4)),
    (quality(), (2, 3, 16, 16), (1, 3, 16, 16)),
    (quality(sigma=(1.5, 0.0)), (2, 3, 16, 16), (2, 3, 16, 16)),
]


@pytest.mark.parametrize(("call", "preds", "target"), BAD_CALLS)
def test_meta_and_compiled_say_the_same(
    call: Callable[[Tensor, Tensor], object], preds: tuple[int, ...], target: tuple[int, ...]
) -> None:
    real = torch.rand(preds), torch.rand(target)
    want = error_of(lambda: call(*real))
    got = error_of(lambda: call(*(t.to("meta") for t in real)))
    assert type(got) is type(want)
    assert str(got) == str(want)
    torch._dynamo.reset()
    compiled = error_of(lambda: torch.compile(call, fullgraph=True, backend="eager")(*real))
    assert str(want) in str(compiled)


@pytest.mark.parametrize("call", [psnr(), ssim(), quality(), sf.safe_divide])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16], ids=str)
def test_meta_refuses_the_same_dtypes(
    call: Callable[[Tensor, Tensor], object], dtype: torch.dtype
) -> None:
    good = torch.ones(1, 1, 16, 16)
    names = ("num", "denom") if call is sf.safe_divide else ("preds", "target")
    pairs = (good.to(dtype), good), (good, good.to(dtype))
    for name, real in zip(names, pairs, strict=True):
        want = error_of(lambda real=real: call(*real))
        got = error_of(lambda real=real: call(*(t.to("meta") for t in real)))
        assert type(got) is type(want) is RuntimeError
        before = f"Expected `{name}` to be a tensor of float16"
        after = "Take its `.abs()`, `.real`" if dtype.is_complex else "Convert it with `.to("
        assert before in str(want) and before in str(got)  # noqa: PT018
        assert after in str(want) and after in str(got)  # noqa: PT018


def test_meta_refuses_masks() -> None:
    good = torch.ones(1, 1, 16, 16, device="meta")
    for name, pair in (("preds", (good.bool(), good)), ("target", (good, good.bool()))):
        with pytest.raises(RuntimeError, match=f"Expected `{name}` to be images of a floating"):
            ssim()(*pair)


@pytest.mark.parametrize(
    "call", [psnr(dim=(1, 2, 3), reduction="none"), ssim(return_full_image=True), quality()]
)
def test_compiled_for_any_size(call: Callable[[Tensor, Tensor], object]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 3, 16, 16), (5, 1, 31, 20), (3, 3, 40, 17)):
        preds, target = images(*shape)
        torch.testing.assert_close(compiled(preds, target), call(preds, target), rtol=0, atol=0)
