"""How often `traceml compare` is wrong: equal runs, and runs of which one side is 3 % slower.

    python benchmarks/compare.py [--pairs N] [--steps N] [--seed N]

Runs are simulated: step times are lognormal (10 % spread), a step in a hundred stalls for another
step's length, neighbouring steps are correlated (first-order autoregression), and each run has its own
speed (noise between runs). The comparison is the one that the command makes, on summaries with block
means. Targets: in every combination at most 5 % false alarms, at most 5 % SAME where one side is 3 %
slower; with five runs a side at least 80 % REGRESSION there, over all combinations.

Beside them stands what a fixed cut of 3 % and a Mann-Whitney test on all steps would have said, and the
best that any test with 5 % false alarms could do with five runs a side, knowing the noise exactly.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.compare.comparison import Given, Past, compare
from traceml_ai.compare.longrun import precision
from traceml_ai.compare.noise import PastRun
from traceml_ai.schema.series import Blocks
from traceml_ai.schema.summary import (
    Finding,
    OverheadSection,
    ProcessSection,
    RunSection,
    StepMemorySection,
    StepTimeSection,
    Summary,
    SystemSection,
    ThroughputSection,
    TimeSection,
)
from traceml_ai.stats.robust import superiority

CORRELATIONS = (0.0, 0.3, 0.6, 0.9)
NOISES_PCT = (0.0, 0.5, 1.0, 2.0)
SLOWER = 1.03
STEP_MS = 20.0
SPREAD = 0.1
STALLS = 0.01
EARLIER_RUNS = 10
MOST_BUCKETS, MOST_BLOCKS = 512, 48  # those of the step log's aggregate and of the summary
FALSE_ALARMS, MISSES, FOUND = 0.05, 0.05, 0.80

Floats = NDArray[np.float64]
NOTHING = Finding(kind="BALANCED", severity="info", section="step_time", why="", next="")


class Way(NamedTuple):
    """A way to compare."""

    name: str
    runs: int  # a side
    earlier: int = 0  # runs in the log folder


WAYS = (Way("1+1", 1), Way("1+1, 10 earlier", 1, EARLIER_RUNS), Way("2+2", 2), Way("3+3", 3), Way("5+5", 5))


def simulate(rng: np.random.Generator, runs: int, steps: int, rho: float, noise_pct: float) -> Floats:
    """Return step times in ms, one row a run."""
    innovations = rng.standard_normal((steps, runs)) * math.sqrt(1 - rho**2)
    values = np.empty((steps, runs))
    values[0] = rng.standard_normal(runs)
    for at in range(1, steps):
        values[at] = rho * values[at - 1] + innovations[at]
    stalled = 1 + (rng.random((steps, runs)) < STALLS)
    speed = np.exp(noise_pct / 100 * rng.standard_normal(runs))
    return np.asarray((STEP_MS * speed * stalled * np.exp(SPREAD * values)).T)


def block_means(steps: Floats) -> tuple[int, list[float]]:
    """Return means of consecutive steps as the summary holds them."""
    width = 1
    while len(steps) > MOST_BUCKETS * width:
        width *= 2
    buckets = len(steps) // width
    size = width * -(-buckets // MOST_BLOCKS)
    used = buckets * width // size * size
    return size, [float(mean) for mean in steps[:used].reshape(-1, size).mean(axis=1)]


def given(steps: Floats, name: str) -> Given:
    """Return a run's summary."""
    size, means = block_means(steps)
    return Given(
        name,
        Summary(
            traceml_version="benchmark",
            run=RunSection(name=name, status="completed", steps=len(steps), command=["train.py"]),
            diagnosis=NOTHING,
            findings=[],
            step_time=StepTimeSection(
                diagnosis="BALANCED",
                steps=len(steps),
                step_ms=float(steps.mean()),
                blocks=Blocks(steps_per_block=size, phases={"step": list(means)}),
            ),
            step_memory=StepMemorySection(diagnosis="NO_DATA"),
            time=TimeSection(),
            throughput=ThroughputSection(),
            system=SystemSection(diagnosis="NO_DATA"),
            process=ProcessSection(diagnosis="NO_DATA"),
            overhead=OverheadSection(),
            warnings=[],
        ),
    )


def past_run(steps: Floats) -> PastRun:
    """Return what the index keeps of a run."""
    size, means = block_means(steps)
    known = precision(means, size)
    assert known is not None
    return PastRun(float(steps.mean()), known.variance / (sum(means) / len(means)) ** 2)


def verdicts(
    rng: np.random.Generator, way: Way, options: argparse.Namespace, cell: tuple[float, float], factor: float
) -> Counter[str]:
    """Return how often each verdict was given."""
    rho, noise_pct = cell
    each = 2 * way.runs + way.earlier
    runs = simulate(rng, options.pairs * each, options.steps, rho, noise_pct)
    found: Counter[str] = Counter()
    for at in range(0, len(runs), each):
        a = [given(steps, f"a{i}") for i, steps in enumerate(runs[at : at + way.runs])]
        b = [
            given(steps * factor, f"b{i}") for i, steps in enumerate(runs[at + way.runs : at + 2 * way.runs])
        ]
        earlier = [past_run(steps) for steps in runs[at + 2 * way.runs : at + each]]
        found[compare(a, b, past=Past([earlier])).verdict] += 1
    return found


def naive(
    rng: np.random.Generator, options: argparse.Namespace, cell: tuple[float, float]
) -> tuple[float, float]:
    """Return false alarms of a fixed cut of 3 %, and of a Mann-Whitney test on all steps."""
    runs = simulate(rng, 2 * options.pairs, options.steps, *cell)
    cut = tested = 0
    for a, b in zip(runs[::2], runs[1::2], strict=True):
        cut += abs(b.mean() / a.mean() - 1) > 0.03
        error = math.sqrt((len(a) + len(b) + 1) / (12 * len(a) * len(b)))
        tested += abs(superiority(a, b) - 0.5) / error > 1.96
    return float(cut) / options.pairs, float(tested) / options.pairs


def best_possible(cell: tuple[float, float], steps: int, runs: int = 5) -> float:
    """Return how often a two-sided test with 5 % false alarms finds the change when it knows the noise."""
    rho, noise_pct = cell
    within = SPREAD**2 * (1 + rho) / (1 - rho) / steps + STALLS / steps
    error = math.sqrt(2 / runs * ((noise_pct / 100) ** 2 + within))
    return NormalDist().cdf(math.log(SLOWER) / error - 1.96)


class Row(NamedTuple):
    """One combination of correlation and noise."""

    rho: float
    noise_pct: float
    alarms: list[float]  # by way
    missed: list[float]  # SAME though 3 % slower, by way
    found: list[float]  # REGRESSION, 3 % slower, by way
    naive: tuple[float, float]
    best: float


def row(options: argparse.Namespace, cell: tuple[float, float]) -> Row:
    rng = np.random.default_rng([options.seed, *(round(100 * part) for part in cell)])
    equal = [verdicts(rng, way, options, cell, 1.0) for way in WAYS]
    slower = [verdicts(rng, way, options, cell, SLOWER) for way in WAYS]
    n = options.pairs
    return Row(
        *cell,
        [(each["REGRESSION"] + each["IMPROVEMENT"]) / n for each in equal],
        [(each["SAME"] + each["IMPROVEMENT"]) / n for each in slower],
        [each["REGRESSION"] / n for each in slower],
        naive(rng, options, cell),
        best_possible(cell, options.steps),
    )


def pct(values: list[float] | tuple[float, ...]) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in values)


def table(rows: list[Row]) -> list[str]:
    names = ", ".join(way.name for way in WAYS)
    heads = ["corr.", "noise", "false alarms %", "3 % slower called SAME %", "called REGRESSION %",
             "best possible", "3 % cut, Mann-Whitney: false alarms %"]  # fmt: skip
    lines = [f"Each cell: {names}.", "", f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for each in rows:
        cells = [f"{each.rho:g}", f"{each.noise_pct:g} %", pct(each.alarms), pct(each.missed),
                 pct(each.found), f"{100 * each.best:.0f}", pct(each.naive)]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Print the table; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = [row(options, (rho, noise)) for rho in CORRELATIONS for noise in NOISES_PCT]
    print("\n".join(table(rows)))
    alarms = max(max(each.alarms) for each in rows)
    missed = max(max(each.missed) for each in rows)
    found = float(np.mean([each.found[-1] for each in rows]))
    print(f"\n{options.pairs} pairs of runs of {options.steps:,} steps in each combination:")
    print(
        f"  most false alarms                 {100 * alarms:5.1f} %  target {100 * FALSE_ALARMS:g} % at most"
    )
    print(f"  most SAME where 3 % slower        {100 * missed:5.1f} %  target {100 * MISSES:g} % at most")
    print(f"  REGRESSION there, five runs a side{100 * found:5.1f} %  target {100 * FOUND:g} % at least")
    return int(alarms > FALSE_ALARMS or missed > MISSES or found < FOUND)


if __name__ == "__main__":
    sys.exit(main())
