"""H2D_STRAGGLER: the others wait for a rank that copies to its device longer."""

from __future__ import annotations

from traceml_ai.diagnose import straggling
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding

KIND = "H2D_STRAGGLER"

PHASES = ("h2d",)
_ADVICE = (
    "Look at the way to the device of {who}: pinned memory, the processor and memory node it is bound to, "
    "its link."
)


def meets_conditions(signals: Signals) -> bool:
    """A rank is late, and mostly in copying to the device."""
    return straggling.found(signals, PHASES)


def finding(signals: Signals) -> Finding:
    """Say which, by how much, and what it costs."""
    return straggling.describe(signals, KIND, _ADVICE)
