"""EPOCH_START_STALL: beginning an epoch costs a good part of it."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, severity_of
from traceml_ai.diagnose.signals import EpochStarts, Signals
from traceml_ai.schema.summary import EvidenceValue, Finding, Scope

KIND = "EPOCH_START_STALL"

# Once is not a habit.
LEAST_EPOCHS = 2
# A twentieth of the loop's time; long epochs pay less.
COST_SHARE = 0.05
# Creating an iterator without workers takes well under this.
LEAST_EXCESS_NS = 2e7


def meets_conditions(signals: Signals) -> bool:
    """The first batch of an epoch and the loader around it cost a twentieth of the loop's time."""
    starts = signals.epoch_starts
    if starts is None or not signals.enough_steps:
        return False
    if starts.epochs < LEAST_EPOCHS or starts.excess_ns < LEAST_EXCESS_NS:
        return False
    return cost_of(signals, _per_step(signals, starts.excess_ns)).share >= COST_SHARE


def finding(signals: Signals) -> Finding:
    """Say what an epoch's start costs, and which setting avoids it."""
    starts = signals.epoch_starts
    assert starts is not None
    per_step = _per_step(signals, starts.excess_ns)
    cost = cost_of(signals, per_step)
    return Finding(
        kind=KIND,
        severity=severity_of(cost.share),
        section="step_time",
        scope=Scope(phase="input_wait"),
        why=f"Starting an epoch costs {words.seconds(starts.excess_ns)} "
        f"({words.ms(starts.first_wait_ns)} for "
        f"its first batch, {words.ms(starts.loader_ns)} for the loader), {words.percent(cost.share)} of the "
        "loop's time.",
        next=_next(signals),
        evidence=_evidence(signals, starts),
        estimate=estimate(
            signals,
            Saving(
                per_step,
                0.5 * per_step,
                per_step + _later_waits(starts, signals),
                "half to all of an epoch's start avoided, at best the later waits too",
                in_step=False,
            ),
        ),
        confidence="high",
        cost_ms_per_step=per_step / 1e6,
        saved_s=cost.saved_s,
    )


def _per_step(signals: Signals, excess_ns: float) -> float:
    assert signals.epoch_starts is not None
    return excess_ns * signals.epoch_starts.epochs / signals.steady_steps


def _later_waits(starts: EpochStarts, signals: Signals) -> float:
    """Return the waits for ordinary batches per step: workers that live on have more batches ready."""
    return starts.ordinary_wait_ns if signals.workers else 0.0


def _evidence(signals: Signals, starts: EpochStarts) -> dict[str, EvidenceValue]:
    first = max(0.0, starts.first_wait_ns - starts.ordinary_wait_ns)
    return {
        "epochs": starts.epochs,
        "first_batch_ms": starts.first_wait_ns / 1e6,
        "ordinary_wait_ms": starts.ordinary_wait_ns / 1e6,
        "loader_ms": starts.loader_ns / 1e6,
        "input_wait_s": first * starts.epochs / 1e9,
        "loader_s": starts.loader_ns * starts.epochs / 1e9,
        "num_workers": signals.workers,
        "persistent_workers": signals.loader.get("persistent_workers") if signals.loader else None,
    }


def _next(signals: Signals) -> str:
    persistent = signals.loader.get("persistent_workers") if signals.loader else None
    if signals.workers and not persistent:
        return (
            f"Set persistent_workers=True in the DataLoader (now False, num_workers={signals.workers}): its "
            "workers then live from epoch to epoch."
        )
    if signals.workers:
        return "Look at what each worker does before its first batch (opening files, an index) and keep it."
    return (
        "Look at what the dataset and sampler do when an epoch begins (shuffling, reading an index), or make "
        "epochs longer."
    )
