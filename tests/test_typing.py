"""What a type checker makes of a user's program."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="needs mypy, which `make lint` installs")

CONFIGURATION = Path(__file__).resolve().parent.parent / "setup.cfg"

PROGRAM = """
import collections

import torch
from typing_extensions import assert_type

import syncfree
from syncfree.functional import structural_similarity_index_measure

accuracy = syncfree.MulticlassAccuracy(num_classes=3)
collection = syncfree.MetricCollection([accuracy])
assert_type(syncfree.on_side_stream(accuracy), syncfree.MulticlassAccuracy)
assert_type(syncfree.on_side_stream(collection), syncfree.MetricCollection)
collection = syncfree.on_side_stream(collection, copy_inputs=True)
assert_type(syncfree.timed(accuracy), syncfree.MulticlassAccuracy)
assert_type(syncfree.EventTimer().wrap(collection), syncfree.MetricCollection)


@syncfree.timed
@syncfree.timed(name="step")
@syncfree.no_sync
@syncfree.no_sync(max_syncs=1)
@syncfree.allow_sync("it is meant")
def step(batch: torch.Tensor, scale: float = 1.0) -> int:
    return 1


assert_type(step(torch.ones(1), scale=2.0), int)

with syncfree.detect_syncs() as report:
    assert_type(report, syncfree.detector.Report)

assert_type(syncfree.__version__, str)
assert_type(syncfree.losses.SSIMLoss(1.0), syncfree.losses.SSIMLoss)
from syncfree import *  # which hides no module, nor for the checker
collections.OrderedDict[str, int]()
assert_type(Accuracy.__name__, str)

images = torch.ones(1, 1, 16, 16)
assert_type(structural_similarity_index_measure(images, images, data_range=1.0), torch.Tensor)
assert_type(
    structural_similarity_index_measure(images, images, data_range=1.0, return_full_image=True),
    tuple[torch.Tensor, torch.Tensor],
)
"""


def test_names_keep_their_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out, err, status = api.run(["--strict", f"--config-file={CONFIGURATION}", str(program)])
    assert status == 0, out + err
