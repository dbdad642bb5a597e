"""Results on CUDA past torch's dispatcher: as torch's own, and without them where they are not."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from fake_driver import compiled
from syncfree import _libraries
from syncfree._ops import accuracy, quick_results
from syncfree.functional.classification import multiclass_accuracy
from without_libraries import prints_an_accuracy


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(8, dtype=torch.int64, device="cuda")
    return torch.rand(8, 4, device="cuda"), labels


@pytest.mark.needs_cuda
def test_results_on_cuda_are_made_past_the_dispatcher() -> None:
    assert quick_results.quicken_results()
    preds, target = batch()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        multiclass_accuracy(preds, target, 4)
    names = {event.name for event in profile.events()}
    assert "syncfree::multiclass_accuracy" in names
    assert not any(name.startswith("aten::empty") for name in names)


@pytest.mark.needs_cuda
def test_torch_itself_tells_that_there_is_no_memory_for_a_result() -> None:
    torch.cuda.empty_cache()  # no block that is larger than what it is taken for
    labels = torch.zeros(1 << 26, 1, dtype=torch.uint8, device="cuda")
    options, ignored = accuracy.pack_options("micro", True, None, False)
    allowed = torch.cuda.memory_reserved() + (64 << 20)  # of the 256 MiB that the result takes
    total = torch.cuda.get_device_properties("cuda").total_memory
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            accuracy.ACCURACY["multiclass"](labels, labels, 4, 1, options, ignored)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.needs_cuda
def test_results_have_storages_of_their_own() -> None:
    preds, target = batch()
    values = [multiclass_accuracy(preds, target, 4) for _ in range(4)]
    assert len({value.untyped_storage().data_ptr() for value in values}) == len(values)
    assert all(value.storage_offset() == 0 for value in values)
    with torch.inference_mode():
        assert multiclass_accuracy(preds, target, 4).is_inference()
    assert not values[0].is_inference()


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has a CUDA library of its own")
def test_the_library_beside_a_torch_without_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no GPU is, so that it compiles against each torch and finds its way to the ops."""
    here, torch_home = Path(__file__).parent, Path(torch.__file__).parent
    options = ["-I", str(here.parent / "csrc"), "-isystem", str(torch_home / "include")]
    options += [
        "-Wl,--no-as-needed",
        *(str(torch_home / f"lib/lib{n}.so") for n in ("torch_cpu", "c10")),
    ]
    library = compiled(here / "fake_torch_cuda.cpp", tmp_path / "lib.so", *options)
    monkeypatch.setattr(_libraries, "find", lambda _: library)
    assert not quick_results.quicken_results()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert quick_results.quicken_results()
    makes_a_tensor = ctypes.CDLL(str(library)).makes_a_tensor
    makes_a_tensor.restype = ctypes.c_bool
    assert makes_a_tensor()


@pytest.mark.parametrize(
    "source",
    ["", 'extern "C" void syncfree_empty_on_cuda() {}', None],
    ids=["empty", "old", "broken"],
)
def test_libraries_of_another_build(
    source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "other.so"
    if source is None:
        library.write_bytes(b"no library")
    else:
        (tmp_path / "other.cpp").write_text(source)
        compiled(tmp_path / "other.cpp", library)
    monkeypatch.setattr(_libraries, "find", lambda _: library)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert not quick_results.quicken_results()


def test_without_the_library(device: str) -> None:
    prints_an_accuracy(
        "from syncfree._ops import quick_results\nquick_results.library_name = lambda: 'not there'",
        "not quick_results.quicken_results()",
        device,
    )
