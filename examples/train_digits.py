"""Trains a small net on scikit-learn's digits, with accuracy that never stalls the GPU.

Run it as `python examples/train_digits.py --epochs 5 --device cuda`.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn

from syncfree.functional import multiclass_accuracy

CLASSES = 10
BATCH = 64


def load_data(device: torch.device) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """1797 gray pictures of 8 x 8 pixels and their digits, split 4 : 1 into training and test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].to(device), labels[order].to(device)
    split = len(labels) * 4 // 5
    return (images[:split], labels[:split]), (images[split:], labels[split:])


def make_net() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, CLASSES),
    )


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of correct answers, as a tensor on the device: nothing waits for it."""
    return multiclass_accuracy(logits, labels, num_classes=CLASSES, average="micro")


def train_epoch(
    net: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> Tensor:
    """One pass over the training set; returns the accuracy of every step."""
    net.train()
    steps = []
    for batch in torch.split(torch.randperm(len(labels), device=labels.device), BATCH):
        logits = net(images[batch])
        loss = nn.functional.cross_entropy(logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # It stays on the device: `.item()` here would make the host wait for the GPU at every step.
        steps.append(accuracy(logits.detach(), labels[batch]))
    return torch.stack(steps)


def main() -> None:
    """Train, and print accuracies once per epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device(arguments.device)
    (images, labels), (test_images, test_labels) = load_data(device)
    net = make_net().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    print(f"training on {device}: {len(labels)} images, testing on {len(test_labels)}")
    for epoch in range(1, arguments.epochs + 1):
        steps = train_epoch(net, optimizer, images, labels)
        net.eval()
        with torch.no_grad():
            test = accuracy(net(test_images), test_labels)
        # sync-ok: the one read of the epoch; both numbers come to the host together.
        train_accuracy, test_accuracy = torch.stack([steps.mean(), test]).tolist()
        print(f"epoch {epoch}: train accuracy {train_accuracy:.4f}, test {test_accuracy:.4f}")


if __name__ == "__main__":
    main()
