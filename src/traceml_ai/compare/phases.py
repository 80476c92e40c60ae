"""Where the time moved: the change of each phase with an interval, and time that only changed its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from traceml_ai.compare.longrun import plausible, precision
from traceml_ai.compare.noise import Estimate, Floor, spread
from traceml_ai.compare.verdict import t_value
from traceml_ai.schema.compare import PhaseChange, Shift
from traceml_ai.schema.summary import StepTimeSection, Summary

# A phase's growth is a shift when it makes up this part of what others lost, or the other way round.
_SHIFTED_PART = 0.2


class _Pair(NamedTuple):
    name: str
    a: list[Estimate]
    b: list[Estimate]


def phase_changes(
    a: Sequence[Summary], b: Sequence[Summary], floor: Floor, step_a_ms: float, step_b_ms: float
) -> list[PhaseChange]:
    """Return the change of every phase, in the order of a step.

    Run-to-run noise is known for the step only. It is split over the phases such that the parts add up again:
    a phase's variance is to the step's as its time is to the step's, so small phases vary more in proportion.

    Args:
        a: The runs of the baseline.
        b: Those of the other side.
        floor: Noise between runs of step time.
        step_a_ms: Mean step time of the baseline.
        step_b_ms: That of the other side.
    """
    names = list(dict.fromkeys(name for summary in (*a, *b) for name in summary.step_time.phases))
    pairs = [_Pair(name, _estimates(a, name), _estimates(b, name)) for name in names]
    # A phase that one side did not see is unknown there, not zero.
    pairs = [pair for pair in pairs if len(pair.a) == len(a) and len(pair.b) == len(b)]
    steps = step_a_ms, step_b_ms
    return [_change(pair, floor, steps, len(pairs)) for pair in pairs]


def _estimates(side: Sequence[Summary], name: str) -> list[Estimate]:
    found = (_estimate(summary.step_time, name) for summary in side)
    return [estimate for estimate in found if estimate is not None]


def _estimate(step: StepTimeSection, name: str) -> Estimate | None:
    stats = step.phases.get(name)
    blocks = [value for value in step.blocks.phases.get(name, []) if value is not None]
    known = precision(blocks, step.blocks.steps_per_block)
    if stats is None or stats.mean_ms is None or stats.coverage is None or known is None:
        return None
    mean_ms = stats.mean_ms * stats.coverage
    return Estimate(mean_ms, known.variance, known.dof) if plausible(mean_ms) else None


def _change(pair: _Pair, floor: Floor, steps: tuple[float, float], tests: int) -> PhaseChange:
    means = [math.fsum(run.value for run in side) / len(side) for side in (pair.a, pair.b)]
    floors = [floor.relative**2 * mean * step for mean, step in zip(means, steps, strict=True)]
    found = spread(pair.a, pair.b, floors[0], floors[1], floor.dof)
    half = t_value(found.dof, tests) * math.sqrt(found.variance)
    change = means[1] - means[0]
    return PhaseChange(
        phase=pair.name,
        a_ms=means[0],
        b_ms=means[1],
        change_ms=change,
        change_pct=100 * change / means[0] if means[0] > 0 else None,
        low_ms=change - half,
        high_ms=change + half,
        clear=abs(change) > half,
    )


def shifts(changes: Sequence[PhaseChange]) -> list[Shift]:
    """Return time that left one phase and turned up in another, the largest first.

    Only clear changes count, and only when what was gained is not a trifle of what was lost, or the reverse.
    """
    clear = [change for change in changes if change.clear]
    left = {change.phase: -change.change_ms for change in clear if change.change_ms < 0}
    came = {change.phase: change.change_ms for change in clear if change.change_ms > 0}
    lost, gained = sum(left.values()), sum(came.values())
    if min(lost, gained) < _SHIFTED_PART * max(lost, gained):
        return []
    return _matched(left, came)


def _matched(left: dict[str, float], came: dict[str, float]) -> list[Shift]:
    """Match the largest loss with the largest gain until one of them is used up."""
    found = []
    while left and came:
        source, target = max(left, key=lambda n: left[n]), max(came, key=lambda n: came[n])
        moved = min(left[source], came[target])
        found.append(Shift(source=source, target=target, ms=moved))
        for amounts, name in ((left, source), (came, target)):
            amounts[name] -= moved
            if amounts[name] <= 0:
                del amounts[name]
    return found
