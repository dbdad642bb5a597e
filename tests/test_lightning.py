"""Our metrics logged by a Trainer, beside TorchMetrics' in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as L
import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import syncfree as sf
import syncfree.classification as sc

CLASSES, FEATURES, SIZE = 3, 5, 40

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Classifier(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.ours = self.accuracy(sc)
        self.theirs = self.accuracy(tc)
        self.psnr = sf.PeakSignalNoiseRatio(1.0)
        self.their_psnr = tm.image.PeakSignalNoiseRatio(1.0)
        self.our_collection = self.collection(sf, sc, "ours/")
        self.their_collection = self.collection(tm, tc, "theirs/")
        self.resumed: list[dict[str, Any]] = []

    def accuracy(self, c: Any) -> Any:
        return c.MulticlassAccuracy(CLASSES)

    def collection(self, root: Any, c: Any, prefix: str) -> Any:
        metrics = [c.MulticlassAccuracy(CLASSES, average="micro"), c.MulticlassF1Score(CLASSES)]
        return root.MetricCollection(metrics, prefix=prefix)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, target = batch
        logits = self.layer(inputs)
        self.ours(logits, target)
        self.theirs(logits, target)
        self.log("ours", self.ours, on_step=True, on_epoch=True)
        self.log("theirs", self.theirs, on_step=True, on_epoch=True)
        self.psnr(logits.sigmoid(), inputs[:, :CLASSES])
        self.their_psnr(logits.sigmoid(), inputs[:, :CLASSES])
        self.log("psnr", self.psnr, on_step=True, on_epoch=True)
        self.log("their psnr", self.their_psnr, on_step=True, on_epoch=True)
        return nn.functional.cross_entropy(logits, target)

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        logits = self.layer(batch[0])
        for collection in (self.our_collection, self.their_collection):
            collection.update(logits, batch[1])
            self.log_dict(collection, on_step=False, on_epoch=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def train_dataloader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(1)
        inputs = torch.rand(SIZE, FEATURES, generator=generator)
        target = (inputs[:, :CLASSES]).argmax(1)
        return DataLoader(TensorDataset(inputs, target), batch_size=16)

    val_dataloader = train_dataloader


class Recorder(L.Callback):
    def __init__(self) -> None:
        self.logged: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.logged.append(dict(trainer.callback_metrics))

    def on_train_epoch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self.logged.append(dict(trainer.callback_metrics))


def trainer(folder: Path, epochs: int, recorder: Recorder) -> L.Trainer:
    return L.Trainer(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=1,
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[recorder],
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )


def compare(logged: dict[str, Tensor]) -> None:
    pairs = {
        name: name.replace("ours", "theirs").replace("psnr", "their psnr")
        for name in logged
        if name.startswith(("ours", "psnr"))
    }
    assert pairs
    for ours, theirs in pairs.items():
        torch.testing.assert_close(logged[ours], logged[theirs], rtol=1e-5, atol=1e-6)


def test_logged_values(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer(tmp_path, 3, recorder).fit(Classifier())
    for logged in recorder.logged:
        compare(logged)
    last = recorder.logged[-1]
    assert {"ours_step", "ours_epoch", "psnr_step", "psnr_epoch"} <= last.keys()
    assert {"ours/MulticlassAccuracy", "ours/MulticlassF1Score"} <= last.keys()
    epochs = [logged["ours_epoch"] for logged in recorder.logged if "ours_epoch" in logged]
    assert epochs[0] != epochs[-1]  # it learned, and the metric was reset between epochs


def persistent(module: Classifier) -> Classifier:
    for metric in (module.ours, module.theirs, module.our_collection, module.their_collection):
        metric.persistent(True)
    return module


def test_checkpoint_with_states(tmp_path: Path) -> None:
    module, path = persistent(Classifier()), tmp_path / "saved.ckpt"
    first = trainer(tmp_path, 1, Recorder())
    first.fit(module)
    module.cpu()
    logits, target = torch.randn(16, CLASSES), torch.randint(0, CLASSES, (16,))
    for metric in (module.ours, module.theirs, module.our_collection, module.their_collection):
        metric.reset()
        metric.update(logits, target)
    first.save_checkpoint(path)

    loaded = persistent(Classifier())
    loaded.load_state_dict(torch.load(path)["state_dict"])
    torch.testing.assert_close(loaded.ours.metric_state, module.theirs.metric_state)
    for collection in (loaded.our_collection, loaded.their_collection):
        collection.update(logits.roll(1, 0), target)
    ours, theirs = loaded.our_collection.compute(), loaded.their_collection.compute()
    torch.testing.assert_close(list(ours.values()), list(theirs.values()))
    f1 = loaded.our_collection["MulticlassF1Score"]
    assert int((f1.tp + f1.fn).sum()) == 32  # of before and after

    recorder = Recorder()
    again = trainer(tmp_path, 2, recorder)
    again.fit(persistent(Classifier()), ckpt_path=path)
    assert recorder.logged
    for logged in recorder.logged:
        compare(logged)
