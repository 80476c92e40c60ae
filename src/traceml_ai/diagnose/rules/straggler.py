"""STRAGGLER: ranks wait for one that is late outside the phases, or for another each time."""

from __future__ import annotations

from traceml_ai.diagnose import straggling
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding

KIND = "STRAGGLER"

PHASES = ("residual", "between_steps", None)
_ADVICE = (
    "Do on every rank, or beside the loop, what only one does (logging, checkpoints, evaluation, metrics); "
    "where ranks are late in turn, give them batches of equal work."
)


def meets_conditions(signals: Signals) -> bool:
    """A rank is late outside the model's phases, or ranks are late in turn."""
    return straggling.found(signals, PHASES)


def finding(signals: Signals) -> Finding:
    """Say which, by how much, and what it costs."""
    return straggling.describe(signals, KIND, _ADVICE)
