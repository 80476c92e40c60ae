"""COMPUTE_BOUND: the step computes. Good news."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "COMPUTE_BOUND"

PHASES = ("forward", "backward", "optimizer")
# More than everything else together, with a margin.
COMPUTE_SHARE = 0.60
# The loop outside the step must be small too, or computing is not what the run's time goes into.
MOST_OUTSIDE = 0.20
# An optimizer is a pass or three over the parameters; when it outweighs forward and backward
# together, it is the thing to look at.
_OPTIMIZER_OF_COMPUTE = 0.5


def meets_conditions(signals: Signals) -> bool:
    """Forward, backward and optimizer take most of the step, and steps most of the loop."""
    breakdown = signals.judgeable
    if breakdown is None or breakdown.share("forward") is None or breakdown.share("backward") is None:
        return False
    outside = breakdown.phases["between_steps"].loop_share or 0.0
    return _share(signals) >= COMPUTE_SHARE and outside < MOST_OUTSIDE


def finding(signals: Signals) -> Finding:
    """Say which of the three phases it is mostly."""
    breakdown = signals.breakdown
    assert breakdown is not None
    shares = {phase: breakdown.share(phase) or 0.0 for phase in PHASES}
    largest = max(PHASES, key=lambda phase: shares[phase])
    parts = ", ".join(f"{phase} {words.percent(shares[phase])}" for phase in PHASES)
    return Finding(
        kind=KIND,
        severity="info",
        section="step_time",
        scope=Scope(phase=largest),
        why=f"Computing takes {words.percent(_share(signals))} of step time ({parts}).",
        next=_next(signals, shares["optimizer"] / _share(signals)),
        evidence={f"{phase}_pct": 100 * share for phase, share in shares.items()},
        confidence="high" if breakdown.clock == "device" else "medium",
    )


def _share(signals: Signals) -> float:
    """Waiting for other ranks and transferring to them lies in these phases, but is no computing."""
    return sum(signals.share(phase) or 0.0 for phase in PHASES) - signals.stood_share


def _next(signals: Signals, optimizer: float) -> str:
    if optimizer >= _OPTIMIZER_OF_COMPUTE:
        return (
            "The optimizer outweighs forward and backward: try fused=True or foreach=True, or larger batches."
        )
    threads, usable = signals.torch_threads, signals.usable_cpus
    on_cpu = signals.breakdown is not None and signals.breakdown.share("h2d") is None
    more = ""
    if on_cpu and threads is not None and usable is not None and threads < int(usable):
        more = f", torch.set_num_threads({int(usable)}) (now {threads})"
    return f"The model is what takes the time; compute less or faster: mixed precision, torch.compile{more}."
