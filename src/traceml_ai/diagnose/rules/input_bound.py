"""INPUT_BOUND: the step waits for its batches."""

from __future__ import annotations

from traceml_ai.diagnose import words, workers
from traceml_ai.diagnose.cost import Saving, cost_of, estimate, phase_severity
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Estimate, EvidenceValue, Finding, Scope

KIND = "INPUT_BOUND"

# With the wait hidden the step would be at least 1.25 times as fast. Below, a loader in the same
# process that does ordinary work (indexing and collating small tensors) is often seen.
INPUT_SHARE = 0.20
# Nearly every step saw its fetch.
FULL_COVERAGE = 0.9

_KEEP = " with persistent_workers=True"


def meets_conditions(signals: Signals) -> bool:
    """Input wait takes a fifth of step time or more."""
    return (signals.share("input_wait") or 0.0) >= INPUT_SHARE


def finding(signals: Signals) -> Finding:
    """Say how much of the step it is, and which loader setting to try."""
    breakdown = signals.breakdown
    assert breakdown is not None
    wait = breakdown.per_step_ns("input_wait") or 0.0
    share = breakdown.share("input_wait") or 0.0
    cost = cost_of(signals, wait)
    plan = workers.plan(signals)
    return Finding(
        kind=KIND,
        severity=phase_severity(signals, cost.share),
        section="step_time",
        scope=Scope(phase="input_wait"),
        why=f"Waiting for batches takes {words.percent(share)} of step time "
        f"({words.ms(wait)} of {words.ms(breakdown.step_ns)}){_sources(signals)}.",
        next=_next(signals, plan),
        evidence=_evidence(signals, wait, share),
        estimate=_estimate(signals, plan, wait),
        confidence="high" if breakdown.phases["input_wait"].coverage >= FULL_COVERAGE else "medium",
        cost_ms_per_step=wait / 1e6,
        saved_s=cost.saved_s,
    )


def _evidence(signals: Signals, wait: float, share: float) -> dict[str, EvidenceValue]:
    assert signals.breakdown is not None
    ranks = signals.ranks
    return {
        "input_wait_ms": wait / 1e6,
        "share_pct": 100 * share,
        "step_ms_without_wait": (signals.breakdown.step_ns - wait) / 1e6,
        "num_workers": signals.workers,
        "usable_cpus": signals.usable_cpus,
        "producing": workers.producing(signals),
        **({"source_ranks": [ranks.ranks[i] for i in ranks.sources]} if ranks and ranks.sources else {}),
    }


def _sources(signals: Signals) -> str:
    ranks = signals.ranks
    if ranks is None or not ranks.sources:
        return ""
    return f"; {ranks.name(ranks.sources[0])} fetches for the others, which wait for it"


def _estimate(signals: Signals, plan: workers.Plan | None, wait: float) -> Estimate | None:
    if plan is not None:
        return estimate(signals, plan.saving, num_workers=plan.num_workers)
    if signals.workers is not None:
        return None  # making a batch cheaper: nobody can say by how much
    return estimate(signals, Saving(wait, 0.0, wait, "at best the whole wait is hidden behind the step"))


def _next(signals: Signals, plan: workers.Plan | None) -> str:
    now = signals.workers
    if now is None:
        return "Prepare batches beside the step: a DataLoader with num_workers > 0, or a prefetching thread."
    if plan is not None:
        keep = "" if signals.loader and signals.loader.get("persistent_workers") else _KEEP
        return f"Set num_workers={plan.num_workers} in the DataLoader (now {now}){keep}."
    usable = (
        "" if signals.usable_cpus is None else f" on {words.number(signals.usable_cpus)} usable processors"
    )
    return (
        f"Make a batch cheaper to produce (now num_workers={now}{usable}): cache or precompute what "
        "__getitem__ and collate_fn do, and index whole batches instead of items."
    )
