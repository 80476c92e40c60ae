"""Where a steady step's time goes, phase by phase, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from traceml_ai.analyze.columns import EXT, USER_COLUMNS, Rows
from traceml_ai.analyze.steady import Steady
from traceml_ai.schema.step import USER_SLOTS, WINDOW_PHASES, Observed

Clock = Literal["host", "device"]
BETWEEN = "between_steps"


class PhaseFigures(NamedTuple):
    """One phase of the steady steps; ``None`` throughout when it was never observed."""

    mean_ns: float | None
    median_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    total_ns: int | None  # of the whole run
    per_step_ns: float | None  # averaged over all steady steps, whether they saw it or not
    share: float | None  # of step time, 0..1; None for the time between steps
    loop_share: float | None  # of step time and time between steps
    coverage: float


class Breakdown(NamedTuple):
    """The steady step."""

    clock: Clock
    steps: int
    step_ns: float
    median_step_ns: float | None
    p95_step_ns: float | None
    p99_step_ns: float | None
    loop_ns: float  # step + between steps, without our own work
    phases: dict[str, PhaseFigures]  # in the order of a step, then between_steps
    user_phases: list[str]

    def share(self, phase: str) -> float | None:
        """Return a phase's share of step time, 0..1; ``None`` when it was not observed."""
        figures = self.phases.get(phase)
        return figures.share if figures else None

    def per_step_ns(self, phase: str) -> float | None:
        """Return a phase's time per steady step; ``None`` when it was not observed."""
        figures = self.phases.get(phase)
        return figures.per_step_ns if figures else None


def clock_of(observed: dict[Observed, int], steps: int, warmup_observed: int) -> Clock:
    """Return the clock for the whole window: the device's only when every steady step has it."""
    return "device" if steps > 0 and observed[Observed.DEVICE] - warmup_observed >= steps else "host"


def user_phase_names(names: Sequence[str]) -> dict[str, str]:
    """Return the summary's phase name -> column of the phases that the user named.

    A name that is also one of ours gets a prefix, so that no figure is overwritten.
    """
    ours = {"input_wait", *WINDOW_PHASES, "residual", BETWEEN, "step"}
    pairs = zip(names[:USER_SLOTS], USER_COLUMNS, strict=False)
    return {(f"user.{name}" if name in ours else name): column for name, column in pairs}


def break_down(
    steady: Steady, run_totals: Rows, clock: Clock, user_phases: Sequence[str], *, means_only: bool = False
) -> Breakdown | None:
    """Return the breakdown of the steady steps; ``None`` when there is none.

    Args:
        steady: The steady part.
        run_totals: Sums of every column over the whole run, warm-up included.
        clock: Whose durations to use.
        user_phases: The names of the user's phases, by slot.
        means_only: Leave medians and percentiles out: for one of thousands of ranks.
    """
    if steady.steps == 0:
        return None
    names = user_phase_names(user_phases)
    step = "step_ns" if clock == "host" else "dev_total_ns"
    step_total = steady.total_ns(step)
    between_total = steady.total_ns("between_ns") - (waited_ns(steady) if clock == "device" else 0)
    columns = columns_of(clock, names)
    loop_total = step_total + between_total
    phases = {
        name: _figures(steady, run_totals, column, (step_total, loop_total), means_only=means_only)
        for name, column in columns.items()
        if name != BETWEEN
    }
    phases[BETWEEN] = _between(steady, run_totals, between_total, loop_total, means_only=means_only)
    return Breakdown(
        clock=clock,
        steps=steady.steps,
        step_ns=step_total / steady.steps,
        median_step_ns=None if means_only else steady.quantile_ns(step, 0.5),
        p95_step_ns=None if means_only else steady.quantile_ns(step, 0.95),
        p99_step_ns=None if means_only else steady.quantile_ns(step, 0.99),
        loop_ns=loop_total / steady.steps,
        phases=phases,
        user_phases=list(names) if clock == "host" else [],
    )


def user_columns(breakdown: Breakdown) -> dict[str, str]:
    """Return the columns of the user's phases in a breakdown."""
    return dict(zip(breakdown.user_phases, USER_COLUMNS, strict=False))


def columns_of(clock: Clock, user: dict[str, str]) -> dict[str, str]:
    """Return each phase's column on a clock, in the order of a step, given those of the user's phases."""
    device = "dev_" if clock == "device" else ""
    columns = {"input_wait": "input_wait_ns"}
    columns |= {phase: f"{device}{phase}_ns" for phase in WINDOW_PHASES}
    # The user's phases are timed on the host only: they can't share a breakdown with the device's.
    columns |= user if clock == "host" else {}
    return columns | {"residual": f"{device}residual_ns", BETWEEN: "between_ns"}


def waited_ns(steady: Steady) -> int:
    """Return the time between steps in which the host waited for the device's part of them.

    A loop that reads its loss when the step is over stands there until the device is done. On the device's
    clock that time is the step's already; between steps is what is left of a turn besides step and input.
    """
    between = steady.total_ns("between_ns")
    spare = steady.total_ns("step_ns") + between - steady.total_ns("dev_total_ns")
    return between - min(max(spare, 0), between)


def _between(
    steady: Steady, run_totals: Rows, total: int, loop_total: int, *, means_only: bool
) -> PhaseFigures:
    """Return the figures of the time between steps; a share of it has no quantiles."""
    figures = _figures(steady, run_totals, "between_ns", (0, loop_total), means_only=means_only)
    if total == steady.total_ns("between_ns"):
        return figures
    per_step = total / steady.steps
    share = total / loop_total if loop_total else None
    return figures._replace(
        mean_ns=per_step, median_ns=None, p95_ns=None, p99_ns=None, per_step_ns=per_step, loop_share=share
    )


def _figures(
    steady: Steady, run_totals: Rows, column: str, of: tuple[int, int], *, means_only: bool
) -> PhaseFigures:
    """Return a column's figures; its shares are those of the steps and of the loop, given as totals."""
    coverage = steady.coverage(column) or 0.0
    if coverage == 0:
        return PhaseFigures(None, None, None, None, None, None, None, None, 0.0)
    total, (step_total, loop_total) = steady.total_ns(column), of
    quantiles = [None if means_only else steady.quantile_ns(column, q) for q in (0.5, 0.95, 0.99)]
    return PhaseFigures(
        mean_ns=steady.mean_ns(column),
        median_ns=quantiles[0],
        p95_ns=quantiles[1],
        p99_ns=quantiles[2],
        total_ns=int(run_totals[EXT[column]]),
        per_step_ns=total / steady.steps,
        share=total / step_total if step_total else None,
        loop_share=total / loop_total if loop_total else None,
        coverage=coverage,
    )
