"""Train a small network on samples from slow storage: the script to try ``traceml compare`` with.

Each sample takes a millisecond to arrive, as from a network file system. With workers the waiting
happens while the model computes::

    traceml run --run-name base examples/slow_storage.py
    traceml run --run-name new examples/slow_storage.py --args --workers 2
    traceml compare base new
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SAMPLES = 320
FEATURES = 256


class Stored(Dataset[tuple[Tensor, Tensor]]):
    """Random samples that take a while to read."""

    def __init__(self, read_ms: float) -> None:
        self.read_ms = read_ms
        self.samples = torch.randn(SAMPLES, FEATURES)
        self.targets = self.samples.sum(dim=1, keepdim=True)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.read_ms / 1000)
        return self.samples[index], self.targets[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--read-ms", type=float, default=1.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(
        Stored(args.read_ms),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    model = nn.Sequential(
        nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for samples, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(samples), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}  loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
