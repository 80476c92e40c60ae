"""Train a small CNN on the handwritten digits that come with scikit-learn.

An ordinary script: nothing in it knows about TraceML. Try it with and without loader workers::

    traceml run examples/digits.py
    traceml run examples/digits.py --args --workers 1
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

IMAGE_SIZE = 32


class Digits(Dataset[tuple[Tensor, int]]):
    """8x8 scans enlarged to 32x32; training images are distorted anew each time."""

    def __init__(self, images: Tensor, labels: list[int], *, augment: bool) -> None:
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        return (distort(image) if self.augment else image), self.labels[index]


def distort(image: Tensor) -> Tensor:
    """Rotate by up to 20 degrees, scale and shift by up to 15 %, soften the strokes, add noise."""
    angle = math.radians(torch.empty(()).uniform_(-20, 20).item())
    scale = torch.empty(()).uniform_(0.85, 1.15).item()
    shift_x, shift_y = torch.empty(2).uniform_(-0.15, 0.15).tolist()
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    matrix = torch.tensor([[[cos, -sin, shift_x], [sin, cos, shift_y]]])
    grid = functional.affine_grid(matrix, [1, 1, IMAGE_SIZE, IMAGE_SIZE], align_corners=False)
    moved = functional.grid_sample(image[None], grid, align_corners=False)
    soft = functional.avg_pool2d(moved, kernel_size=3, stride=1, padding=1)[0]
    return soft + 0.05 * torch.randn_like(soft)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def load_data() -> tuple[Digits, Digits]:
    raw = load_digits()
    small = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 16
    images = functional.interpolate(small, size=IMAGE_SIZE, mode="bilinear", align_corners=False)
    order = torch.randperm(len(images)).tolist()
    labels = [int(label) for label in raw.target]
    parts = order[360:], order[:360]
    train, held_out = ((images[part], [labels[i] for i in part]) for part in parts)
    return Digits(*train, augment=True), Digits(*held_out, augment=False)


def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, int]]) -> float:
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
    model.train()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(0)
    train, held_out = load_data()
    loader = DataLoader(
        train,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    validation = DataLoader(held_out, batch_size=120)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            loss_sum = 0.0
            for images, labels in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                loss_sum += loss.item()
            right = accuracy(model, validation)
            print(f"epoch {epoch + 1:2d}  loss {loss_sum / len(loader):.3f}  held-out accuracy {right:.1%}")
            torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder) / "checkpoint.pt")


if __name__ == "__main__":
    main()
