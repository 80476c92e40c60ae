"""SLOWDOWN: from some step on every step takes longer, to the end."""

from __future__ import annotations

from math import inf

from traceml_ai.analyze.drift import COLLECTIVES, Drift
from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, severity_of
from traceml_ai.diagnose.neighbours import others_busy
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "SLOWDOWN"

# Steps on a shared machine drift by ten percent or so without any reason in the script.
RATIO = 1.2
# It lasts: every third of the time after it is slower than all that.
LATE_RATIO = 1.1
# Nearly every stretch after is slower than nearly every stretch before, or, of a phase that grew alone,
# takes more of the step: bursts of other programs on the machine hide the first but not the second.
SUPERIORITY = 0.9
# When every phase grows alike it is the machine, and other programs easily take half of a small one.
RATIO_ALL_ALIKE = 2.0
# Other programs keep the host busy: then single phases drift by half, and that all did is no news.
RATIO_BUSY = 1.75
# The other phases grew by less than this part of what the phase did, both relative to their size: a
# busier machine slows them all, some a little more than others.
_OTHERS_PART = 0.3
# Below, a change is jitter of the clock and the scheduler.
LEAST_GROWTH_NS = 2e5
# So long it must have lasted: another program's burst does not show as one within a fraction of a second.
LEAST_TIME_NS = 1e9


def meets_conditions(signals: Signals) -> bool:
    """The step got slower by a fifth, stayed so, and one phase did it (or all doubled)."""
    drift = signals.drift
    if drift is None or not signals.enough_steps or drift.before_ns <= 0:
        return False
    one = one_phase_grew(drift)
    superiority = max(drift.superiority, drift.share_superiority if one else 0.0)
    return (
        drift.after_ns / drift.before_ns >= _least_ratio(signals, one=one)
        and drift.after_ns - drift.before_ns >= LEAST_GROWTH_NS
        and drift.after_ns * drift.steps_after >= LEAST_TIME_NS
        and drift.lowest_late_ns >= LATE_RATIO * drift.before_ns
        and superiority >= SUPERIORITY
    )


def _least_ratio(signals: Signals, *, one: bool) -> float:
    if others_busy(signals):
        return RATIO_BUSY if one else inf
    return RATIO if one else RATIO_ALL_ALIKE


def one_phase_grew(drift: Drift) -> bool:
    """Whether one phase grew and the others hardly did; what is stood at collectives is no phase's doing."""
    if drift.phase == COLLECTIVES:
        return False
    if drift.other_before_ns <= 0 or drift.phase_before_ns <= 0:
        return True
    growth = drift.phase_growth_ns / drift.phase_before_ns
    return drift.other_growth_ns / drift.other_before_ns < _OTHERS_PART * growth


def finding(signals: Signals) -> Finding:
    """Say from which step on, by how much, and which phase grew."""
    drift = signals.drift
    assert drift is not None
    one = one_phase_grew(drift)
    per_step = (drift.after_ns - drift.before_ns) * drift.steps_after / signals.steady_steps
    certain = (drift.lowest_late_ns - drift.before_ns) * drift.steps_after / signals.steady_steps
    cost = cost_of(signals, per_step)
    return Finding(
        kind=KIND,
        severity=severity_of(cost.share),
        section="step_time",
        scope=Scope(phase=drift.phase if one else None, first_step=drift.from_step),
        why=f"From step {drift.from_step:,} on a step takes {words.ms(drift.after_ns)} instead of "
        f"{words.ms(drift.before_ns)}; {_what_grew(drift, one=one)}.",
        next=_next(drift, one=one),
        evidence={
            "from_step": drift.from_step,
            "before_ms": drift.before_ns / 1e6,
            "after_ms": drift.after_ns / 1e6,
            "phase_growth_ms": drift.phase_growth_ns / 1e6,
            "other_growth_ms": drift.other_growth_ns / 1e6,
        },
        estimate=estimate(
            signals,
            Saving(per_step, min(certain, per_step), per_step, "every step as fast as before the change"),
        ),
        confidence="high" if one else "low",
        cost_ms_per_step=per_step / 1e6,
        saved_s=cost.saved_s,
    )


_MACHINE = (
    "Look at the machine (another program, a processor that throttles, swapping), and whether batches grow: "
    "either slows every phase alike."
)


_OTHERS = (
    "Look at the other ranks and at what connects them (a rank that became slower, a busy network): this one "
    "waits for them."
)


def _what_grew(drift: Drift, *, one: bool) -> str:
    if drift.phase == COLLECTIVES:
        return f"what it stands at collectives grew by {words.ms(drift.phase_growth_ns)}"
    if one:
        return f"{drift.phase.replace('_', ' ')} grew by {words.ms(drift.phase_growth_ns)}"
    return "all phases grew alike"


def _next(drift: Drift, *, one: bool) -> str:
    if not one:
        return _OTHERS if drift.phase == COLLECTIVES else _MACHINE
    phase = drift.phase.replace("_", " ")
    if drift.phase == "input_wait":
        return f"Look at what batches cost from step {drift.from_step:,} on: larger items, a cold cache."
    return (
        f"Look for what {phase} does from step {drift.from_step:,} on that it did not before: state "
        "that grows, a "
        "schedule that switches something on, hooks added again and again."
    )
