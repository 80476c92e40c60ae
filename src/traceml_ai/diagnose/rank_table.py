"""The per-rank part of the summary: a row for each rank, and figures over all of them.

With many ranks the rows are those that say something: the first, the worst and the most typical ones;
all ranks are in the figures over them.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceml_ai.analyze.breakdown import BETWEEN
from traceml_ai.diagnose.across import Across, Compared
from traceml_ai.diagnose.ends import ended
from traceml_ai.diagnose.provider import MANY_RANKS, RunView
from traceml_ai.diagnose.signals import RankFacts
from traceml_ai.schema.run import PID_SPACE, RunInfo
from traceml_ai.schema.summary import AcrossRanks, RankRow, Spread

# Of more than MANY_RANKS so many of the slowest are listed, and so many in the middle.
_WORST, _TYPICAL = 32, 8

_PHASES = ("input_wait", "h2d", "forward", "backward", "optimizer", "residual", BETWEEN)
_MS = 1e6


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / _MS, 6)


def rank_rows(run: RunInfo, view: RunView) -> list[RankRow]:
    """Return the rows of the table, by rank."""
    compared = view.across.rows if view.across else [Compared()] * len(view.ranks)
    return [_row(run, view, i, compared[i]) for i in listed(view)]


def listed(view: RunView) -> list[int]:
    """Return which ranks get a row: all, or of many the first, the worst and the most typical."""
    count = len(view.ranks)
    if count <= MANY_RANKS:
        return list(range(count))
    order = np.argsort([-_weight(view, i) for i in range(count)], kind="stable")
    middle = count // 2
    picked = {0, *order[:_WORST].tolist(), *order[middle : middle + _TYPICAL].tolist()}
    return sorted(picked)


def _weight(view: RunView, i: int) -> float:
    work = view.across.rows[i].work_ns if view.across else None
    breakdown = view.ranks[i].breakdown
    if work is not None:
        return work
    return breakdown.loop_ns if breakdown else 0.0


def _row(run: RunInfo, view: RunView, i: int, compared: Compared) -> RankRow:
    rank = view.ranks[i]
    breakdown = rank.breakdown
    row = RankRow(
        rank=rank.rank,
        pid=None if rank.pid is None else rank.pid % PID_SPACE,
        steps=rank.given.aggregate.count,
        node=rank.given.facts.get("node"),
        left_out=_left_out(view, i),
        ended=ended(run, rank),
    )
    if breakdown is None:
        return row
    measured = {f"{phase}_ms": _ms(breakdown.per_step_ns(phase)) for phase in _PHASES}
    return replace(
        row,
        step_ms=_ms(breakdown.step_ns),
        median_step_ms=_ms(breakdown.median_step_ns),
        work_ms=_ms(compared.work_ns),
        wait_ms=_ms(compared.wait_ns),
        transfer_ms=_ms(compared.transfer_ns),
        score=None if compared.score is None else round(compared.score, 4),
        **measured,
    )


def _left_out(view: RunView, i: int) -> str | None:
    across = view.across
    if across is None or across.rows[i].work_ns is not None:
        return None
    if i not in across.members:
        return "not of this job"
    return "no steps" if view.ranks[i].given.aggregate.count == 0 else "too few steps beside the others"


def across_ranks(view: RunView) -> AcrossRanks | None:
    """Return the figures over all compared ranks; ``None`` when there is nothing to compare."""
    across = view.across
    if across is None:
        return None
    facts = across.facts
    return AcrossRanks(
        compared=len(facts.ranks),
        listed=len(listed(view)),
        first_step=facts.first_step,
        last_step=facts.last_step,
        waiting_measured=facts.measured,
        step_ms=_ms(facts.what_if.step_ns),
        ideal_step_ms=_ms(facts.what_if.ideal_ns),
        slowdown_ratio=round(facts.what_if.slowdown, 4),
        from_slowest_pct=_from_slowest(facts),
        transfer_ms=_ms(facts.transfer_ns),
        wait_ms=None if facts.stood_ns is None else _ms(facts.stood_ns - (facts.transfer_ns or 0.0)),
        phases=_spreads(view, across),
    )


def _from_slowest(facts: RankFacts) -> float | None:
    part = facts.what_if.from_slowest
    return None if part is None else round(100 * part, 2)


def _spreads(view: RunView, across: Across) -> dict[str, Spread]:
    figures: dict[str, list[tuple[float, int]]] = {}
    for rank, compared in zip(view.ranks, across.rows, strict=True):
        if compared.work_ns is None or rank.breakdown is None:
            continue
        named = {"work": compared.work_ns, "wait": compared.wait_ns, "step": rank.breakdown.step_ns}
        named |= {phase: rank.breakdown.per_step_ns(phase) for phase in _PHASES}
        for name, value in named.items():
            if value is not None:
                figures.setdefault(name, []).append((value, rank.rank or 0))
    return {name: _spread(values) for name, values in figures.items()}


def _spread(values: list[tuple[float, int]]) -> Spread:
    middle = float(np.median([value for value, _ in values]))
    worst, rank = max(values, key=lambda each: each[0])
    return Spread(
        median_ms=_ms(middle),
        worst_ms=_ms(worst),
        worst_rank=rank,
        skew_pct=round(100 * (worst / middle - 1), 2) if middle else None,
    )
