"""Spool folders with logs in them, written by the real writer."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from traceml_ai.schema.step import COLUMNS, Observed
from traceml_ai.spool import layout
from traceml_ai.spool.runfolder import Manifest
from traceml_ai.spool.writer import Identity, StepLogWriter

MS = 1_000_000
SEEN = Observed.INPUT | Observed.FORWARD | Observed.BACKWARD | Observed.OPTIMIZER


def writer(folder: Path, pid: int | None = None, *, capacity: int = 1024) -> StepLogWriter:
    """Start the log of a process."""
    who = Identity(pid or os.getpid(), -1, -1, -1, time.perf_counter_ns(), time.time_ns())
    return StepLogWriter(str(folder), who, capacity=capacity)


def steps(log: StepLogWriter, count: int, *, begin_ns: int = 0, first: int = 0) -> int:
    """Append steps of 10 ms each: 4 input wait, 2 forward, 3 backward, 1 optimizer. Return their end."""
    for step in range(first, first + count):
        record = dict.fromkeys(COLUMNS, 0)
        record.update(
            step=step,
            begin_ns=begin_ns,
            open_ns=begin_ns + 4 * MS,
            close_ns=begin_ns + 10 * MS,
            input_wait_ns=4 * MS,
            forward_ns=2 * MS,
            backward_ns=3 * MS,
            optimizer_ns=1 * MS,
            microbatches=1,
            updates=1,
            fetches=1,
            global_step=-1,
            observed=int(SEEN),
        )
        log.append([record[name] for name in COLUMNS])
        begin_ns += 10 * MS
    return begin_ns


def facts(folder: Path, pid: int, **known: object) -> None:
    """Write what a process says about itself."""
    (folder / layout.facts_name(pid)).write_text(json.dumps({"pid": pid, **known}))


def manifest(spool: Path | None, **known: object) -> Manifest:
    """Return the manifest of a run, of this process as launcher and child if not said otherwise."""
    plain = Manifest(
        name="base",
        traceml_version="0",
        command=["python", "train.py"],
        cwd="/",
        spool=None if spool is None else str(spool),
        started_at="2026-01-31T14:25:01+00:00",
        start_ns=0,
        interval_s=1.0,
        hostname="host",
        uid=os.getuid(),
        launcher_pid=os.getpid(),
        launcher_birth=None,
        child_pid=os.getpid(),
    )
    return plain._replace(**known)  # type: ignore[arg-type]
