"""Summaries of simulated runs, for comparing."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from report.summaries import make_summary
from traceml_ai.compare.comparison import Given
from traceml_ai.schema.series import Blocks
from traceml_ai.schema.summary import PhaseStats, RunSection, StepTimeSection, Summary

BLOCKS = 40
PHASES = {"input_wait": 5.0, "forward": 4.0, "backward": 6.0, "optimizer": 1.0, "residual": 0.5}
BETWEEN_MS = 2.0

RUN = RunSection(
    name="base",
    status="completed",
    started_at="2030-01-02T03:04:05+00:00",
    steps=404,
    updates=404,
    microbatches=404,
    samples=404 * 8,
    command=["python", "train.py", "--lr", "0.1"],
    devices=["cpu"],
    versions={"torch": "2.13.0", "python": "3.11.7"},
    world_size=1,
    batch_size=8,
    num_workers=0,
    precision="32-true",
    threads=2,
    mode="inferred",
)


def step_time(
    phases: dict[str, float] | None = None, *, spread: float = 0.01, seed: int = 0, blocks: int = BLOCKS
) -> StepTimeSection:
    """Independent block means of 10 steps, with a relative standard deviation of ``spread``."""
    rng = np.random.default_rng(seed)
    means = {**(PHASES if phases is None else phases), "between_steps": BETWEEN_MS}
    drawn = {name: ms * np.exp(spread * rng.standard_normal(blocks)) for name, ms in means.items()}
    drawn["step"] = np.sum([drawn[name] for name in means if name != "between_steps"], axis=0)
    exact = {name: float(values.mean()) for name, values in drawn.items()}
    return StepTimeSection(
        diagnosis="BALANCED",
        steps=10 * blocks,
        warmup_steps=4,
        step_ms=exact["step"],
        phases={name: PhaseStats(mean_ms=exact[name], coverage=1.0) for name in means},
        blocks=Blocks(steps_per_block=10, phases={name: values.tolist() for name, values in drawn.items()}),
    )


def make_run(step: StepTimeSection | None = None, **run: Any) -> Summary:
    """A run; keyword arguments are fields of its ``run`` section."""
    found = make_summary(run=replace(RUN, **run), step_time=step_time() if step is None else step)
    return replace(found, findings=[], warnings=[])


def given(summary: Summary, path: str = "logs/a") -> Given:
    return Given(path, summary)


def side(*means: float, first_seed: int = 0, spread: float = 0.01, **run: Any) -> list[Given]:
    """Runs whose step takes so many times as long as usual, one for each number."""
    found = []
    for seed, factor in enumerate(means, start=first_seed):
        scaled = {name: factor * ms for name, ms in PHASES.items()}
        found.append(
            given(
                make_run(step_time(scaled, seed=seed, spread=spread), name=f"r{seed}", **run), f"logs/r{seed}"
            )
        )
    return found
