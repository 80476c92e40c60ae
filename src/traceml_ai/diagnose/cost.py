"""What a finding costs, as severity, seconds and an estimate."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.diagnose.signals import SHORT_NS, Signals
from traceml_ai.schema.summary import Estimate, Severity

# Without it the loop would be 1.1 times as fast: worth a look.
WARNING_SHARE = 0.10
# 1.5 times as fast: worth stopping the run for.
CRITICAL_SHARE = 1 / 3


class Cost(NamedTuple):
    """Time that a finding's removal would save."""

    per_step_ns: float
    share: float  # of the loop's time
    saved_s: float  # of this run's steady steps


def cost_of(signals: Signals, per_step_ns: float) -> Cost:
    """Return what so much time in every steady step amounts to."""
    loop_ns = signals.loop_ns or 0.0
    share = per_step_ns / loop_ns if loop_ns else 0.0
    return Cost(per_step_ns, share, per_step_ns * signals.steady_steps / 1e9)


def severity_of(share: float) -> Severity:
    """Return the severity that goes with a saved share of the loop's time."""
    if share >= CRITICAL_SHARE:
        return "critical"
    return "warning" if share >= WARNING_SHARE else "info"


def phase_severity(signals: Signals, share: float) -> Severity:
    """Return the severity of a finding about a step's shares: none alarms about very short steps."""
    short = signals.breakdown is not None and signals.breakdown.step_ns < SHORT_NS
    return "info" if short else severity_of(share)


class Saving(NamedTuple):
    """Time that following the advice would save, per steady step."""

    expected_ns: float
    least_ns: float  # safe to count on
    most_ns: float  # if everything goes well
    basis: str  # what the figures rest on
    in_step: bool = True  # else it is time between steps


def estimate(signals: Signals, saving: Saving, *, num_workers: int | None = None) -> Estimate | None:
    """Return what a saving would give; ``None`` when there is nothing to gain."""
    breakdown = signals.breakdown
    if breakdown is None or not 0 < saving.expected_ns < breakdown.loop_ns:
        return None
    step = breakdown.step_ns if saving.in_step else None
    loop = breakdown.loop_ns
    return Estimate(
        step_ms=_left_ms(step, saving.expected_ns),
        low_ms=_left_ms(step, saving.most_ns),
        high_ms=_left_ms(step, saving.least_ns),
        speedup=_speedup(loop, saving.expected_ns),
        speedup_low=_speedup(loop, saving.least_ns),
        speedup_high=_speedup(loop, saving.most_ns),
        saved_share_pct=100 * saving.expected_ns / loop,
        num_workers=num_workers,
        basis=saving.basis,
    )


def _left_ms(step_ns: float | None, saved_ns: float) -> float | None:
    return None if step_ns is None else max(0.0, step_ns - saved_ns) / 1e6


def _speedup(loop_ns: float, saved_ns: float) -> float | None:
    return loop_ns / (loop_ns - saved_ns) if saved_ns < loop_ns else None
