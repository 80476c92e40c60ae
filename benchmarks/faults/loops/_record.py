"""What a struck training says of itself: unbuffered lines in a file of its own, nothing of TraceML's.

``pid``: before torch is imported. ``worker``: a loader worker's. ``step N LOSS TIME``: step N is closed,
with its loss to the last bit. ``done``: the last statement was reached.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

SCRATCH_BYTES = 64 << 20
"""Asked for anew in every step: what a lack of memory meets."""


class Record:
    """The lines of one process; ``FAULTS_OUT`` names the folder."""

    def __init__(self, name: str | None = None) -> None:
        self.out = Path(os.environ["FAULTS_OUT"])
        self.steps = int(os.environ.get("FAULTS_STEPS", "60"))
        self.pause_s = float(os.environ.get("FAULTS_PAUSE_S", "0.01"))
        self.workers = int(os.environ.get("FAULTS_WORKERS", "0"))
        rank = os.environ.get("RANK", "0")
        path = self.out / f"rec-{name or rank}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.say(f"pid {os.getpid()}")

    def say(self, line: str) -> None:
        os.write(self._descriptor, line.encode() + b"\n")

    def worker(self, _number: int) -> None:
        """For ``worker_init_fn``."""
        self.say(f"worker {os.getpid()}")

    def step(self, number: int, loss: float) -> None:
        self.say(f"step {number} {float(loss).hex()} {time.monotonic_ns()}")
        if (self.out / "eat").exists():  # the strike that lets the kernel run out of memory
            _eaten.append(bytearray(os.urandom(1) * (256 << 20)))

    def done(self) -> None:
        self.say("done")


_eaten: list[bytearray] = []
