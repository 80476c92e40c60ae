"""Loops that take turns: what one costs more than another, without what else the machine does.

Each kind of loop runs in a process of its own, a block of steps at a time. While one runs the others
wait, so that a busy minute strikes all of them. The processes are forked from one that has imported
what they all need, and nothing of ours: two fresh interpreters hash strings and lay out their memory
differently, and that alone makes ten microseconds of a step either way. One kind should be the base
once more: how far it is from the base says what the figures are worth.

The figure of a round is the median over its blocks of a kind's time minus the base's in the same block;
a round has new processes. A kind's figure is the median over rounds, with a 95 % interval from a bootstrap
over rounds and blocks.
"""

from __future__ import annotations

import os
import random
import statistics
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

STEPS = 200
WARM_BLOCKS, WARM_STEPS = 4, 40


class Turn:
    """A loop's turns. It calls this after every step."""

    def __init__(self, go: int, tell: int, steps: int) -> None:
        self._go, self._tell, self._steps = go, tell, steps
        self._left = steps
        self._wait()

    def __call__(self, *_args: Any) -> None:
        """A step is over; with the last one of a block, the turn is."""
        self._left -= 1
        if not self._left:
            spent = perf_counter() - self._begin, thread_time() - self._begin_cpu
            os.write(self._tell, struct.pack("dd", *(s / self._steps * 1e6 for s in spent)))
            self._left = self._steps
            self._wait()

    def _wait(self) -> None:
        if os.read(self._go, 1) != b"g":
            os._exit(0)
        self._begin, self._begin_cpu = perf_counter(), thread_time()


Loop = Callable[[Turn, str], None]
"""Runs until the turn ends the process; gets it, and a folder for what it writes."""


class Spent(NamedTuple):
    """Microseconds per step."""

    wall: float
    cpu: float


class _Runner:
    """A process that runs one loop, and ends when this one does.

    Args:
        loop: What it runs.
        folder: For what the loop writes.
        steps: Of a turn.
        earlier: The runners that were made before.
    """

    def __init__(self, loop: Loop, folder: str, steps: int, earlier: Iterable[_Runner]) -> None:
        heard, self._go = os.pipe()
        self._told, tell = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            # Held open by a child, these would keep the others waiting for a parent that is gone.
            for runner in (*earlier, self):
                runner.let_go()
            try:
                loop(Turn(heard, tell, steps), folder)
            except BaseException:  # noqa: BLE001 - told, and then the process ends
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(heard)
        os.close(tell)

    def block(self) -> Spent:
        os.write(self._go, b"g")
        told = os.read(self._told, 16)
        if len(told) != 16:
            raise SystemExit("a loop of the benchmark ended early; its error is above")
        return Spent(*struct.unpack("dd", told))

    def end(self) -> None:
        self.let_go()  # nothing more to read: it ends
        os.waitpid(self._pid, 0)

    def let_go(self) -> None:
        os.close(self._go)
        os.close(self._told)


Blocks = dict[str, list[Spent]]
"""By kind, in the order of the blocks."""


def one_round(loops: dict[str, Loop], blocks: int, steps: int, chance: random.Random) -> Blocks:
    """New processes, and their blocks in turn."""
    kinds = list(loops)
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        runners: dict[str, _Runner] = {}
        for kind in chance.sample(kinds, len(kinds)):
            own = Path(folder) / kind.replace(" ", "_")
            own.mkdir()
            runners[kind] = _Runner(loops[kind], str(own), steps, runners.values())
        for _ in range(max(WARM_BLOCKS, -(-WARM_STEPS // steps))):
            for runner in runners.values():
                runner.block()
        found: Blocks = {kind: [] for kind in kinds}
        for _ in range(blocks):
            for kind in chance.sample(kinds, len(kinds)):
                found[kind].append(runners[kind].block())
        for runner in runners.values():
            runner.end()
    return found


class Row(NamedTuple):
    """What one kind costs beyond the base; microseconds per step."""

    kind: str
    base: float
    added: float
    low: float
    high: float
    added_cpu: float


def measure(loops: dict[str, Loop], rounds: int, blocks: int, steps: int = STEPS) -> list[Row]:
    """A row for every kind but the first, which is the base.

    Args:
        loops: What is compared.
        rounds: How often with new processes.
        blocks: Turns of each process that count.
        steps: Of a turn.
    """
    chance = random.Random(0)
    base, *others = loops
    found = [one_round(loops, blocks, steps, chance) for _ in range(rounds)]
    return [_row(kind, base, found, chance) for kind in others]


def _row(kind: str, base: str, found: list[Blocks], chance: random.Random) -> Row:
    added, added_cpu = (
        [[b[i] - a[i] for a, b in zip(blocks[base], blocks[kind], strict=True)] for blocks in found]
        for i in (0, 1)
    )
    spent = statistics.median(s.wall for blocks in found for s in blocks[base])
    return Row(kind, spent, _center(added), *_interval(added, chance), _center(added_cpu))


def _center(rounds: list[list[float]]) -> float:
    return statistics.median(statistics.median(blocks) for blocks in rounds)


def _interval(rounds: list[list[float]], chance: random.Random, draws: int = 2000) -> tuple[float, float]:
    """95 % interval of `_center`: rounds are drawn, and blocks within them."""

    def draw() -> float:
        drawn = chance.choices(rounds, k=len(rounds))
        return _center([chance.choices(blocks, k=len(blocks)) for blocks in drawn])

    values = sorted(draw() for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws)]


def attach(folder: str) -> None:
    """Measure this process as ``traceml run`` does, writing into ``folder``."""
    import torch

    from traceml_ai.hook import frameworks
    from traceml_ai.probe import session

    session.attach(torch, folder)
    frameworks.watch()


def traced(loop: Loop) -> Loop:
    """The same loop, measured."""

    def measured(turn: Turn, folder: str) -> None:
        attach(folder)
        loop(turn, folder)

    return measured


HEAD = f"{'':<42} {'added us':>9}   {'95 % interval':<16} {'processor us':>12}"


def line(name: str, row: Row) -> str:
    """A row of the table under `HEAD`."""
    return (
        f"{name:<42} {row.added:9.1f}   [{row.low:.1f}, {row.high:.1f}]".ljust(72) + f"{row.added_cpu:12.1f}"
    )
