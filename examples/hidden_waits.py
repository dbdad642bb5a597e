"""A training loop with hidden waits, as many loops have them: how many do you see?

    syncfree syncs examples/hidden_waits.py

It needs torchmetrics. The detector runs it without a GPU too, and shows what a GPU would do.
"""

import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

STEPS, BATCH, CLASSES = 40, 256, 10
device = torch.device("cuda")


def train() -> None:
    """Forty steps on random numbers."""
    images = torch.rand(STEPS * BATCH, 784)
    labels = torch.randint(0, CLASSES, (STEPS * BATCH,))
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = nn.CrossEntropyLoss(reduction="none")
    accuracy = MulticlassAccuracy(CLASSES).to(device)
    running = 0.0

    for step in range(STEPS):
        batch = images[step * BATCH : (step + 1) * BATCH].to(device, non_blocking=True)
        target = labels[step * BATCH : (step + 1) * BATCH].to(device, non_blocking=True)
        logits = model(batch)
        loss = losses(logits, target)
        hard = loss[loss > loss.mean()]

        optimizer.zero_grad()
        hard.mean().backward()
        optimizer.step()

        running += loss.mean().item()
        accuracy.update(logits.detach(), target)
        if step % 10 == 9:
            print(f"step {step + 1}: loss {running / (step + 1):.3f}")

    print(f"accuracy {accuracy.compute():.3f}")


if __name__ == "__main__":
    train()
