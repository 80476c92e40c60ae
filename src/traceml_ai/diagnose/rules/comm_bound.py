"""COMM_BOUND: transferring between ranks takes much of the step."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.cost import cost_of, phase_severity
from traceml_ai.diagnose.signals import RankFacts, Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "COMM_BOUND"

# Like input wait: with the transfer hidden the step would be at least 1.25 times as fast.
COMM_SHARE = 0.20


def meets_conditions(signals: Signals) -> bool:
    """Even the last rank to arrive at the collectives stands there for a fifth of the step."""
    ranks = signals.ranks
    if ranks is None or ranks.transfer_ns is None or signals.judgeable is None:
        return False
    return ranks.transfer_ns >= COMM_SHARE * ranks.step_ns


def finding(signals: Signals) -> Finding:
    """Say how much of the step it is; waiting for late ranks is not counted."""
    ranks = signals.ranks
    assert ranks is not None
    transfer = ranks.transfer_ns or 0.0
    share = transfer / ranks.step_ns
    cost = cost_of(signals, transfer)
    # Below, computing is still most of the step: a fact beside the verdict, and no alarm.
    alarm = ranks.is_comm_bound
    return Finding(
        kind=KIND,
        severity=phase_severity(signals, cost.share) if alarm else "info",
        section="step_time",
        scope=Scope(phase=_where(ranks), first_step=ranks.first_step, last_step=ranks.last_step),
        why=f"Transferring between {words.plural(len(ranks.ranks), 'rank')} takes {words.percent(share)} of "
        f"step time ({words.ms(transfer)} of {words.ms(ranks.step_ns)}), beyond what is hidden behind "
        "computing and without waiting for late ranks.",
        next="Send less and less often: gradient accumulation with no_sync(), larger batches per rank, bf16 "
        "gradients; look at the backend and the link between the ranks.",
        evidence={
            "transfer_ms": transfer / 1e6,
            "share_pct": 100 * share,
            "waiting_ms": ((ranks.stood_ns or 0.0) - transfer) / 1e6,
            "ranks_compared": len(ranks.ranks),
        },
        confidence="medium",
        cost_ms_per_step=transfer / 1e6,
        saved_s=cost.saved_s if alarm else None,
    )


def _where(ranks: RankFacts) -> str:
    """Return the phase in which ranks stand at collectives most."""
    stood = ranks.stood_by_phase_ns
    return max(stood, key=lambda phase: stood[phase])
