"""The summary of a process as it can see itself, while it runs: for ``traceml.final_summary()``.

The one place where the analysis runs in the training process, because the script asked for it.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import msgspec

import traceml_ai
from traceml_ai.collect.collector import run_info
from traceml_ai.collect.files import Files
from traceml_ai.collect.limits import read_machine
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.schema import env
from traceml_ai.spool.runfolder import Manifest, read_manifest


def summarize_process(spool: str, origin: tuple[int, int], folder: str | None = None) -> dict[str, Any]:
    """Summarise the steps this process recorded so far.

    Args:
        spool: The run's spool folder.
        origin: When the probe attached, ``perf_counter_ns`` and nanoseconds since the epoch: the
            start when nothing else tells.
        folder: The run folder, when the environment does not name it.

    Returns:
        The content of ``final_summary.json`` as plain values. What only the collector samples
        (processor and memory use) is ``None``.
    """
    notes = Notes()
    tail = Tail(Path(spool), notes, only=os.getpid())
    tail.finish()
    run = run_info(
        _manifest(spool, origin, folder or os.environ.get(env.RUN_DIR)),
        "running",
        None,
        end_ns=time.perf_counter_ns(),
        machine=read_machine(Files(notes=notes), os.environ),
        warnings=notes.messages(),
    )
    return cast("dict[str, Any]", msgspec.to_builtins(summarize(run, tail.inputs(), [])))


def _manifest(spool: str, origin: tuple[int, int], folder: str | None) -> Manifest:
    """Return the run's manifest, or what this process can say of itself without one."""
    if folder:
        try:
            return read_manifest(Path(folder))
        except TraceMLError:
            pass
    return Manifest(
        name=Path(folder or spool).name,
        traceml_version=traceml_ai.__version__,
        command=[],
        cwd="",
        spool=spool,
        started_at=datetime.fromtimestamp(origin[1] / 1e9, timezone.utc).isoformat(timespec="seconds"),
        start_ns=origin[0],
        interval_s=0.0,
        hostname="",
        uid=None,
        launcher_pid=0,
        launcher_birth=None,
    )
