"""What measuring adds to a step of a plain loop on the CPU.

    python benchmarks/overhead.py [--rounds N] [--json]

Untraced (twice: the second shows what the figures are worth), traced with inferred steps (zero code),
and traced with steps marked by ``trace_step``; how they are compared is in ``_lockstep.py``.

Loops: batches of 8 from a ``DataLoader``, one model of 9 and one of 400 modules. Most of the 400 do
nothing, so that the step stays short: what is asked is whether the number of modules matters, and
in a step of ten milliseconds the answer would drown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import _lockstep
import torch

ROUNDS = 20
BLOCKS = 12
WIDTH = 32
WORKING = 9
MODULES = (9, 400)
BUDGET_US = 15


class Net(torch.nn.Module):
    """A chain of small layers, ``modules`` of them below one container."""

    def __init__(self, modules: int) -> None:
        super().__init__()
        working = [torch.nn.ReLU() if i % 2 else torch.nn.Linear(WIDTH, WIDTH) for i in range(WORKING)]
        idle = [torch.nn.Identity() for _ in range(modules - WORKING)]
        self.layers = torch.nn.Sequential(*working, *idle)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(batch, 32)`` to ``(batch, 32)``."""
        return self.layers(x)


Window = Callable[[torch.nn.Module], AbstractContextManager[object]]


def train(modules: int, turn: _lockstep.Turn, window: Window = nullcontext) -> None:
    """The loop, one epoch a turn."""
    model = Net(modules)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    n = 8 * _lockstep.STEPS
    data = torch.utils.data.TensorDataset(torch.randn(n, WIDTH), torch.randint(0, 10, (n,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    while True:
        for x, y in loader:
            with window(model):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            turn()


def loops(modules: int) -> dict[str, _lockstep.Loop]:
    """What is compared."""

    def untraced(turn: _lockstep.Turn, _folder: str) -> None:
        train(modules, turn)

    def marked(turn: _lockstep.Turn, folder: str) -> None:
        _lockstep.attach(folder)
        from traceml_ai import trace_step

        train(modules, turn, trace_step)

    return {
        "untraced": untraced,
        "untraced again": untraced,
        "inferred": _lockstep.traced(untraced),
        "marked": marked,
    }


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
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {modules: _lockstep.measure(loops(modules), options.rounds, BLOCKS) for modules in MODULES}
    if options.json:
        rows = [{"modules": modules, **row._asdict()} for modules, rows in found.items() for row in rows]
        print(json.dumps({"machine": machine(), "rows": rows}))
        return
    print(machine())
    print(f"{_lockstep.HEAD}   (budget {BUDGET_US})")
    for modules, rows in found.items():
        for row in rows:
            print(_lockstep.line(f"{modules} modules, {row.base:.0f} us untraced: {row.kind}", row))


if __name__ == "__main__":
    main()
