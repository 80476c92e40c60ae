"""HOST_BOUND: the device waits for the interpreter to give it work."""

from __future__ import annotations

from traceml_ai.diagnose import words
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.summary import Finding, Scope

KIND = "HOST_BOUND"

PHASES = ("forward", "backward", "optimizer")
# A busy device falls behind the host, which has long gone on: its phases take longer on the device's
# clock. When giving out the work takes as long as the work, the device is idle in between.
HOST_OF_DEVICE = 0.9
# These phases must matter.
PHASE_SHARE = 0.5


def meets_conditions(signals: Signals) -> bool:
    """With device timing: the host takes as long over the phases as the device does."""
    breakdown = signals.judgeable
    if breakdown is None or breakdown.clock != "device" or not signals.host_phases_ns:
        return False
    device = _device_ns(signals)
    return device >= PHASE_SHARE * breakdown.step_ns and _host_ns(signals) >= HOST_OF_DEVICE * device


def finding(signals: Signals) -> Finding:
    """Say how close host and device are."""
    host, device = _host_ns(signals), _device_ns(signals)
    return Finding(
        kind=KIND,
        severity="info",  # the figures show that the device waits, not for how long
        section="step_time",
        scope=Scope(),
        why=f"Giving out forward, backward and optimizer takes the host {words.ms(host)}, the device needs "
        f"{words.ms(device)} for them: it waits for the host.",
        next="Give the device more per call: larger batches, torch.compile or CUDA graphs, fewer small "
        "modules, "
        "no .item() inside the step.",
        evidence={"host_ms": host / 1e6, "device_ms": device / 1e6},
        confidence="low",
    )


def _device_ns(signals: Signals) -> float:
    assert signals.breakdown is not None
    return sum(signals.breakdown.per_step_ns(phase) or 0.0 for phase in PHASES)


def _host_ns(signals: Signals) -> float:
    return sum(signals.host_phases_ns.get(phase, 0.0) for phase in PHASES)
