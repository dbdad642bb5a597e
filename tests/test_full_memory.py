"""Calls on a GPU whose memory torch holds: what it has cached is there for scratch memory, too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json
import sys

import torch

from syncfree.functional.classification import multiclass_accuracy

CLASSES = 1_000_000  # whose counts take 8 MB of scratch memory, which each stream keeps
STREAMS = 12

labels = torch.arange(1000, device="cuda")


def value():
    return multiclass_accuracy(labels, labels, CLASSES, "macro")


def state():
    return torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["num_alloc_retries"]


value()  # loads the kernel, which takes memory as well
streams = [torch.cuda.Stream() for _ in range(STREAMS)]
torch.cuda.synchronize()
# What torch has cached belongs to a stream: of each as much as a call takes, for the result and for
# scratch memory. They are held until all is full, since torch lets go of its cache where it is not
# enough.
cached = []
for stream in streams:
    with torch.cuda.stream(stream):
        for size in (1, 9 << 20):
            cached.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
held, size = [], 1 << 36
while size >= 1 << 20:
    try:
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        size //= 2
cached.clear()
before = state()
values = []
for stream in streams:
    with torch.cuda.stream(stream):
        values.append(value())
torch.cuda.synchronize()
after = state()
json.dump([before, after, [each.item() for each in values]], sys.stdout)
"""


@pytest.mark.needs_cuda
@pytest.mark.alone
def test_scratch_memory_where_torch_has_cached_all() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after, values = json.loads(done.stdout)
    assert values == [1.0] * 12
    # The streams' own could not come from CUDA, and torch gave nothing back to it on the way.
    assert max(before[0], after[0]) < 8_000_000
    assert before[1] == after[1]
