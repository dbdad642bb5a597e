"""What callers hand over by mistake, and what they are then told to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import one_hot

import syncfree as sf_classes
import syncfree.functional as sf
from syncfree import image
from syncfree.classification import MulticlassAccuracy
from syncfree.losses import L1SSIMLoss, MSSSIMLoss, SSIMLoss, l1_ssim_loss, ssim_loss

BETAS = (0.4, 0.6)
Measure = Callable[[Tensor, Tensor], object]


def psnr(a: Tensor, b: Tensor, data_range: object = 1.0) -> Tensor:
    return sf.peak_signal_noise_ratio(a, b, data_range=data_range)


def ssim(a: Tensor, b: Tensor, data_range: object = 1.0) -> Tensor:
    return sf.structural_similarity_index_measure(a, b, data_range=data_range)


def ms_ssim(a: Tensor, b: Tensor, data_range: object = 1.0) -> Tensor:
    return sf.multiscale_structural_similarity_index_measure(
        a, b, data_range=data_range, betas=BETAS
    )


def quality(a: Tensor, b: Tensor, data_range: object = 1.0) -> sf.ImageQuality:
    return sf.image_quality(a, b, data_range)


def multiclass(a: Tensor, b: Tensor) -> Tensor:
    return sf.multiclass_accuracy(a.flatten(2)[:, 0], b.flatten(2)[:, 0, 0].long(), a[0, 0].numel())


IMAGE_FUNCTIONS = [psnr, ssim, ms_ssim, quality]


def shown_once(action: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        action()
    return [each for each in caught if "is uint8" in str(each.message)]


# ---- Tensors that do not lie in memory by strides.


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("function", [sf.binary_accuracy, psnr, sf.safe_divide])
def test_sparse(function: Measure, layout: torch.layout, device: str) -> None:
    dense = torch.eye(4, device=device)
    sparse = dense.to_sparse() if layout is torch.sparse_coo else dense.to_sparse_csr()
    names = ("num", "denom") if function is sf.safe_divide else ("preds", "target")
    for name, pair in zip(names, ((sparse, dense), (dense, sparse)), strict=True):
        with pytest.raises(TypeError, match=rf"`{name}` .* dense .* {layout}\. .*`\.to_dense\(\)`"):
            function(*pair)
    function(sparse.to_dense(), dense)


@pytest.mark.parametrize("measure", [*IMAGE_FUNCTIONS, SSIMLoss()])
def test_sparse_images(measure: Measure, device: str) -> None:
    dense = torch.rand(2, 3, 48, 48, device=device)
    for pair in ((dense.to_sparse(), dense), (dense.to_sparse().requires_grad_(), dense)):
        with pytest.raises(TypeError, match=r"Expected `preds` to be a dense tensor"):
            measure(*pair)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("measure", IMAGE_FUNCTIONS)
def test_quantized(measure: Measure) -> None:
    dense = torch.rand(2, 3, 48, 48)
    quantized = torch.quantize_per_tensor(dense, 1 / 255, 0, torch.quint8)
    with pytest.raises(TypeError, match=r"`target` .* quantized .*`\.dequantize\(\)`"):
        measure(dense, quantized)
    measure(dense, quantized.dequantize())


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested(layout: torch.layout, device: str) -> None:
    parts = [torch.rand(3, 4, device=device), torch.rand(2, 4, device=device)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    with pytest.raises(TypeError, match=r"`preds` .* nested tensor\. .*`preds\.unbind\(\)`"):
        psnr(nested, nested)
    assert [psnr(a, a) for a in nested.unbind()] == [torch.inf, torch.inf]


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: sf_classes.StructuralSimilarityIndexMeasure(a, b),
        lambda a, b: sf_classes.PeakSignalNoiseRatio(a, b),
        lambda a, b: sf_classes.MulticlassAccuracy(a, b),
        lambda a, b: sf_classes.MulticlassAccuracy(5, top_k=a),
        lambda a, b: sf_classes.MulticlassAccuracy(5, ignore_index=b),
        lambda a, b: sf_classes.BinaryAccuracy(a, b),
    ],
)
def test_a_batch_given_for_an_option(make: Measure, device: str) -> None:
    a = torch.rand(8, 3, 16, 16, device=device)
    with pytest.raises((TypeError, ValueError)) as caught:
        make(a, a)
    assert "got a tensor of shape [8, 3, 16, 16]. Options are given where" in str(caught.value)


def test_nothing_given_for_a_batch(device: str) -> None:
    a = torch.rand(2, 3, 16, 16, device=device)
    with pytest.raises(TypeError, match=r"`target` to be a tensor, but got None\. Look"):
        psnr(a, None)


# ---- Dtypes.


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("function", [*IMAGE_FUNCTIONS, multiclass, sf.safe_divide])
def test_a_dtype_is_told_with_its_argument(
    function: Measure, dtype: torch.dtype, device: str
) -> None:
    good = torch.ones(2, 3, 48, 48, device=device)
    names = ("num", "denom") if function is sf.safe_divide else ("preds", "target")
    pairs = ((good.to(dtype), good), (good, good.to(dtype)))
    for name, pair in zip(names, pairs, strict=True):
        if function is multiclass and name == "target":
            continue  # makes integers of it
        with pytest.raises(RuntimeError, match=f"Expected `{name}` to be a tensor of float16"):
            function(*pair)


def test_a_target_of_labels_is_told_too(device: str) -> None:
    scores, labels = torch.rand(4, 3, device=device), torch.zeros(4, device=device)
    with pytest.raises(RuntimeError, match="Expected `target` to be a tensor of float16"):
        sf.multiclass_accuracy(scores, labels.to(torch.complex64), 3)
    nine = torch.ones((1,) * 9 + (2,), device=device)
    with pytest.raises(RuntimeError, match="Expected `target` to be a tensor of float16"):
        psnr(nine, nine.to(torch.complex64))


# ---- One-hot targets.

HOT = r"If `target` is one-hot, pass `target\.argmax\(1\)`"


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5, 2)], ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool], ids=str)
def test_one_hot_targets(shape: tuple[int, ...], kind: torch.dtype, device: str) -> None:
    scores = torch.rand(shape, device=device)
    labels = torch.randint(0, 3, (shape[0], *shape[2:]), device=device)
    hot = one_hot(labels, 3).movedim(-1, 1).to(kind)
    metric = MulticlassAccuracy(3).to(device)
    functions: list[Measure] = [
        lambda p, t: sf.multiclass_accuracy(p, t, 3),
        lambda p, t: sf.multiclass_accuracy(p, t, 3, top_k=2),
        lambda p, t: sf.multiclass_accuracy(p, t, 3, top_k=[1, 2]),
        lambda p, t: sf.accuracy(p, t, task="multiclass", num_classes=3),
    ]
    for call in [*functions, metric.update, metric]:
        with pytest.raises(ValueError, match=HOT):
            call(scores, hot)
        call(scores, hot.long().argmax(1))
    for call in functions:
        with pytest.raises(ValueError, match=HOT):
            call(scores.to("meta"), hot.to("meta"))
    for place in (device, "meta"):
        with pytest.raises(ValueError, match=HOT):
            sf.multiclass_accuracy(scores.argmax(1).to(place), hot.to(place), 3)


def test_labels_alone_are_not_called_one_hot(device: str) -> None:
    for place in (device, "meta"):
        labels = torch.zeros(4, dtype=torch.int64, device=place)
        with pytest.raises(ValueError, match=r"`top_k` is a list, but got labels .*\[4\]\.$"):
            sf.multiclass_accuracy(labels, labels, 3, top_k=[1, 2])


def test_labels_of_as_many_columns_as_classes(device: str) -> None:
    labels = torch.tensor([[0, 1, 2], [2, 1, 0]], device=device)
    assert sf.multiclass_accuracy(labels, labels, 3) == 1
    # Floats are taken for scores, unless nothing is to be checked.
    with pytest.raises(ValueError, match=r"If `preds` are labels, convert them with `\.long\(\)`"):
        sf.multiclass_accuracy(labels.float(), labels, 3)
    assert sf.multiclass_accuracy(labels.float(), labels, 3, validate_args=False) == 1
    assert sf.multiclass_accuracy(labels.float(), labels, 4) == 1


def test_a_column_of_labels(device: str) -> None:
    scores, labels = torch.rand(4, 3, device=device), torch.tensor([0, 1, 2, 2], device=device)
    for place in (device, "meta"):
        with pytest.raises(ValueError, match=r"pass `target\.squeeze\(1\)`"):
            sf.multiclass_accuracy(scores.to(place), labels[:, None].to(place), 3)


# ---- Shapes.


@pytest.mark.parametrize(
    ("function", "shape", "advice"),
    [
        (sf.binary_accuracy, (4, 1), r"Pass `preds\.squeeze\(1\)`"),
        (sf.binary_accuracy, (4, 2), "for `multiclass_accuracy`"),
        (lambda p, t: sf.multilabel_accuracy(p, t, 3), (4, 3), "for `multiclass_accuracy`"),
    ],
)
def test_scores_of_classes_beside_labels(
    function: Measure, shape: tuple[int, ...], advice: str, device: str
) -> None:
    for place in (device, "meta"):
        preds, target = torch.rand(shape, device=place), torch.zeros(4, device=place).long()
        with pytest.raises(RuntimeError, match=f"expected to have the same shape.*{advice}"):
            function(preds, target)
        with pytest.raises(RuntimeError, match=r"expected to have the same shape.*\[3\]\.$"):
            function(preds, target[:3])


def test_channels_last(device: str) -> None:
    for place in (device, "meta"):
        images = torch.rand(1, 32, 32, 3, device=place)
        with pytest.raises(RuntimeError, match=r"moved with `\.movedim\(-1, 1\)`"):
            ssim(images, images)
        ssim(images.movedim(-1, 1), images.movedim(-1, 1))
        with pytest.raises(RuntimeError, match=r"a smaller window\.$"):
            ssim(images[:, :, :5].movedim(-1, 1), images[:, :, :5].movedim(-1, 1))
        empty = torch.rand(2, 3, 0, 0, device=place)  # of which nothing is to be moved
        with pytest.raises(RuntimeError, match=r"a smaller window\.$"):
            ssim(empty, empty)


def test_images_smaller_than_the_window(device: str) -> None:
    """The option that sets the window's size is named: not `kernel_size` for a Gaussian."""

    def ssim_of(images: Tensor, **options: object) -> object:
        return sf.structural_similarity_index_measure(images, images, data_range=1.0, **options)

    for place in (device, "meta"):
        images = torch.rand(1, 1, 5, 5, device=place)
        with pytest.raises(RuntimeError, match=r"or, by a smaller `sigma`, a smaller window"):
            ssim_of(images, kernel_size=3)
        with pytest.raises(RuntimeError, match=r"or, by a smaller `kernel_size`, a smaller window"):
            ssim_of(images, gaussian_kernel=False, kernel_size=11)
        with pytest.raises(RuntimeError, match=r"of 11 taps .* Use larger images\.$"):
            ssim_of(images, preset="wang")
        ssim_of(images, sigma=0.5)
        volumes = torch.rand(1, 1, 32, 32, 4, device=place)
        with pytest.raises(RuntimeError, match=r"dimension 4 .* by a smaller `kernel_size`, a"):
            ssim_of(volumes)
        ssim_of(volumes, kernel_size=3, sigma=0.5)
        with pytest.raises(RuntimeError, match=r"dimension 2 .* by a smaller `sigma`, a"):
            ssim_of(volumes.movedim(-1, 2))


def test_an_image_alone(device: str) -> None:
    image = torch.rand(16, 16, device=device)
    with pytest.raises(
        ValueError, match=r"Add the axes of batch and channel with `\[None, None\]`"
    ):
        ssim(image, image)
    ssim(image[None, None], image[None, None])


@pytest.mark.parametrize("weight", [None, "half", [0.5]], ids=str)
def test_a_weight_that_is_no_number(weight: object) -> None:
    with pytest.raises(TypeError, match="Expected argument `weight` to be a number, but got"):
        L1SSIMLoss(weight=weight)  # type: ignore[arg-type]


# ---- Bytes under the range of floats.


@pytest.mark.parametrize("data_range", [1.0, 1, (0.0, 1.0), (-1.0, 1.0)], ids=str)
@pytest.mark.parametrize("measure", IMAGE_FUNCTIONS)
def test_bytes_under_a_range_of_floats(
    measure: Callable[..., object], data_range: object, device: str
) -> None:
    octets = torch.randint(0, 256, (2, 2, 3, 48, 48), device=device, dtype=torch.uint8)

    def twice() -> None:
        for _ in range(2):
            measure(*octets, data_range)

    (warning,) = shown_once(twice)
    assert "`preds` is uint8" in str(warning.message)
    assert "Pass `data_range=255.0`, or divide the images by 255" in str(warning.message)
    assert Path(warning.filename) == Path(__file__)
    assert not shown_once(lambda: measure(*octets, 255.0))
    assert not shown_once(lambda: measure(*octets.float(), data_range))


@pytest.mark.parametrize(
    "metric",
    [
        image.PeakSignalNoiseRatio(1.0),
        image.PeakSignalNoiseRatio(1.0, dim=(1, 2, 3)),
        image.StructuralSimilarityIndexMeasure(data_range=1.0),
        image.MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0, betas=BETAS),
    ],
)
def test_classes_warn_once_a_line(metric: torch.nn.Module, device: str) -> None:
    metric = metric.to(device)
    octets = torch.randint(0, 256, (2, 2, 3, 48, 48), device=device, dtype=torch.uint8)

    def several() -> None:
        for _ in range(2):
            metric.update(*octets)
        metric(*octets)

    first, second = shown_once(several)
    assert second.lineno == first.lineno + 1
    assert Path(first.filename) == Path(__file__)


def test_bytes_beside_floats_in_psnr() -> None:
    floats = torch.rand(1, 3, 16, 16)
    (warning,) = shown_once(lambda: psnr(floats, (floats * 255).byte()))
    assert "`target` is uint8" in str(warning.message)


def test_the_warning_is_of_the_module_that_calls() -> None:
    """By whose name filters choose, as those of `python -W` and of pytest."""
    octets = torch.zeros(2, 1, 3, 16, 16, dtype=torch.uint8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__)
        psnr(*octets)
    assert not caught


@pytest.mark.parametrize("measure", [psnr, ssim])
def test_compiled_it_stays_one_graph(measure: Measure) -> None:
    octets = torch.randint(0, 256, (2, 1, 3, 16, 16), dtype=torch.uint8)
    torch._dynamo.reset()
    compiled = torch.compile(measure, fullgraph=True, backend="eager")
    assert not shown_once(lambda: compiled(*octets))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled(*octets) == measure(*octets)


@pytest.mark.parametrize("loss", [SSIMLoss(255.0), L1SSIMLoss(data_range=255.0), MSSSIMLoss(255.0)])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_losses_want_floats(loss: torch.nn.Module, dtype: str, device: str) -> None:
    octets = torch.randint(0, 256, (2, 1, 3, 180, 180), device=device)
    octets = octets.to(getattr(torch, dtype))
    with pytest.raises(TypeError, match=f"{dtype}, which has no gradient") as caught:
        loss(*octets)
    assert "`preds.float() / 255`" in str(caught.value)
    loss(*octets.float())


# ---- Transforms.

DIFFERENTIABLE: list[Measure] = [psnr, ssim, ms_ssim, ssim_loss, l1_ssim_loss, sf.safe_divide]


@pytest.mark.parametrize("measure", DIFFERENTIABLE)
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev], ids=["grad", "jacrev"])
def test_torch_func_is_told_what_there_is(
    transform: Callable[..., Measure], measure: Measure, device: str
) -> None:
    pair = torch.rand(2, 1, 3, 48, 48, device=device)
    with pytest.raises(NotImplementedError, match=r"torch\.func.*torch\.autograd\.grad"):
        transform(measure)(*pair)


@pytest.mark.parametrize("measure", DIFFERENTIABLE)
def test_forward_mode_is_refused_instead_of_zero(measure: Measure, device: str) -> None:
    pair = torch.rand(2, 1, 3, 48, 48, device=device)
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="forward mode"):
            measure(forward_ad.make_dual(pair[0], pair[1]), pair[1])
        measure(*pair)


@pytest.mark.parametrize("call", ["update", "forward"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PeakSignalNoiseRatio", {}),
        ("PeakSignalNoiseRatio", {"dim": (1, 2, 3)}),
        ("PeakSignalNoiseRatio", {"preset": "skimage"}),
        ("StructuralSimilarityIndexMeasure", {}),
        ("MultiScaleStructuralSimilarityIndexMeasure", {"betas": (0.4, 0.6)}),
        ("MultiScaleStructuralSimilarityIndexMeasure", {"reduction": "none", "betas": (0.4, 0.6)}),
    ],
)
def test_forward_mode_is_refused_by_classes(
    name: str, options: dict[str, Any], call: str, device: str
) -> None:
    metric = getattr(image, name)(data_range=1.0, **options).to(device)
    pair = torch.rand(2, 1, 3, 48, 48, device=device)
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="forward mode"):
            getattr(metric, call)(forward_ad.make_dual(pair[0], pair[1]), pair[1])
        getattr(metric, call)(*pair)
    assert metric._update_count == 1


def test_a_range_that_wants_a_gradient() -> None:
    pair = torch.rand(2, 1, 3, 48, 48)
    wanted = torch.tensor(1.0, requires_grad=True)
    for function in (psnr, ssim):
        with pytest.raises(TypeError, match="a tensor that requires a gradient"):
            function(*pair, data_range=wanted)


def test_values_under_vmap(device: str) -> None:
    pairs = torch.rand(2, 5, 1, 1, 16, 16, device=device)
    for measure in (psnr, ssim):
        values = torch.func.vmap(measure)(*pairs)
        assert torch.equal(values, torch.stack([measure(*p) for p in pairs.unbind(1)]))
