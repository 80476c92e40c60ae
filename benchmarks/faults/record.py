"""What a training process said of itself; `loops/_record.py` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """What one training process wrote of itself."""

    pid: int
    steps: list[tuple[int, str, int]]  # number, loss, when
    workers: list[int]
    ended: dict[str, int]  # of a forked job: what ended each child
    done: bool


def read(path: Path) -> Process:
    """Read the lines that are whole."""
    pid, steps, workers, ended, done = 0, [], [], {}, False
    text = path.read_text()
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, *values = line.split()
        if word == "pid":
            pid = int(values[0])
        elif word == "worker":
            workers.append(int(values[0]))
        elif word == "step":
            steps.append((int(values[0]), values[1], int(values[2])))
        elif word == "ended":
            ended[values[0]] = int(values[1])
        done = done or word == "done"
    return Process(pid, steps, workers, ended, done)
