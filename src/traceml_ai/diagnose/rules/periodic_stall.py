"""PERIODIC_STALL: every k-th step takes far longer than the others."""

from __future__ import annotations

from traceml_ai.analyze.stalls import Stalls
from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, severity_of
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope
from traceml_ai.stats.robust import bootstrap_mean_interval

KIND = "PERIODIC_STALL"

# Invisible in a median, a twentieth of the time is still a twentieth.
COST_SHARE = 0.05
# Shorter periods are how the loop works: gradient accumulation, an optimizer every second batch.
LEAST_PERIOD = 5
# Workers deliver in bursts of their number: a wait with that period is too few workers, not a stall.
_BURST = 2

_ADVICE = {
    "checkpoint": "Save less often, or hand the state to a background thread.",
    "validation": "Evaluate less often or on fewer batches.",
    "input_wait": "Look at what the loader does at that distance: a new shard or file, a shuffle buffer that "
    "refills, workers that all finish at once.",
    "optimizer": "Look at what the optimizer does at that distance (a state that is synchronised, a "
    "schedule).",
    "between_steps": "Look at what the loop does after that step: logging, metrics, plots, a flush; do "
    "it less "
    "often or in a background thread.",
}
_OTHERWISE = (
    "Look at what the step does at that distance (logging, metrics, a checkpoint, a flush); do it less "
    "often or "
    "in a background thread."
)


def meets_conditions(signals: Signals) -> bool:
    """Stalls of no other known kind come at a regular distance and cost a twentieth of the loop."""
    stalls = signals.stalls
    if stalls is None or not signals.enough_steps or stalls.cause != "phase":
        return False
    if not _regular(stalls) or _burst_of_workers(signals, stalls):
        return False
    return cost_of(signals, _per_step(stalls)).share >= COST_SHARE


def finding(signals: Signals) -> Finding:
    """Say how often, how long and where."""
    stalls = signals.stalls
    assert stalls is not None
    per_step = _per_step(stalls)
    low, high = bootstrap_mean_interval(stalls.each_excess_ns)
    scale = stalls.stalls / stalls.steps
    cost = cost_of(signals, per_step)
    return Finding(
        kind=KIND,
        severity=severity_of(cost.share),
        section="step_time",
        scope=Scope(phase=_phase(stalls.place), first_step=stalls.first_step, last_step=stalls.last_step),
        why=f"{_how_often(stalls)} takes {words.ms(stalls.mean_excess_ns)} longer than the others, "
        f"{words.percent(cost.share)} of the loop's time, {_where(stalls.place)}.",
        next=_ADVICE.get(stalls.place, _OTHERWISE),
        evidence={
            "period_steps": stalls.every_steps.length if stalls.every_steps else None,
            "period_s": stalls.every_ns.length / 1e9 if stalls.every_ns else None,
            "stalls": stalls.stalls,
            "steps_looked_at": stalls.steps,
            "mean_stall_ms": stalls.mean_excess_ns / 1e6,
            "ordinary_ms": stalls.ordinary_ns / 1e6,
            "place": stalls.place,
            "place_pct": 100 * stalls.place_part,
        },
        estimate=estimate(
            signals,
            Saving(
                per_step,
                min(low * scale, per_step),
                max(high * scale, per_step),
                "every step as fast as an ordinary one",
                in_step=stalls.place != "between_steps",
            ),
        ),
        confidence="high" if stalls.every_steps else "medium",
        cost_ms_per_step=per_step / 1e6,
        saved_s=cost.saved_s,
    )


def _per_step(stalls: Stalls) -> float:
    return stalls.excess_ns / stalls.steps


def _regular(stalls: Stalls) -> bool:
    if stalls.every_steps is not None:
        return stalls.every_steps.length >= LEAST_PERIOD
    return stalls.every_ns is not None


def _burst_of_workers(signals: Signals, stalls: Stalls) -> bool:
    if stalls.place != "input_wait" or not signals.workers or stalls.every_steps is None:
        return False
    return stalls.every_steps.length <= _BURST * signals.workers + 1


def _how_often(stalls: Stalls) -> str:
    if stalls.every_steps is not None:
        return f"Every {words.ordinal(round(stalls.every_steps.length))} step"
    assert stalls.every_ns is not None
    return f"About every {words.seconds(stalls.every_ns.length)} a step"


def _phase(place: str) -> str:
    return "residual" if place in ("checkpoint", "validation") else place


def _where(place: str) -> str:
    known = {
        "residual": "in none of the step's phases",
        "between_steps": "after the step",
        "checkpoint": "in torch.save",
        "validation": "in an evaluation pass",
    }
    return known.get(place, f"in {place.replace('_', ' ')}")
