"""How the ranks of a run ended, and which of them ended it."""

from __future__ import annotations

import signal
from typing import NamedTuple

from traceml_ai.diagnose import words
from traceml_ai.diagnose.provider import RankView, RunView
from traceml_ai.schema.run import Death, RunInfo

_SIGNAL_BITS = 0x7F


class Ending(NamedTuple):
    """The rank that ended the run."""

    ended_by: str
    exception: str | None


def ending(run: RunInfo, view: RunView) -> Ending | None:
    """Return which of several ranks ended the run: the first that did not end in order.

    What comes after it is its doing: the others lose their connection, or are stopped by the launcher.
    """
    if len(view.ranks) < 2 or run.status in {"completed", "running"}:  # noqa: PLR2004 - several
        return None
    by_pid = {rank.pid: rank for rank in view.ranks}
    for death in sorted(run.deaths, key=lambda death: death.t_ns):
        rank = by_pid.get(death.pid)
        how = None if rank is None else _how(rank, death)
        if rank is not None and how is not None:
            return Ending(_sentence(rank, how), rank.given.facts.get("exception"))
    return None


def ended(run: RunInfo, rank: RankView) -> str | None:
    """Return how a rank ended: its exception, its signal, its exit code; ``None``: in order, or not known."""
    death = next((death for death in run.deaths if death.pid == rank.pid), None)
    return rank.given.facts.get("exception") if death is None else _how(rank, death)


def _how(rank: RankView, death: Death) -> str | None:
    exception = rank.given.facts.get("exception")
    status = death.status
    if status is None:
        in_order = rank.given.facts.get("clean_exit", False) and exception is None
        return None if in_order else exception or "unknown"
    if status & _SIGNAL_BITS:
        return _signal(status & _SIGNAL_BITS)
    if status == 0:
        return None
    return exception or f"exit code {status >> 8}"


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _sentence(rank: RankView, how: str) -> str:
    name = "a training process" if rank.rank is None else f"rank r{rank.rank}"
    if how == "unknown":
        did = "ended, not known why,"
    elif how.startswith(("SIG", "signal ")):
        did = f"died of {how}"
    else:
        did = f"ended with {how}"
    return f"{name} {did} after {words.plural(rank.given.aggregate.count, 'step')}"
