"""Whole programs under tier 0, as their authors wrote them for a GPU."""

from __future__ import annotations

import inspect
import io
import linecache
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torchmetrics.functional.classification as tmf
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from calls import CALLS, PublicCall
from syncfree.detector import set_up
from syncfree.detector.findings import Finding, Recorder, Verdict
from syncfree.detector.tier0 import Tier0

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)

DIGITS = Path(__file__).parent.parent / "examples" / "train_digits.py"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    set_up.begin()
    with Tier0(recorder):
        yield recorder


def waits(recorder: Recorder) -> list[Finding]:
    return [f for f in recorder.findings() if f.event.verdict is not Verdict.CONDITIONAL]


def is_meant(finding: Finding) -> bool:
    return "# sync-ok:" in linecache.getline(finding.file, finding.line - 1)


def run_script(script: Path, *arguments: str) -> list[Finding]:
    recorder, argv = Recorder(), sys.argv
    sys.argv = [str(script), *arguments]
    set_up.begin()
    try:
        with Tier0(recorder):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = argv
    return waits(recorder)


def test_train_digits_reads_once_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_script(DIGITS, "--epochs", "2")
    assert "training on cuda" in capsys.readouterr().out
    assert [(f.event.api, f.count) for f in found] == [("Tensor.tolist", 2)]
    assert found[0].file == str(DIGITS)
    assert is_meant(found[0])


def test_an_item_in_the_loop_of_train_digits_is_found(tmp_path: Path) -> None:
    text = DIGITS.read_text()
    appended = "        steps.append(accuracy(logits.detach(), labels[batch]))\n"
    assert text.count(appended) == 1
    script = tmp_path / "train.py"
    script.write_text(text.replace(appended, appended + "        print(loss.item())\n"))
    linecache.checkcache()
    found = [f for f in run_script(script, "--epochs", "1") if not is_meant(f)]
    line = text[: text.index(appended)].count("\n") + 2
    assert [(f.file, f.line, f.event.api) for f in found] == [(str(script), line, "Tensor.item")]
    assert found[0].function == "train_epoch"
    assert found[0].count == 23


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_torchmetrics_accuracy(recorder: Recorder, average: str) -> None:
    metric = MulticlassAccuracy(num_classes=5, average=average).cuda()
    scores = torch.randn(32, 5, device="cuda")
    labels = torch.randint(0, 5, (32,), device="cuda")
    # The two checks of values are waits of their own, which `validate_args=False` turns off.
    for _ in range(3):
        metric.update(scores, labels)
        here = inspect.currentframe().f_lineno - 1
    metric.compute()
    found = waits(recorder)
    if average == "micro":
        assert found == []
        return
    assert {f.event.api for f in found} == {"aten::bincount"}
    assert all("torchmetrics" in f.file and "torch.bincount" in f.source for f in found)
    lines = [frame.line for frame in found[0].event.stack if frame.file == __file__]
    assert lines[0] == here


def test_torchmetrics_checks_of_values_wait(recorder: Recorder) -> None:
    preds = torch.rand(8, device="cuda")
    tmf.binary_accuracy(preds, (preds > 0.5).long(), validate_args=False)
    assert waits(recorder) == []
    tmf.binary_accuracy(preds, (preds > 0.5).long())
    assert "aten::_unique2" in {f.event.api for f in waits(recorder)}


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_our_functions_never_wait(recorder: Recorder, call: PublicCall) -> None:
    preds, target = call.inputs("cuda", 0)
    setup = recorder.findings()
    results = call.results(preds, target)
    assert recorder.findings() == setup
    assert all(result.is_cuda for result in results)
    recorded = [result.cpu() for result in results]
    want = call.results(preds.cpu(), target.cpu())
    for got, expected in zip(recorded, want, strict=True):
        assert torch.equal(got, expected)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).flatten(1))


def train(folder: Path, workers: int, epochs: int = 2) -> list[float]:
    """The usual loop with everything that people put into it."""
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.benchmark = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert device.type == "cuda"
    assert torch.cuda.get_device_properties(device).total_memory > 0
    data = TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(0, 4, (32,)))
    loader = DataLoader(data, 8, shuffle=True, num_workers=workers, pin_memory=True)
    net = Net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    scaler = torch.amp.GradScaler("cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        begin.record()
        for batch in loader:
            assert all(tensor.is_pinned() for tensor in batch)
            images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(net(images), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)  # sync
            scaler.update()
            total += loss.detach()
            for parameter in net.parameters():
                assert parameter.grad.is_cuda
                assert optimizer.state[parameter]["exp_avg"].is_cuda
        scheduler.step()
        end.record()
        torch.cuda.synchronize()  # sync
        assert begin.elapsed_time(end) > 0
        losses.append((total / len(loader)).item())  # sync
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / "c.pt")  # sync  # noqa: E501  # fmt: skip
        torch.cuda.reset_peak_memory_stats()
    saved = torch.load(folder / "c.pt", map_location=device)
    again = Net().to(device)
    again.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters()))  # sync  # noqa: B905
    return losses


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_with_everything(recorder: Recorder, tmp_path: Path, workers: int) -> None:
    losses = train(tmp_path, workers)
    assert losses[1] < losses[0]
    lines, first = inspect.getsourcelines(train)
    expected = {number for number, line in enumerate(lines, first) if "# sync" in line}
    assert {f.line for f in waits(recorder) if f.file == __file__} == expected
    assert all(f.file == __file__ for f in waits(recorder))


@pytest.mark.parametrize("zipped", [False, True])
def test_a_checkpoint_waits_once(recorder: Recorder, zipped: bool) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).cuda()
    for _ in range(2):
        torch.save(net.state_dict(), io.BytesIO(), _use_new_zipfile_serialization=zipped)
    (saved,) = waits(recorder)
    assert (saved.event.api, saved.count) == ("UntypedStorage.cpu", 2)
    net[0].weight.untyped_storage().cpu()
    net[1].weight.untyped_storage().cpu()
    assert sum(each.count for each in waits(recorder)) == 4


def test_gradient_checkpointing(recorder: Recorder) -> None:
    layer = nn.Linear(4, 4).cuda()
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(
        lambda t: nn.functional.dropout(layer(t), 0.5), x, use_reentrant=False
    )
    y.sum().backward()
    assert x.grad.is_cuda
    assert waits(recorder) == []


def test_compiled_models_run_eagerly(recorder: Recorder) -> None:
    def guilty(x: Tensor) -> Tensor:
        return x * x.sum().item()  # the line

    compiled = torch.compile(guilty, mode="max-autotune")
    model = torch.compile(nn.Linear(3, 3).cuda())
    compiled(model(torch.ones(2, 3, device="cuda")))
    (found,) = waits(recorder)
    assert found.source.endswith("# the line")
    assert all(name.startswith("_orig_mod.") for name in model.state_dict())


def test_what_torch_reads_for_itself_is_named(recorder: Recorder) -> None:
    scores = torch.ones(2, 3, device="cuda")
    torch.distributions.Categorical(logits=scores, validate_args=True)
    scores.unique()
    checked, counted = waits(recorder)
    assert checked.event.reader is not None
    assert checked.event.reader.function.endswith("__init__")
    assert checked.event.reader.file.endswith("distribution.py")
    assert "validate_args=False" in checked.suggestion
    assert counted.event.reader is None


def test_loaded_weights_are_set_up(recorder: Recorder) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2)).sum().backward()
    optimizer.step()
    weights, moments = net.state_dict(), optimizer.state_dict()
    net.cuda()
    for _ in range(2):
        net.load_state_dict(weights)
        torch.optim.Adam(net.parameters()).load_state_dict(moments)
    assert recorder.counted() == 0
    assert "before the loop" in recorder.findings()[0].suggestion


def test_copies_of_torchs_own_are_named(recorder: Recorder) -> None:
    net = nn.Linear(2, 2, device="cuda")
    average = torch.optim.swa_utils.AveragedModel(net)
    for _ in range(3):
        average.update_parameters(net)
    (found,) = (each for each in waits(recorder) if each.event.direction == "h2d")
    assert found.event.reader is not None
    assert found.event.reader.function.endswith("AveragedModel.update_parameters")
    assert "torch keeps a value on the host" in found.suggestion


def test_numbers_are_those_of_the_cpu(recorder: Recorder) -> None:
    def steps(device: str) -> Tensor:
        torch.manual_seed(3)
        net = Net().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(4, 3, 8, 8, device=device)).square().mean().backward()
            optimizer.step()
        return net.head.weight.detach().cpu()

    assert torch.equal(steps("cuda"), steps("cpu"))


def test_torchs_warning_of_a_gradient_names_the_program(tmp_path: Path) -> None:
    """In a process of its own, as torch gives it once."""
    script = tmp_path / "train.py"
    script.write_text(
        "import syncfree, torch\n"
        "with syncfree.detect_syncs(tier=0) as report:\n"
        "    loss = torch.ones((), device='cuda', requires_grad=True)\n"
        "    on_cpu = torch.ones((), requires_grad=True)\n"
        "    for always in (False, True):\n"
        "        torch.set_warn_always(always)\n"
        "        for read in (float, int, complex):\n"
        "            assert read(loss) == read(on_cpu) == 1\n"
        "    loss.backward()\n"
        "assert report.count == 6, report\n"
        "assert loss.grad == 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Once, and then for each float() and complex() of both.
    text = "UserWarning: Converting a tensor with requires_grad=True"
    assert done.stderr.count(f"{script}:8: {text}") == done.stderr.count(text) == 1 + 4
