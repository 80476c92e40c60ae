"""What the loops of the cost table share: the model and its ballast, and a clock where no turns are taken."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter

import torch

WIDTH = 32
LAYERS = 9
WARM = 0.2  # of the steps


class Net(torch.nn.Module):
    """A chain of small layers, and ``ballast`` matrix products that make a step as long as is wanted."""

    def __init__(self, ballast: int) -> None:
        super().__init__()
        layers = [torch.nn.ReLU() if i % 2 else torch.nn.Linear(WIDTH, WIDTH) for i in range(LAYERS)]
        self.layers = torch.nn.Sequential(*layers)
        self.ballast = ballast
        self.register_buffer("weight", torch.full((128, 128), 1e-3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(batch, 32)`` to ``(batch, 32)``."""
        weight: torch.Tensor = self.get_buffer("weight")
        with torch.no_grad():
            for _ in range(self.ballast):
                weight @ weight
        y: torch.Tensor = self.layers(x)
        return y


Window = Callable[[torch.nn.Module], AbstractContextManager[object]]


def train(
    model: torch.nn.Module,
    steps: int,
    ended: Callable[[], None],
    *,
    epochs: int = 1,
    window: Window = nullcontext,
) -> None:
    """Train epochs of so many steps, each step inside ``window``; ``ended`` is called after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(data(steps), batch_size=8)
    for _ in range(epochs):
        for x, y in loader:
            with window(model):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            ended()


class Steps:
    """When each step ended."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def end(self, *_args: object) -> None:
        """A step ended."""
        self.at.append(perf_counter())

    def tell(self) -> None:
        """Print the median step in microseconds; the first fifth of them is left out."""
        first = int(len(self.at) * WARM)
        spans = [b - a for a, b in zip(self.at[first:], self.at[first + 1 :], strict=False)]
        print("US", statistics.median(spans) * 1e6, flush=True)


def asked() -> tuple[int, int]:
    """The command line: steps and ballast."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return int(sys.argv[1]), int(sys.argv[2])


def data(steps: int) -> torch.utils.data.TensorDataset:
    """Eight samples a step."""
    return torch.utils.data.TensorDataset(torch.randn(8 * steps, WIDTH), torch.randint(0, 10, (8 * steps,)))
