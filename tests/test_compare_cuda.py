"""`syncfree compare` on a GPU: submitting a batch makes the host wait for nothing."""

import pytest
import torch

from comparing import Folders, assert_matches, distorted, picture
from syncfree.cli.compare.engine import CudaEngine, find_device
from syncfree.cli.compare.images import load_pair
from syncfree.cli.compare.options import METRICS, CompareOptions
from syncfree.cli.compare.pairs import find_pairs

pytestmark = pytest.mark.needs_cuda


@pytest.mark.parametrize("y_channel", [False, True])
def test_submitting_never_waits(tmp_path, y_channel):
    folders = Folders(tmp_path)
    for index in range(4):
        folders.add(f"{index}.png", picture(index), distorted(picture(index)))
    options = CompareOptions(y_channel=y_channel, maps=tmp_path / "maps")
    engine = CudaEngine(find_device("cuda"), options)
    pairs = find_pairs(folders.ref, folders.test).pairs
    pictures = [load_pair(pair, options, pinned=True) for pair in pairs]
    assert all(each.reference.is_pinned() and each.test.is_pinned() for each in pictures)
    engine.submit(pictures).wait()  # loads the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        # About half a second of work in front: a hidden wait would also find the batch done.
        torch.cuda.synchronize()
        with torch.cuda.stream(engine._upload):
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
