"""`syncfree.distributed.evaluate` on a GPU: memory, and work that nobody waits for."""

from __future__ import annotations

import pytest
import torch

from evaluation_cases import METRICS, Data, expected, halve, mse
from syncfree.distributed import evaluate
from syncfree.distributed.inference import Inference

pytestmark = pytest.mark.needs_cuda


def test_real_memory_that_runs_out_costs_no_item():
    """Each image takes a third of what may be allocated, so batches of 8 cannot fit."""
    free, total = torch.cuda.mem_get_info()
    piece = min(free, total) // 64
    torch.cuda.set_per_process_memory_fraction(3.5 * piece / total)
    try:

        def model(x):
            scratch = torch.empty((len(x), piece), dtype=torch.uint8, device=x.device)
            return halve(x) + 0 * scratch[:, 0].float().sum()

        data = Data(24)
        found = evaluate(model, data, {"mse": mse}, device="cuda", batch=8)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    torch.testing.assert_close(found.values["mse"], expected(data, mse), rtol=1e-5, atol=1e-6)


def test_submitting_a_batch_never_waits():
    data = Data(6)
    device = torch.device("cuda", torch.cuda.current_device())
    inference = Inference(halve, METRICS, device, batch=2, workers=1)
    items = [inference._load(index, data) for index in (0, 3)]
    inference._submit_cuda(items).wait()  # loads the kernels
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(inference._upload):
            torch.cuda._sleep(1_000_000_000)  # about half a second in front
        submitted = inference._submit_cuda(items)
        assert not inference._compute.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    submitted.wait()
    values = torch.stack([expected(data, metric)[[0, 3]] for metric in METRICS.values()])
    torch.testing.assert_close(submitted.values, values, rtol=1e-5, atol=1e-6)


def test_inputs_are_not_overwritten_before_the_model_has_read_them():
    """The next batches are copied while it is late; their memory must not be that of this one."""

    def late(x):
        torch.cuda._sleep(50_000_000)
        return halve(x)

    data = Data(36)  # of three shapes
    found = evaluate(late, data, METRICS, device="cuda", batch=2)
    torch.testing.assert_close(found.values["mse"], expected(data, mse), rtol=1e-5, atol=1e-6)
