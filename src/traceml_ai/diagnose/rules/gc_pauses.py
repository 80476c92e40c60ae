"""GC_PAUSES: Python's garbage collector stops the training thread."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, severity_of
from traceml_ai.diagnose.signals import Collections, Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "GC_PAUSES"

# A young-generation collection takes microseconds; a twentieth of the loop means that full
# collections walk a large heap again and again.
COST_SHARE = 0.05
# A twentieth of a very short loop is no pause that anybody would notice.
LEAST_LONGEST_NS = 5e6


def meets_conditions(signals: Signals) -> bool:
    """Collections take a twentieth of the loop's time, with pauses one would notice."""
    found = signals.collections
    if found is None or not signals.enough_steps or found.longest_ns < LEAST_LONGEST_NS:
        return False
    return cost_of(signals, found.total_ns / signals.steady_steps).share >= COST_SHARE


def finding(signals: Signals) -> Finding:
    """Say how many pauses there were and what they took."""
    found = signals.collections
    assert found is not None
    per_step = found.total_ns / signals.steady_steps
    cost = cost_of(signals, per_step)
    return Finding(
        kind=KIND,
        severity=severity_of(cost.share),
        section="step_time",
        scope=Scope(),
        why=f"Garbage collection takes {words.percent(cost.share)} of the loop's time "
        f"({_how_many(found)}{words.seconds(found.total_ns)}, the longest {words.ms(found.longest_ns)}).",
        next="After building model and data call gc.collect() and gc.freeze(), and raise "
        "gc.set_threshold(); keep "
        "large collections of Python objects in arrays.",
        evidence={
            "collections": None if found.between_ns else found.collections,
            "total_s": found.total_ns / 1e9,
            "between_s": found.between_ns / 1e9,
            "longest_ms": found.longest_ns / 1e6,
        },
        estimate=estimate(
            signals,
            Saving(0.9 * per_step, 0.5 * per_step, per_step, "half to all of the collections avoided"),
        ),
        confidence="high",
        cost_ms_per_step=per_step / 1e6,
        saved_s=cost.saved_s,
    )


def _how_many(found: Collections) -> str:
    return "" if found.between_ns else f"{words.plural(found.collections, 'collection')}, "
