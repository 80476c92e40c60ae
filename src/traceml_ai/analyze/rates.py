"""Rates over the steady period, and what measuring cost."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.analyze.steady import Steady
from traceml_ai.schema.step import Observed

# One odd step in twenty without a count still gives an honest rate; more do not.
_ENOUGH = 0.95


class Throughput(NamedTuple):
    """Per second of the loop, time between steps included."""

    samples: float | None
    tokens: float | None
    updates: float | None
    steps: float | None


class Overhead(NamedTuple):
    """Our own work on the training thread."""

    per_step_ns: float | None
    share: float | None  # of the loop's time


def throughput(steady: Steady, observed: dict[Observed, int], warmup: int) -> Throughput:
    """Return what one rank got done per second, from what it was seen to do.

    Args:
        steady: Its steady steps.
        observed: In how many steps of the whole run each measurement was made.
        warmup: How many steps the steady part leaves out.
    """
    seconds = steady.total_ns("loop_ns") / 1e9
    if seconds <= 0:
        return Throughput(None, None, None, None)

    def rate(name: str, bit: Observed) -> float | None:
        enough = observed[bit] - warmup >= _ENOUGH * steady.steps
        amount = steady.total_ns(name)
        return amount / seconds if enough and amount > 0 else None

    updates = steady.total_ns("updates")
    return Throughput(
        samples=rate("samples", Observed.SAMPLES),
        tokens=rate("tokens", Observed.TOKENS),
        # Updates by hand leave no trace: no update seen is not "none made".
        updates=updates / seconds if updates > 0 else None,
        steps=steady.steps / seconds,
    )


def overhead(steady: Steady) -> Overhead:
    """Return our own work per steady step, and its share of the loop."""
    if steady.steps == 0:
        return Overhead(None, None)
    own, loop = steady.total_ns("own_ns"), steady.total_ns("loop_ns")
    return Overhead(own / steady.steps, own / loop if loop else None)
