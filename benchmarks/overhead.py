"""What measuring adds to a step: the same loop with and without the probe, interleaved.

    python benchmarks/overhead.py [--pairs N] [--json]

In one process, blocks of steps alternate between *off* (every call is torch's own) and *on*. The
first steps of each block are not counted: replacing a method empties the interpreter's caches. The
figure is the median over pairs of (on - off) per step, with a 95 % interval from a bootstrap over
pairs. Loops: a small model of 9 and one of 400 modules, batches of 8 from a ``DataLoader``, steps
inferred (zero code) or marked with ``trace_step``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
from collections.abc import Callable
from time import perf_counter

import torch

from traceml_ai import api
from traceml_ai.probe import session as sessions

STEPS = 200
SKIPPED = 60


class Net(torch.nn.Module):
    """A chain of small layers, ``modules`` of them below one container."""

    def __init__(self, modules: int) -> None:
        super().__init__()
        width = 32
        self.layers = torch.nn.Sequential(
            *(torch.nn.ReLU() if i % 2 else torch.nn.Linear(width, width) for i in range(modules))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(batch, 32)`` to ``(batch, 32)``."""
        return self.layers(x)


def make_loop(modules: int, *, marked: bool) -> Callable[[], float]:
    """A function that runs one block and returns seconds per counted step."""
    model = Net(modules)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.utils.data.TensorDataset(torch.randn(8 * STEPS, 32), torch.randint(0, 10, (8 * STEPS,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def block() -> float:
        begin = 0.0
        for i, (x, y) in enumerate(loader):
            if i == SKIPPED:
                begin = perf_counter()
            if marked:
                with api.trace_step(model):
                    step(x, y)
            else:
                step(x, y)
        return (perf_counter() - begin) / (STEPS - SKIPPED)

    return block


def measure(modules: int, *, marked: bool, pairs: int, spool: str) -> dict[str, float]:
    """Interleave blocks; microseconds."""
    session = sessions.Session(torch, spool, late=True)
    sessions.current = session
    plain = make_loop(modules, marked=False)
    traced = make_loop(modules, marked=marked)
    # Model and optimizer of both loops exist before anything is patched, as `init` allows.
    off, on = [], []
    for _ in range(pairs + 1):
        off.append(plain())
        session.reinstall(sessions.Which())
        on.append(traced())
        session.uninstall()
    differences = [(b - a) * 1e6 for a, b in zip(off[1:], on[1:], strict=True)]
    low, high = bootstrap(differences)
    return {
        "step_us": statistics.median(off[1:]) * 1e6,
        "added_us": statistics.median(differences),
        "low_us": low,
        "high_us": high,
    }


def bootstrap(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the median."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def machine() -> str:
    """One line on where this ran."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.2f}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for modules in (9, 400):
        for marked in (False, True):
            # A step of the large model takes some twenty times as long.
            pairs = options.pairs if modules < 100 else max(10, options.pairs // 4)
            with tempfile.TemporaryDirectory() as spool:
                row = measure(modules, marked=marked, pairs=pairs, spool=spool)
            rows.append({"modules": modules, "steps": "marked" if marked else "inferred", **row})
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return
    print(machine())
    print(f"{'modules':>8} {'steps':>9} {'step us':>9} {'added us':>9}   95 % interval")
    for row in rows:
        print(
            f"{row['modules']:8d} {row['steps']:>9} {row['step_us']:9.1f} {row['added_us']:9.1f}   "
            f"[{row['low_us']:.1f}, {row['high_us']:.1f}]"
        )


if __name__ == "__main__":
    main()
