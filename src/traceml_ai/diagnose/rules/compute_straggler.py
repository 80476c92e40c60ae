"""COMPUTE_STRAGGLER: the others wait for a rank that computes longer."""

from __future__ import annotations

from traceml_ai.diagnose import straggling
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding

KIND = "COMPUTE_STRAGGLER"

PHASES = ("forward", "backward", "optimizer")
_ADVICE = (
    "Compare {who} with the others: the work it is given (lengths, branches taken on one rank only) and the "
    "machine it runs on (clock rate, temperature, other programs, processor affinity)."
)


def meets_conditions(signals: Signals) -> bool:
    """A rank is late, and mostly in forward, backward or optimizer."""
    return straggling.found(signals, PHASES)


def finding(signals: Signals) -> Finding:
    """Say which, by how much, and what it costs."""
    return straggling.describe(signals, KIND, _ADVICE)
