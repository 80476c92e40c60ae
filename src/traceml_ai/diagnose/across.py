"""The ranks of a run beside one another, as signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from traceml_ai.analyze.breakdown import Clock
from traceml_ai.analyze.ranks import Lockstep, RankPart, align
from traceml_ai.analyze.stragglers import find_straggling, scores, what_if
from traceml_ai.diagnose.signals import RankFacts


class RankLike(NamedTuple):
    """A rank that takes part in the comparison."""

    part: RankPart
    rank: int
    node: str | None


class Compared(NamedTuple):
    """What the per-rank table shows of one rank; ``None``: not compared, or not measured."""

    work_ns: float | None = None
    wait_ns: float | None = None
    transfer_ns: float | None = None
    score: float | None = None


class Across(NamedTuple):
    """The comparison: the signals, and each given rank's own figures."""

    facts: RankFacts
    rows: list[Compared]
    members: frozenset[int] = frozenset()  # which of the rows belong to the process group


def compare_ranks(ranks: Sequence[RankLike], clock: Clock) -> Across | None:
    """Compare the ranks of one process group; ``None`` when there is nothing to compare."""
    parts = [each.part for each in ranks]
    lockstep = align(parts, clock)
    if lockstep is None:
        return None
    straggling = find_straggling(lockstep)
    if straggling is None and not all(part.aggregate.complete for part in parts):
        # In a bucket of many steps ranks that are late in turn look alike: look at single steps.
        newest = align(parts, clock, recent=True)
        found = find_straggling(newest) if newest is not None and newest.ranks == lockstep.ranks else None
        straggling = found if found is not None and found.persistence != "steady" else None
    stood = lockstep.wait_ns + lockstep.transfer_ns
    facts = RankFacts(
        ranks=[ranks[i].rank for i in lockstep.ranks],
        nodes=[ranks[i].node for i in lockstep.ranks],
        first_step=lockstep.first_step,
        last_step=lockstep.last_step,
        measured=lockstep.measured,
        straggling=straggling,
        what_if=what_if(lockstep),
        transfer_ns=float(lockstep.mean(lockstep.transfer_ns)) if lockstep.measured else None,
        stood_ns=float(lockstep.mean(stood).mean()) if lockstep.measured else None,
        step_ns=float(lockstep.mean(lockstep.work_ns + lockstep.wait_ns).mean()),
        stood_by_phase_ns=lockstep.stood_by_phase_ns,
    )
    return Across(facts, _rows(lockstep, len(ranks)))


def _rows(lockstep: Lockstep, count: int) -> list[Compared]:
    rows = [Compared()] * count
    work, wait = lockstep.mean(lockstep.work_ns), lockstep.mean(lockstep.wait_ns)
    transfer = float(lockstep.mean(lockstep.transfer_ns)) if lockstep.measured else None
    for position, score in enumerate(scores(lockstep)):
        rows[lockstep.ranks[position]] = Compared(
            float(work[position]), float(wait[position]), transfer, score
        )
    return rows
