"""What growing memory needs to be worth a word, the same for a leak and for a rise."""

from __future__ import annotations

from traceml_ai.diagnose.signals import MIN_STEPS, Signals
from traceml_ai.stats.growth import Growth

# An allocator's arenas, a lazily loaded library or a log buffer move this much without any leak.
LEAST_BYTES = 16 * 2**20
LEAST_PART = 0.02  # of what the process holds


def is_material(growth: Growth | None, held_bytes: int) -> bool:
    """Whether memory grew by more than a healthy process fluctuates."""
    return growth is not None and growth.total >= max(LEAST_BYTES, LEAST_PART * held_bytes)


def device_growth(signals: Signals) -> tuple[Growth, int] | None:
    """How the peak of device memory grew, and what it is, in bytes; None when that is nothing to speak of."""
    memory = signals.step_memory
    if memory is None or memory.growth is None or signals.steps < MIN_STEPS:
        return None
    if not is_material(memory.growth, memory.peak_allocated_bytes):
        return None
    return memory.growth, memory.peak_allocated_bytes
