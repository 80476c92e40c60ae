"""INPUT_STRAGGLER: the others wait for a rank that waits for its input."""

from __future__ import annotations

from traceml_ai.diagnose import straggling
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding

KIND = "INPUT_STRAGGLER"

PHASES = ("input_wait",)
_ADVICE = (
    "Look at what feeds {who}: its shard, its storage, its loader workers; every rank should fetch "
    "as much as the others."
)


def meets_conditions(signals: Signals) -> bool:
    """A rank is late, and mostly in its input wait."""
    return straggling.found(signals, PHASES)


def finding(signals: Signals) -> Finding:
    """Say which, by how much, and what it costs."""
    return straggling.describe(signals, KIND, _ADVICE)
