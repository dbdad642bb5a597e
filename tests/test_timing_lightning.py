"""The timer's callback in a Lightning run."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from syncfree import EventTimer
from syncfree.timing import lightning_callback


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.layer(batch[0]).sum()

    def validation_step(self, batch: list[Tensor]) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.rand(12, 4)), batch_size=4)

    val_dataloader = train_dataloader


class Interrupt(L.Callback):
    def on_before_backward(self, *_: Any) -> None:
        raise KeyError


def fit(tmp_path: Path, *callbacks: Any) -> None:
    L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    ).fit(Module())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_lightning(tmp_path: Path) -> None:
    callback = lightning_callback(EventTimer("cpu"))
    assert isinstance(callback, L.Callback)
    fit(tmp_path, callback)
    counts = {region.name: region.count for region in callback.timer.summary().regions}
    assert counts == {"train_batch": 6, "backward": 6, "validation_batch": 6}
    backward = [s for s in callback.timer.samples() if s.name == "backward"]
    assert {s.depth for s in backward} == {1}

    callback.timer.clear()
    with pytest.raises(KeyError):
        fit(tmp_path, callback, Interrupt())
    assert callback.timer.counts()["lost"] == 0
    assert [r.name for r in callback.timer.summary().regions] == []


def test_a_copied_callback_has_a_timer_of_its_own() -> None:
    callback = lightning_callback(EventTimer("cpu"))
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(copied, L.Callback)
        copied.on_train_batch_start(None, None, None, 0)
        copied.on_train_batch_end(None, None, None, None, 0)
        assert copied.timer.summary()["train_batch"].count == 1
    assert callback.timer.summary().regions == []
