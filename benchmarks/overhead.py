"""What measuring adds to a step: processes with and without the probe, block by block in turn.

    python benchmarks/overhead.py [--rounds N] [--json]

A round starts three fresh processes with the same loop: untraced, traced with inferred steps (zero
code), and traced with steps marked by ``trace_step``. They take turns, a block of steps each, so that
what else the machine does strikes them alike. A round's figure is the median over its blocks of traced
minus untraced; printed is the median over rounds with a 95 % interval from a bootstrap over rounds
and blocks. Fresh processes, because that is what a user has: taking the probe in and out of one
process empties the interpreter's caches and costs both sides.

Loops: batches of 8 from a ``DataLoader``, one model of 9 and one of 400 modules. Most of the 400 do
nothing, so that the step stays short: what is asked is whether the number of modules matters, and
in a step of ten milliseconds the answer would drown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter

import torch

from traceml_ai import api
from traceml_ai.probe import session

STEPS = 200
BLOCKS = 40
WARM_BLOCKS = 3
WIDTH = 32
WORKING = 9
KINDS = ("untraced", "inferred", "marked")


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


def make_loop(modules: int, *, marked: bool) -> Callable[[], float]:
    """A function that runs one block and returns microseconds per step."""
    model = Net(modules)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.utils.data.TensorDataset(torch.randn(8 * STEPS, WIDTH), torch.randint(0, 10, (8 * STEPS,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    window: Callable[[torch.nn.Module], AbstractContextManager[object]] = (
        api.trace_step if marked else nullcontext
    )

    def block() -> float:
        begin = perf_counter()
        for x, y in loader:
            with window(model):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        return (perf_counter() - begin) / STEPS * 1e6

    return block


def run_here(kind: str, modules: int) -> None:
    """Run a block for every line on standard input, and print its microseconds per step."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as spool:
        if kind != "untraced":
            session.attach(torch, spool)
        block = make_loop(modules, marked=kind == "marked")
        for _ in range(WARM_BLOCKS):
            block()
        for _ in sys.stdin:
            print(block(), flush=True)


class Runner:
    """A fresh process that runs one kind of loop, a block at a time."""

    def __init__(self, kind: str, modules: int) -> None:
        command = [sys.executable, __file__, "--here", kind, str(modules)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def block(self) -> float:
        """Microseconds per step of one block."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("block\n")
        return float(stdout.readline())

    def end(self) -> None:
        """Let the process end, and wait for it."""
        self._process.communicate()


def one_round(modules: int) -> dict[str, list[float]]:
    """Microseconds per step of every block, in turn, by kind."""
    runners = {kind: Runner(kind, modules) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for runner in runners.values():
        runner.block()  # all are warm before the first one counts
    for _ in range(BLOCKS):
        for kind, runner in runners.items():
            times[kind].append(runner.block())
    for runner in runners.values():
        runner.end()
    return times


def measure(modules: int, rounds: int) -> list[dict[str, object]]:
    """One row for each way of telling steps; microseconds."""
    all_rounds = [one_round(modules) for _ in range(rounds)]
    return [row(modules, kind, all_rounds) for kind in KINDS[1:]]


def row(modules: int, kind: str, rounds: list[dict[str, list[float]]]) -> dict[str, object]:
    """What one kind of steps costs."""
    differences = [[b - a for a, b in zip(times["untraced"], times[kind], strict=True)] for times in rounds]
    low, high = bootstrap(differences)
    return {
        "modules": modules,
        "steps": kind,
        "step_us": statistics.median(t for times in rounds for t in times["untraced"]),
        "added_us": center(differences),
        "low_us": low,
        "high_us": high,
    }


def center(rounds: list[list[float]]) -> float:
    """Median over rounds of the median over blocks."""
    return statistics.median(statistics.median(blocks) for blocks in rounds)


def bootstrap(rounds: list[list[float]], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of `center`: rounds are drawn, and blocks within them."""
    chance = random.Random(0)

    def draw() -> float:
        drawn = chance.choices(rounds, k=len(rounds))
        return center([chance.choices(blocks, k=len(blocks)) for blocks in drawn])

    values = sorted(draw() for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws)]


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
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", nargs=2, metavar=("KIND", "MODULES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options.here[0], int(options.here[1]))
        return
    rows = [one for modules in (9, 400) for one in measure(modules, options.rounds)]
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return
    print(machine())
    print(f"{'modules':>8} {'steps':>9} {'step us':>9} {'added us':>9}   95 % interval")
    for one in rows:
        print(
            "{modules:8d} {steps:>9} {step_us:9.1f} {added_us:9.1f}   [{low_us:.1f}, {high_us:.1f}]".format(
                **one
            )
        )


if __name__ == "__main__":
    main()
