"""Summaries of runs that have something for every chart, from records through the real analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from fakes import SEEN, Header, Run, samples_over
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.step import Observed
from traceml_ai.schema.summary import Scope, Summary

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> "
    "$$x^2$$ \\[y\\] \u202e\u2028 \" ' & {{7*7}}"
)


def plain(steps: int = 400, **values: Any) -> Summary:
    """A run of one process on the processor."""
    run = Run().steps(steps, **values)
    return summarize(run.info(), [run.rank()], samples_over(run, 40))


def full(name: str = "full") -> Summary:
    """Four ranks, one of them slow, on a device with memory; phases of the user's; stalls."""
    stall = np.where(np.arange(600) % 50 == 49, 60.0, 0.3)
    runs = [
        Run().steps(
            600,
            forward=3.0 + (rank == 2),
            user_0=0.8,
            residual_other=stall,
            observed=SEEN | Observed.MEMORY,
            counts={"peak_allocated_bytes": 3 << 30, "peak_reserved_bytes": 4 << 30},
        )
        for rank in range(4)
    ]
    ranks = [
        run.rank(header=Header(pid=100 + at, rank=at), rank=at, world_size=4, user_phases=["loss"])
        for at, run in enumerate(runs)
    ]
    summary = summarize(runs[0].info(), ranks, samples_over(runs[0], 40))
    return replace(summary, run=replace(summary.run, name=name))


def hostile() -> Summary:
    """A run in which whatever the user or the script can name tries to be something else."""
    summary = full(HOSTILE)
    evil = replace(
        summary.diagnosis,
        kind=HOSTILE,
        why=HOSTILE,
        next=HOSTILE,
        evidence={HOSTILE: HOSTILE},
        scope=Scope(first_step=100, last_step=200, phase=HOSTILE, node=HOSTILE),
    )
    step = summary.step_time
    phases = {(HOSTILE if name == "loss" else name): figures for name, figures in step.phases.items()}
    series = {(HOSTILE if name == "loss" else name): line for name, line in step.series.phases.items()}
    shapes = {(HOSTILE if name == "loss" else name): shape for name, shape in step.histograms.items()}
    return replace(
        summary,
        diagnosis=evil,
        findings=[evil, *summary.findings],
        warnings=[HOSTILE],
        run=replace(summary.run, command=["python", HOSTILE], exception=HOSTILE, model=[HOSTILE]),
        system=replace(summary.system, hostname=HOSTILE),
        step_time=replace(step, phases=phases, series=replace(step.series, phases=series), histograms=shapes),
    )
