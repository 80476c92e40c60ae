"""The summary of a run whose collector did not live to write it, from the step log."""

from __future__ import annotations

import time
from pathlib import Path

from traceml_ai.collect.collector import run_info
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.diagnose.summarize import RankInput, summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.schema.run import Status
from traceml_ai.schema.samples import MachineFacts
from traceml_ai.schema.summary import Summary
from traceml_ai.spool.meeting import read_joined
from traceml_ai.spool.runfolder import Manifest, is_alive

COLLECTOR_GONE = (
    "rebuilt from the step log: the collector ended before the run, so processor and memory use and the exit "
    "code are not known"
)


def rebuild(manifest: Manifest, *, over_ns: int | None = None, remark: str = COLLECTOR_GONE) -> Summary:
    """Make the summary of a run from its manifest and step log.

    Args:
        manifest: The run's ``run.json``.
        over_ns: When the run ended, though its process may still wait for its summary.
        remark: Why there is no more than the step log.

    Returns:
        The summary; ``running`` while the training process lives. What the collector would have
        sampled is n/a, and so is the exit code.

    Raises:
        TraceMLError: The step log is gone.
    """
    if manifest.spool is None or not Path(manifest.spool).is_dir():
        raise TraceMLError(
            f"the step log of run {manifest.name!r} is gone (it was in {manifest.spool}), "
            "so the summary can't be rebuilt"
        )
    notes = Notes()
    notes.add("rebuilt", remark)
    alive = over_ns is None and _is_going_on(manifest)
    tail = Tail(Path(manifest.spool), notes)
    tail.poll() if alive else tail.finish()
    inputs = tail.inputs()
    status: Status = "running" if alive else status_of(inputs)
    end_ns = over_ns or (time.perf_counter_ns() if alive else _last_sign_of_life(manifest, inputs))
    machine = MachineFacts(**manifest.machine) if manifest.machine else None
    run = run_info(manifest, status, None, end_ns=end_ns, machine=machine, warnings=notes.messages())
    return summarize(run, inputs, [])


def _is_going_on(manifest: Manifest) -> bool:
    """Whether the process that was started lives, or one that came to the collector by itself."""
    if is_alive(manifest.child_pid, manifest.child_birth):
        return True
    came = [] if manifest.spool is None else read_joined(Path(manifest.spool))
    return any(is_alive(joined.pid, joined.birth) for joined in came)


def status_of(inputs: list[RankInput]) -> Status:
    """Return how a dead run ended as far as its processes could say themselves."""
    if any(rank.facts.get("exception") for rank in inputs):
        return "failed"
    ended = [rank.facts.get("clean_exit", False) for rank in inputs]
    return "completed" if ended and all(ended) else "killed"


def _last_sign_of_life(manifest: Manifest, inputs: list[RankInput]) -> int:
    closes = [rank.aggregate.last_close_ns for rank in inputs]
    return max([manifest.start_ns, *(close for close in closes if close is not None)])
