"""What growing memory needs to be worth a word, the same for a leak and for a rise."""

from __future__ import annotations

from traceml_ai.stats.growth import Growth

# An allocator's arenas, a lazily loaded library or a log buffer move this much without any leak.
LEAST_BYTES = 16 * 2**20
LEAST_PART = 0.02  # of what the process holds


def is_material(growth: Growth | None, held_bytes: int) -> bool:
    """Whether memory grew by more than a healthy process fluctuates."""
    return growth is not None and growth.total >= max(LEAST_BYTES, LEAST_PART * held_bytes)
