"""The suites behind `syncfree bench`: what they measure, and that contenders do the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from benchmark_figures import RESULTS, ROOT, gpu_row
from syncfree import functional as sf
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.engine import Plan
from syncfree.benchmarking.suites import (
    SUITES,
    Workload,
    accuracy,
    layouts,
    makers,
    psnr,
    restoration,
    scaling,
    ssim,
)
from syncfree.benchmarking.suites.plot import plot_rows
from syncfree.benchmarking.suites.runner import document, measure_workload, rows_of
from syncfree.benchmarking.suites.scaling_plot import plot_scaling


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_suites_are_complete(device: str) -> None:
    names = [name for suite in SUITES for name, _ in makers(suite, device)]
    assert len(names) == len(set(names))
    assert len(names) == {"cpu": 84, "cuda": 128}[device]


@pytest.mark.parametrize("file", ["h100.json", "h200.json"])
def test_the_committed_results_hold_the_workloads_that_are_measured(file: str) -> None:
    """One after another; the ids hold the shapes that the names hold."""
    facts = json.loads((ROOT / "benchmarks" / "results" / file).read_text())
    names = list(dict.fromkeys(row["workload"] for row in facts["rows"]))
    ids = [name for suite in SUITES for name, _ in makers(suite, "cuda")]
    assert facts["skipped"] == {}
    for each, name in zip(ids, names, strict=True):
        sizes = re.findall(r"\d+(?:x\d+)+|\d{2,}", each)
        assert all(size in name for size in sizes), (each, name)


def test_numbers_drawn_are_the_same_in_every_run(device: str) -> None:
    name, make = next(makers("psnr", device))
    state = torch.get_rng_state()
    first = make().contenders["syncfree"]()
    torch.rand(1), torch.rand(1, device=device)
    second = dict(makers("psnr", device))[name]().contenders["syncfree"]()
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.set_rng_state(state)
    drawn = torch.rand(1)
    torch.set_rng_state(state)
    make()
    assert torch.equal(torch.rand(1), drawn)


def test_no_such_suite() -> None:
    with pytest.raises(ValueError, match="suite is one of psnr, ssim, ms-ssim, accuracy"):
        makers("speed", "cpu")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (psnr.workload, (1, 3, 32, 32)),
        (ssim.ssim, (1, 3, 32, 32)),
        (ssim.uniform_ssim, (1, 3, 32, 32)),
        (ssim.ssim_gradients, (1, 3, 32, 32)),
        (ssim.ms_ssim, (1, 3, 192, 192)),
        (accuracy.workload, (64, 10)),
        (accuracy.top_list, (64, 10)),
    ],
)
def test_contenders_of_a_workload_agree(make, shape) -> None:
    """Ratios mean something only between functions that compute the same."""
    workload = make(shape, torch.float32, "cpu")
    values = {name: call() for name, call in workload.contenders.items()}
    assert len(values) >= 2
    ours = values.pop("syncfree")
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, ours, rtol=1e-4, atol=1e-4, msg=name)
        elif name == "torchmetrics":  # the others leave out the border
            want = [*ours] if isinstance(value, list) else ours
            torch.testing.assert_close(value, want, rtol=1e-3, atol=1e-7, msg=name)


@pytest.mark.parametrize(("task", "shape"), [("binary", (64,)), ("multilabel", (64, 7))])
def test_contenders_of_other_tasks_agree(task: str, shape: tuple[int, ...]) -> None:
    workload = accuracy.of_labels(task, shape, "cpu")
    values = [call() for call in workload.contenders.values()]
    assert len(values) >= 2
    for value in values:
        torch.testing.assert_close(value, values[0])


def test_other_layouts_are_the_same_work() -> None:
    """The views hold other pixels of the same kind, as many within a percent or so."""
    shape = (2, 3, 256, 384)
    for name, metric, none in [
        ("PSNR", sf.peak_signal_noise_ratio, {"dim": (1, 2, 3), "reduction": "none"}),
        ("SSIM", sf.structural_similarity_index_measure, {"reduction": "none"}),
    ]:
        workload = layouts.image_layouts(name, metric, none, shape, "cpu")
        values = {name: call().mean() for name, call in workload.contenders.items()}
        assert len(values) == 6
        torch.testing.assert_close(values["syncfree channels-last"], values["syncfree"])
        for which, value in values.items():
            torch.testing.assert_close(value, values["syncfree"], rtol=0.01, atol=0, msg=which)
    tokens = layouts.token_logits((2, 9, 50), "cpu").contenders
    assert tokens["syncfree"]() == tokens["syncfree shifted view"]()
    pixels = layouts.pixel_layouts((2, 5, 16, 24), "cpu").contenders
    assert pixels["syncfree"]() == pixels["syncfree channels-last"]()
    assert pixels["syncfree"]() == pixels["syncfree int32 labels"]()
    assert pixels["syncfree per image"]().shape == (2,)
    assert 0 < pixels["syncfree odd size"]() < 1 > pixels["syncfree cropped views"]() > 0


def test_plot_of_scaling(tmp_path: Path) -> None:
    rows = run_suites_of(
        scaling.image_metric("PSNR", 1, 16, "size", "cpu"),
        scaling.image_metric("PSNR", 1, 64, "size", "cpu"),
        scaling.accuracy("macro", 8, 10, "cpu"),
    )
    facts = document(rows)
    plot_scaling(facts, tmp_path / "scaling.svg")
    shown = (tmp_path / "scaling.svg").read_text()
    assert "PSNR by size" in shown
    assert "accuracy macro by classes" in shown
    plot_rows(facts, tmp_path / "nothing.svg")  # has no bars, and that is no error
    with pytest.raises(ValueError, match="rows of the suite scaling"):
        plot_scaling({**facts, "rows": []}, tmp_path / "none.svg")


def run_suites_of(*workloads: Workload) -> list[dict]:
    return [row for w in workloads for row in rows_of(w, measure_workload(w, seconds=0.02))]


def test_the_restoration_loop_is_the_same_for_all() -> None:
    workload = restoration.workload((2, 3, 24, 24), "cpu")
    values = {name: call() for name, call in workload.contenders.items()}
    assert values.pop("syncfree no metrics").shape == (2, 3, 24, 24)
    ours = values["syncfree"]
    assert set(values) == {"syncfree", "syncfree side stream", "torchmetrics"}
    for name, found in values.items():
        torch.testing.assert_close(found, ours, rtol=1e-4, atol=1e-4, msg=name)


def test_steps_of_classes_run() -> None:
    for _, make in list(makers("classes", "cpu"))[12:16]:
        workload = make()
        assert workload.is_class
        assert set(workload.contenders) == {"syncfree", "torchmetrics"}
        for call in workload.contenders.values():
            call()


def test_plot_of_the_committed_results(tmp_path: Path) -> None:
    for path in RESULTS:
        plot_rows(json.loads(path.read_text()), tmp_path / f"{path.stem}.svg")
        assert "torchmetrics" in (tmp_path / f"{path.stem}.svg").read_text()


def test_the_legend_of_many_peers_fits_and_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(
        "syncfree.benchmarking.suites.plot.save", lambda figure, file: drawn.append(figure)
    )
    names = ["syncfree", *(f"another library, number {n}" for n in range(12))]
    rows = [gpu_row(contender=each, device_us=1.0 + n) for n, each in enumerate(names)]
    versions = {"torch": "2"}
    plot_rows(
        {"rows": rows, "hardware": {"gpu": "GPU"}, "versions": versions, "date": "2026-01-01"},
        tmp_path / "many.png",
    )
    (figure,) = drawn
    figure.draw_without_rendering()
    (legend,) = figure.legends
    place, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= place.x0 < place.x1 <= whole.x1
    colors = [line.get_color() for line in legend.get_lines()]
    assert len(set(colors)) == len(colors) == 12


def test_measure_uses_the_given_backend() -> None:
    works = {"f": Work(lambda: None)}
    found = measure(works, Plan(max_seconds=0.02), CpuBackend(), torch.device("cpu"))
    assert found["f"].kind == "cpu"
