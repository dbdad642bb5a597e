"""`syncfree compare` on a GPU: submitting a batch makes the host wait for nothing."""

import numpy as np
import pytest
import torch
from PIL import Image

from comparing import TOLERANCE, Folders, assert_matches, distorted, picture
from syncfree.cli.compare.engine import CudaEngine, find_device
from syncfree.cli.compare.images import load_pair
from syncfree.cli.compare.options import METRICS, CompareOptions
from syncfree.cli.compare.pairs import find_pairs
from syncfree.cli.compare.stages import StageClock

pytestmark = pytest.mark.needs_cuda


@pytest.mark.parametrize("y_channel", [False, True])
def test_submitting_never_waits(tmp_path, y_channel):
    folders = Folders(tmp_path)
    for index in range(4):
        folders.add(f"{index}.png", picture(index), distorted(picture(index)))
    options = CompareOptions(y_channel=y_channel, maps=tmp_path / "maps")
    engine = CudaEngine(find_device("cuda"), options)
    pairs = find_pairs(folders.ref, folders.test).pairs
    pictures = [load_pair(pair, options, engine.buffers) for pair in pairs]
    assert all(each.reference.is_pinned() and each.test.is_pinned() for each in pictures)
    for _ in range(options.streams):  # loads the kernels, and allocates for each stream
        warm = engine.submit(pictures)
        torch.cuda.synchronize()
        warm.release()
    torch.cuda.set_sync_debug_mode("error")
    try:
        # About half a second of work in front: a hidden wait would also find the batch done.
        torch.cuda.synchronize()
        with torch.cuda.stream(engine._lanes[0].stream):
            torch.cuda._sleep(1_000_000_000)
        submitted = engine.submit(pictures)
        assert not submitted.done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    submitted.wait()
    assert submitted.maps.shape == (4, 24, 32)
    assert submitted.values.isfinite().all()
    if not y_channel:
        for index, values in enumerate(submitted.values.T.tolist()):
            row = {**dict(zip(METRICS, values, strict=True)), "data_range": 255.0}
            assert_matches(row, picture(index), distorted(picture(index)))


@pytest.mark.needs_two_gpus
def test_another_gpu_is_used_alone(tmp_path):
    folders = Folders(tmp_path)
    folders.add_good()
    before = torch.cuda.memory_reserved(0)
    status, report = folders.compare("--device", "cuda:1")
    assert status == 0
    assert report["options"]["device"] == "cuda:1"
    assert_matches(report["images"][0], picture(0), distorted(picture(0)))
    assert torch.cuda.memory_reserved(0) == before


@pytest.mark.parametrize("streams", [1, 2, 5])
def test_streams_change_no_value(tmp_path, streams):
    folders = Folders(tmp_path)
    for seed in range(9):
        folders.add(f"{seed}.png", picture(seed), distorted(picture(seed)))
    for seed in range(9, 40):
        folders.add(f"{seed}.png", picture(seed, 60, 70), distorted(picture(seed, 60, 70)))
    _, expected = folders.compare("--device", "cuda")
    choice = ("--device", "cuda", "--batch", 2, "--streams", streams)
    status, report = folders.compare(*choice, "--profile")
    assert status == 0
    assert report["images"] == expected["images"]
    found = report["profile"]
    names = ["decode", "enqueue", "host-to-device", "compute", "device-to-host"]
    assert [stage["name"] for stage in found["stages"]] == names
    assert found["absent"] == {}
    assert found["streams"] == streams
    decode, _, upload, compute, read_back = found["stages"]
    assert decode["count"] == 40
    assert upload["count"] == compute["count"] == read_back["count"] >= 20
    assert upload["bytes"] == 2 * 3 * (9 * 24 * 32 + 31 * 60 * 70)
    assert read_back["bytes"] == 3 * 4 * 40
    for stage in found["stages"]:
        assert 0 < stage["busy_seconds"] <= found["seconds"] * 1.01 + 0.01
    _, batches = found["buffers"]
    assert batches["memory"] == "device memory of batches"
    assert batches["reused"] >= compute["count"] - 2 * streams


def test_pinned_memory_is_not_overwritten_under_way(tmp_path):
    """Maps and values of many batches of one size, with more batches than buffers."""
    folders = Folders(tmp_path)
    for seed in range(64):
        folders.add(f"{seed:02}.png", picture(seed, 128, 128), distorted(picture(seed, 128, 128)))
    maps = [tmp_path / name for name in ("cpu", "cuda")]
    runs = [
        folders.compare("--device", where.name, "--maps", where, "--batch", 3) for where in maps
    ]
    for here, there in zip(runs[0][1]["images"], runs[1][1]["images"], strict=True):
        for metric, allowed in TOLERANCE.items():
            assert here[metric] == pytest.approx(there[metric], rel=0, abs=2 * allowed)
    for path in maps[0].iterdir():
        here, there = (np.asarray(_image(each / path.name)).astype(int) for each in maps)
        assert np.abs(here - there).max() <= 1


def _image(path):
    with Image.open(path) as image:
        return image.copy()


def test_a_profile_never_waits(tmp_path):
    folders = Folders(tmp_path)
    folders.add_good()
    options = CompareOptions(streams=2)
    engine = CudaEngine(find_device("cuda"), options)
    engine.stages = StageClock(engine.device)
    pairs = find_pairs(folders.ref, folders.test).pairs
    pictures = [load_pair(pair, options, engine.buffers) for pair in pairs]
    for _ in range(2):
        warm = engine.submit(pictures)
        torch.cuda.synchronize()
        warm.release()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(engine._lanes[0].stream):
            torch.cuda._sleep(500_000_000)
        submitted = engine.submit(pictures)
        engine.stages.landed()
        engine.stages._collect()
        assert not submitted.done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    submitted.wait()
    assert engine.stages.spans()["compute"].count == 3
