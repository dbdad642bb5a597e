"""Operations that make the host wait and operations that do not, to judge tier 3 by.

What waits is not written down here but judged on the GPU: an operation that returns while a kernel
which was queued before is still spinning did not wait. Run as a script it judges all operations,
looks what tier 3 says of them, and writes a line of JSON for each.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], object]
Corpus = dict[str, dict[str, Call]]

SPIN_MS = 40.0


def explicit_waits() -> dict[str, Call]:
    x = torch.rand(1000, device="cuda")
    side = torch.cuda.Stream()
    done = torch.cuda.Event()
    done.record()
    timed = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for event in timed:
        event.record()
    torch.cuda.synchronize()

    def record_and_wait(event: torch.cuda.Event) -> None:
        event.record()
        event.synchronize()

    def on_side_and_wait() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.sum()
        side.synchronize()

    def order_streams() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.sum()
        torch.cuda.current_stream().wait_stream(side)

    return {
        "device": lambda: torch.cuda.synchronize(),
        "device by index": lambda: torch.cuda.synchronize(0),
        "current stream": lambda: torch.cuda.current_stream().synchronize(),
        "default stream": lambda: torch.cuda.default_stream().synchronize(),
        "event": lambda: record_and_wait(torch.cuda.Event()),
        "blocking event": lambda: record_and_wait(torch.cuda.Event(blocking=True)),
        "work on a side stream": on_side_and_wait,
        "torch.cuda.cudart": lambda: torch.cuda.cudart().cudaMemGetInfo(0),
        "order of streams": order_streams,
        "one query": lambda: torch.cuda.current_stream().query(),
        "elapsed time of done events": lambda: timed[0].elapsed_time(timed[1]),
        "record": lambda: torch.cuda.Event().record(),
    }


def scalar_reads() -> dict[str, Call]:
    x = torch.rand(1000, device="cuda")
    one = torch.ones((), device="cuda")
    index = torch.tensor(2, device="cuda")
    values = [1, 2, 3, 4]

    def branch() -> int:
        if one > 0:
            return 1
        return 0

    return {
        "item": lambda: one.item(),
        "float": lambda: float(one),
        "int": lambda: int(one),
        "bool": lambda: bool(one),
        "branch": branch,
        "list index": lambda: values[index],
        "slice bound": lambda: x[: index.item()],
        "tolist": lambda: x.tolist(),
        "equal": lambda: torch.equal(x, x),
        "allclose": lambda: torch.allclose(x, x),
        "print": lambda: str(x),
        "format": lambda: f"{one:.3f}",
        "is_nonzero": lambda: torch.is_nonzero(one),
        "any": lambda: (x > 2).any().item(),
        "contains": lambda: 5 in x,
        "max of Python": lambda: max(one, one),
        "sum": lambda: x.sum(),
        "compare": lambda: x > 0.5,
        "isfinite": lambda: torch.isfinite(x).all(),
        "detach": lambda: one.detach(),
        "shape": lambda: x.shape[0] * x.numel(),
    }


def shapes_from_values() -> dict[str, Call]:
    x = torch.rand(1000, device="cuda")
    mask = x > 0.5
    labels = torch.randint(0, 10, (1000,), device="cuda")
    repeats = torch.randint(0, 3, (1000,), device="cuda")
    total = int(repeats.sum())
    some = x[mask]
    target = torch.zeros(10, device="cuda")

    def assign_tensor() -> None:
        x.clone()[mask] = some

    def assign_number() -> None:
        x.clone()[mask] = 0.5

    return {
        "nonzero": lambda: x.nonzero(),
        "argwhere": lambda: torch.argwhere(mask),
        "where of one": lambda: torch.where(mask),
        "mask": lambda: x[mask],
        "masked_select": lambda: torch.masked_select(x, mask),
        "assign tensor by mask": assign_tensor,
        "assign number by mask": assign_number,
        "unique": lambda: torch.unique(labels),
        "unique_consecutive": lambda: torch.unique_consecutive(labels),
        "bincount": lambda: torch.bincount(labels),
        "bincount with minlength": lambda: torch.bincount(labels, minlength=10),
        "repeat_interleave": lambda: torch.repeat_interleave(x, repeats),
        "repeat_interleave of known size": lambda: torch.repeat_interleave(
            x, repeats, output_size=total
        ),
        "one_hot": lambda: torch.nn.functional.one_hot(labels),
        "one_hot with classes": lambda: torch.nn.functional.one_hot(labels, 10),
        "histc": lambda: torch.histc(x, 10),
        "histc with bounds": lambda: torch.histc(x, 10, 0, 1),
        "multinomial": lambda: torch.multinomial(x, 5),
        "topk": lambda: x.topk(5),
        "sort": lambda: x.sort(),
        "where of three": lambda: torch.where(mask, x, 0.0),
        "masked_fill": lambda: x.masked_fill(mask, 0),
        "nonzero_static": lambda: torch.nonzero_static(x, size=10),
        "scatter_add": lambda: target.scatter_add(0, labels, x),
        "index_select": lambda: x.index_select(0, labels),
        "cumsum": lambda: x.cumsum(0),
        "quantile": lambda: x.quantile(0.5),
        "median": lambda: x.median(),
        "randperm": lambda: torch.randperm(1000, device="cuda"),
        "index_put": lambda: target.index_put((labels,), x, accumulate=True),
    }


def host_copies() -> dict[str, Call]:
    x = torch.rand(1000, device="cuda")
    wide = torch.rand(1024, 1024, device="cuda")
    pageable, pinned = torch.rand(1000), torch.rand(1000).pin_memory()
    strided = torch.zeros(1024, 2048).pin_memory()[:, ::2]
    array = pageable.numpy()
    index = torch.tensor([1, 2, 3])
    sizes = {1 << power: torch.zeros(1 << power, dtype=torch.uint8) for power in (12, 16, 20, 24)}
    places = {size: torch.zeros(size, dtype=torch.uint8, device="cuda") for size in sizes}
    pins = {size: sizes[size].pin_memory() for size in sizes}

    def assign(value: object) -> None:
        x[:3] = value

    operations: dict[str, Call] = {
        "cpu": lambda: x.cpu(),
        "to cpu": lambda: x.to("cpu"),
        "to cpu non_blocking": lambda: x.to("cpu", non_blocking=True),
        "numpy": lambda: x.cpu().numpy(),
        "to pinned": lambda: pinned.copy_(x),
        "to pinned non_blocking": lambda: pinned.copy_(x, non_blocking=True),
        "to pageable non_blocking": lambda: pageable.copy_(x, non_blocking=True),
        "to strided pinned non_blocking": lambda: strided.copy_(wide, non_blocking=True),
        "other dtype to pinned": lambda: pinned.copy_(x.double(), non_blocking=True),
        "tensor of a list": lambda: torch.tensor([1.0, 2.0], device="cuda"),
        "tensor of a number": lambda: torch.tensor(1.0, device="cuda"),
        "as_tensor of numpy": lambda: torch.as_tensor(array, device="cuda"),
        "cuda": lambda: pageable.cuda(),
        "cuda non_blocking": lambda: pageable.cuda(non_blocking=True),
        "cuda from pinned": lambda: pinned.cuda(),
        "cuda from pinned non_blocking": lambda: pinned.cuda(non_blocking=True),
        "index by list": lambda: x[[0, 1, 2]],
        "index by host tensor": lambda: x[index],
        "assign a number": lambda: assign(1.0),
        "assign a host tensor": lambda: assign(index.float()),
        "full": lambda: torch.full((10,), 3.0, device="cuda"),
        "fill": lambda: x.fill_(2.0),
        "add a number": lambda: x + 3.0,
        "add a host scalar": lambda: x + torch.tensor(3.0),
        "arange": lambda: torch.arange(10, device="cuda"),
        "linspace": lambda: torch.linspace(0, 1, 10, device="cuda"),
        "device copy": lambda: wide.clone(),
        "save": lambda: torch.save(x, io.BytesIO()),
        "pickle": lambda: pickle.dumps(x),
        "deepcopy": lambda: copy.deepcopy(x),
        "pin_memory": lambda: pageable.pin_memory(),
    }
    for size, place in places.items():
        for kind, source in (("pageable", sizes[size]), ("pinned", pins[size])):
            operations[f"{size} bytes from {kind} non_blocking"] = (
                lambda place=place, source=source: place.copy_(source, non_blocking=True)
            )
    return operations


def linear_algebra() -> dict[str, Call]:
    a = torch.rand(32, 32, device="cuda") + 32 * torch.eye(32, device="cuda")
    s = a @ a.T
    b = torch.rand(32, 4, device="cuda")
    return {
        "inv": lambda: torch.linalg.inv(a),
        "inv_ex": lambda: torch.linalg.inv_ex(a),
        "solve": lambda: torch.linalg.solve(a, b),
        "solve_ex": lambda: torch.linalg.solve_ex(a, b),
        "cholesky": lambda: torch.linalg.cholesky(s),
        "cholesky_ex": lambda: torch.linalg.cholesky_ex(s),
        "inv_ex, checked": lambda: torch.linalg.inv_ex(a, check_errors=True),
        "solve_ex, checked": lambda: torch.linalg.solve_ex(a, b, check_errors=True),
        "cholesky_ex, checked": lambda: torch.linalg.cholesky_ex(s, check_errors=True),
        "lu_factor_ex, checked": lambda: torch.linalg.lu_factor_ex(a, check_errors=True),
        "ldl_factor_ex, checked": lambda: torch.linalg.ldl_factor_ex(s, check_errors=True),
        "searchsorted with a sorter": lambda: torch.searchsorted(b[0], b[0], sorter=b[0].argsort()),
        "eigh": lambda: torch.linalg.eigh(s),
        "eigvalsh": lambda: torch.linalg.eigvalsh(s),
        "svd": lambda: torch.linalg.svd(a),
        "qr": lambda: torch.linalg.qr(a),
        "lu_factor": lambda: torch.linalg.lu_factor(a),
        "det": lambda: torch.linalg.det(a),
        "slogdet": lambda: torch.linalg.slogdet(a),
        "lstsq": lambda: torch.linalg.lstsq(a, b),
        "pinv": lambda: torch.linalg.pinv(a),
        "pinv of a Hermitian": lambda: torch.linalg.pinv(s, hermitian=True),
        "matrix_exp": lambda: torch.matrix_exp(a / 64),
        "matrix_exp of a number": lambda: torch.matrix_exp(a[:1, :1]),
        "matrix_rank": lambda: torch.linalg.matrix_rank(a),
        "norm": lambda: torch.linalg.norm(a),
        "matmul": lambda: a @ b,
    }


def sparse() -> dict[str, Call]:
    dense = torch.eye(100, device="cuda")
    in_pairs = dense.to_sparse()
    index = torch.arange(100, device="cuda").expand(2, 100)
    values = torch.ones(100, device="cuda")
    rows = torch.arange(101, device="cuda")

    def build() -> torch.Tensor:
        return torch.sparse_coo_tensor(index, values, (100, 100), check_invariants=False)

    return {
        "to_sparse": lambda: dense.to_sparse(),
        "to_sparse_csr": lambda: dense.to_sparse_csr(),
        "coalesce": lambda: build().coalesce(),
        "build": build,
        "build without a size": lambda: torch.sparse_coo_tensor(
            index, values, check_invariants=False
        ),
        "build rows without a size": lambda: torch.sparse_csr_tensor(
            rows, rows[:100], values, check_invariants=False
        ),
        "mm": lambda: torch.sparse.mm(in_pairs, dense),
        "to_dense": lambda: in_pairs.to_dense(),
        "sum": lambda: torch.sparse.sum(in_pairs),
    }


def network() -> tuple[torch.nn.Module, torch.Tensor]:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    return net.cuda(), torch.rand(32, 64, device="cuda")


def training() -> dict[str, Call]:
    net, x = network()
    net(x).sum().backward()
    parameters = list(net.parameters())
    kinds: dict[str, torch.optim.Optimizer] = {
        "SGD": torch.optim.SGD(parameters, 0.0, momentum=0.9),
        "Adam": torch.optim.Adam(parameters, 0.0),
        "Adam one by one": torch.optim.Adam(parameters, 0.0, foreach=False),
        "AdamW fused": torch.optim.AdamW(parameters, 0.0, fused=True),
        "Adam capturable": torch.optim.Adam(parameters, 0.0, capturable=True),
        "RMSprop": torch.optim.RMSprop(parameters, 0.0),
    }
    operations: dict[str, Call] = {
        f"step of {name}": lambda one=one: one.step() for name, one in kinds.items()
    }
    fused_scaler, plain_scaler = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
    clip = torch.nn.utils.clip_grad_norm_

    def scaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = net(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def hugging_face_like() -> float:
        optimizer = kinds["AdamW fused"]
        loss = net(x).square().mean()
        loss.backward()
        clip(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.item()

    layer = torch.nn.TransformerEncoderLayer(64, 2, 64, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).cuda().eval()
    padding = torch.arange(8, device="cuda").expand(4, 8) > 5

    def encode(padding: torch.Tensor | None) -> torch.Tensor:
        with torch.no_grad():
            return encoder(x.view(4, 8, 64), src_key_padding_mask=padding)

    logged: dict[str, torch.Tensor] = {}

    def lightning_like() -> None:
        optimizer = kinds["Adam"]

        def closure() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss = net(x).square().mean()
            loss.backward()
            logged["loss"] = loss.detach()
            return loss

        optimizer.step(closure)

    def lightning_like_progress() -> str:
        lightning_like()
        return f"loss {logged['loss']:.3f}"

    return operations | {
        "clip_grad_norm_": lambda: clip(parameters, 1.0),
        "clip_grad_norm_ checked": lambda: clip(parameters, 1e9, error_if_nonfinite=True),
        "clip_grad_value_": lambda: torch.nn.utils.clip_grad_value_(parameters, 1.0),
        "zero_grad": lambda: kinds["SGD"].zero_grad(set_to_none=False),
        "GradScaler": lambda: scaled(plain_scaler, kinds["SGD"]),
        "GradScaler with fused": lambda: scaled(fused_scaler, kinds["AdamW fused"]),
        "forward": lambda: net(x),
        "encoder": lambda: encode(None),
        "encoder with padding": lambda: encode(padding),
        "dropout": lambda: torch.nn.functional.dropout(x, 0.5),
        "cross_entropy": lambda: torch.nn.functional.cross_entropy(
            net(x), torch.zeros(32, dtype=torch.long, device="cuda")
        ),
        "autocast": lambda: torch.autocast("cuda")(net)(x),
        "Hugging-Face-like step": hugging_face_like,
        "Lightning-like step": lightning_like,
        "Lightning-like step with progress": lightning_like_progress,
    }


def allocation() -> dict[str, Call]:
    memory = torch.zeros(1 << 22)

    def grow_and_empty() -> None:
        big = torch.empty(192 << 20, dtype=torch.uint8, device="cuda")
        del big
        torch.cuda.empty_cache()

    def register() -> None:
        runtime = torch.cuda.cudart()
        runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
        runtime.cudaHostUnregister(memory.data_ptr())

    return {
        "empty_cache": grow_and_empty,
        "register host memory": register,
        "cached": lambda: torch.empty(1000, device="cuda"),
        "cached pinned": lambda: torch.empty(1000, pin_memory=True),
        "memory statistics": lambda: torch.cuda.memory_stats(),
        "mem_get_info": lambda: torch.cuda.mem_get_info(),
        "new stream": lambda: torch.cuda.Stream(),
    }


def polls() -> dict[str, Call]:
    def loop(pause: float | None = None) -> None:
        event = torch.cuda.Event()
        event.record()
        while not event.query():
            if pause is not None:
                time.sleep(pause)

    def stream_loop() -> None:
        while not torch.cuda.current_stream().query():
            pass

    def ask_while_working() -> None:
        event = torch.cuda.Event()
        event.record()
        x = torch.rand(10, device="cuda")
        for _ in range(20):
            x.add_(1)
            if event.query():
                break

    return {
        "event": loop,
        "event with sleep": lambda: loop(0.001),
        "stream": stream_loop,
        "between launches": ask_while_working,
    }


class ReadsInBackward(torch.autograd.Function):
    """Its backward pass reads a number, in a thread of autograd."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * gradient.sum().item()


def autograd() -> dict[str, Call]:
    x = torch.rand(1000, device="cuda", requires_grad=True)
    labels = torch.randint(0, 10, (1000,), device="cuda")
    mask = labels > 4

    def through(function: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        def back() -> None:
            function(x).sum().backward()

        return back

    def with_hook() -> None:
        y = x * 2
        y.register_hook(lambda gradient: gradient * bool(gradient.sum() > 0))
        y.sum().backward()

    def with_anomaly_mode() -> None:
        with torch.autograd.detect_anomaly(check_nan=True):
            (x * 2).sum().backward()

    def gradient_penalty() -> None:
        (gradient,) = torch.autograd.grad((x**2).sum(), x, create_graph=True)
        gradient.sum().backward()

    return {
        "plain": through(lambda x: x**2),
        "index": through(lambda x: x[labels]),
        "gather": through(lambda x: x.gather(0, labels)),
        "mask": through(lambda x: x[mask]),
        "to the host and back": through(lambda x: x.cpu().cuda()),
        "norm": through(lambda x: x.norm()),
        "cumprod": through(lambda x: (x + 1).cumprod(0)),
        "embedding": through(lambda x: torch.nn.functional.embedding(labels, x.view(10, 100))),
        "reads in backward": through(ReadsInBackward.apply),
        "hook": with_hook,
        "anomaly mode": with_anomaly_mode,
        "second order": gradient_penalty,
    }


def cupy_arrays() -> dict[str, Call]:
    import cupy

    array = cupy.ones(1000, dtype=cupy.float32)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def on_stream(call: Call) -> Call:
        def run() -> object:
            with stream:
                return call()

        return run

    return {
        "get": on_stream(lambda: array.get()),
        "asnumpy": on_stream(lambda: cupy.asnumpy(array)),
        "float": on_stream(lambda: float(array.sum())),
        "synchronize": lambda: cupy.cuda.Device().synchronize(),
        "nonzero": on_stream(lambda: cupy.nonzero(array)),
        "sum": on_stream(lambda: array.sum()),
        "add": on_stream(lambda: array + 1),
    }


def torchmetrics_metrics() -> dict[str, Call]:
    import torchmetrics

    scores = torch.rand(100, 5, device="cuda")
    labels = torch.randint(0, 5, (100,), device="cuda")
    images = torch.rand(2, 3, 32, 32, device="cuda")
    accuracy = torchmetrics.classification.MulticlassAccuracy(5).cuda()
    confusion = torchmetrics.classification.MulticlassConfusionMatrix(5).cuda()
    ssim = torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0).cuda()
    psnr = torchmetrics.image.PeakSignalNoiseRatio(data_range=1.0).cuda()
    mean = torchmetrics.MeanMetric().cuda()

    def computed(metric: torchmetrics.Metric) -> object:
        metric._computed = None
        return metric.compute()

    return {
        "accuracy update": lambda: accuracy.update(scores, labels),
        "accuracy compute": lambda: computed(accuracy),
        "accuracy forward": lambda: accuracy(scores, labels),
        "confusion": lambda: confusion.update(scores, labels),
        "SSIM update": lambda: ssim.update(images, images),
        "PSNR update": lambda: psnr.update(images, images),
        "PSNR compute": lambda: computed(psnr),
        "mean update": lambda: mean.update(scores),
    }


def our_own() -> dict[str, Call]:
    """None of them may wait."""
    import syncfree
    from syncfree import functional as f

    images = torch.rand(2, 3, 192, 192, device="cuda")
    others = images * 0.9
    scores = torch.rand(100, 5, device="cuda")
    labels = torch.randint(0, 5, (100,), device="cuda")
    learned = images.clone().requires_grad_()
    shown = syncfree.deferred(scores.sum())

    def learn() -> None:
        f.structural_similarity_index_measure(learned, others, data_range=1.0).backward()

    operations: dict[str, Call] = {
        "psnr": lambda: f.peak_signal_noise_ratio(images, others, 1.0),
        "ssim": lambda: f.structural_similarity_index_measure(images, others, data_range=1.0),
        "ms-ssim": lambda: f.multiscale_structural_similarity_index_measure(
            images, others, data_range=1.0
        ),
        "image_quality": lambda: f.image_quality(images, others, 1.0),
        "accuracy": lambda: f.multiclass_accuracy(scores, labels, 5),
        "safe_divide": lambda: f.safe_divide(scores, scores),
        "ssim backward": learn,
        "deferred update": lambda: shown.update(scores.sum()),
        "deferred format": lambda: f"{shown:.3f}",
    }
    if importlib.util.find_spec("torchmetrics") is not None:
        from syncfree.classification import MulticlassAccuracy
        from syncfree.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

        accuracy = MulticlassAccuracy(5).cuda()
        psnr = PeakSignalNoiseRatio(1.0).cuda()
        ssim = StructuralSimilarityIndexMeasure(data_range=1.0).cuda()
        operations |= {
            "accuracy class update": lambda: accuracy.update(scores, labels),
            "accuracy class forward": lambda: accuracy(scores, labels),
            "accuracy class compute": lambda: accuracy.compute(),
            "psnr class update": lambda: psnr.update(images, others),
            "psnr class forward": lambda: psnr(images, others),
            "ssim class update": lambda: ssim.update(images, others),
            "ssim class forward": lambda: ssim(images, others),
        }
    return operations


CATEGORIES: dict[str, Callable[[], dict[str, Call]]] = {
    each.__name__: each
    for each in (
        explicit_waits,
        scalar_reads,
        shapes_from_values,
        host_copies,
        linear_algebra,
        sparse,
        training,
        allocation,
        polls,
        autograd,
        cupy_arrays,
        torchmetrics_metrics,
        our_own,
    )
}


def judged(call: Call) -> dict[str, object]:
    """Whether the call waited, with and without the detector, and what this found."""
    import syncfree
    from syncfree import _runtime
    from syncfree.detector.session import scope_changed
    from syncfree.detector.tier3.spin import Spin

    stream = torch.cuda.current_stream()
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    host_ms = (time.perf_counter() - begin) * 1e3
    torch.cuda.synchronize()
    # Longer than the host needs for the call, or the kernel is done before a wait begins.
    milliseconds = min(max(SPIN_MS, 8 * host_ms), 400.0)
    gate = Spin(stream).start(milliseconds)
    call()
    answers = [gate.query()]
    torch.cuda.synchronize()
    with syncfree.detect_syncs(tier=3) as report:
        with _runtime.OwnCalls():
            gate = Spin(stream).start(milliseconds)
        scope_changed()  # puts a mark behind the kernel, as at the beginning of a region
        call()  # THE CALL
        with _runtime.OwnCalls():
            answers.append(gate.query())
    torch.cuda.synchronize()
    found = [
        {
            "api": each.event.api,
            "verdict": each.event.verdict.value,
            "counts": each.counts,
            "place": f"{each.file}:{each.line}",
            "source": each.source,
            "why": each.event.why,
            "blocked_us": each.blocked_us,
            "in_call": any(
                frame.file == __file__ and "# THE CALL" not in frame.source
                for frame in each.event.stack
            ),
        }
        for each in report.findings
    ]
    return {"waited": answers[0] if answers[0] == answers[1] else None, "found": found}


def main(file: str) -> None:
    from syncfree.detector.tier3.memory import waiting_size

    torch.cuda.init()
    torch.ones(1, device="cuda")
    with open(file, "w", encoding="utf-8") as out:  # noqa: PTH123

        def write(**values: object) -> None:
            out.write(json.dumps(values) + "\n")
            out.flush()

        write(waiting_size=waiting_size())
        for category, make in CATEGORIES.items():
            try:
                operations = make()
            except ModuleNotFoundError as error:
                write(category=category, missing=error.name)
                continue
            except Exception as error:  # the test names it
                write(category=category, name="", error=f"{type(error).__name__}: {error}")
                continue
            for name, call in operations.items():
                try:
                    write(category=category, name=name, **judged(call))
                except Exception as error:
                    write(category=category, name=name, error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
