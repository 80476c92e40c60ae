"""Two sides of runs compared: the whole of what ``traceml compare`` says, as one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from traceml_ai.analyze.breakdown import BETWEEN
from traceml_ai.compare import changes, likeness, longrun, phases
from traceml_ai.compare import noise as noises
from traceml_ai.compare.command import program
from traceml_ai.compare.gate import Gate, check
from traceml_ai.compare.noise import Estimate, Floor, PastRun
from traceml_ai.compare.verdict import (
    LEVEL_PCT,
    MOST_RUNS,
    SAME_PCT,
    Interval,
    Judgement,
    Wanted,
    interval,
    judge,
    wanted,
)
from traceml_ai.compare.wording import as_text, bound, plural, signed
from traceml_ai.schema.compare import Comparison, Needed, Noise, PhaseChange, RunRef, StepTimeChange
from traceml_ai.schema.summary import Summary

# With so many steady steps the summary's blocks are as many as they get.
_ENOUGH_STEPS = 48


class Given(NamedTuple):
    """A summary and where it was found."""

    path: str
    summary: Summary


class Past(NamedTuple):
    """Earlier runs of the same script: those alike together, each group in order of time."""

    groups: Sequence[Sequence[PastRun]] = ()
    place: str = "the log folder"


class _Runs(NamedTuple):
    """The runs of both sides, ready for the statistics."""

    a: list[Estimate]
    b: list[Estimate]


def empty(side: Sequence[Given]) -> list[str]:
    """Return the runs of a side without any steady step: there is nothing in them to compare."""
    return [given.path for given in side if not _has_step_time(given.summary)]


def _has_step_time(summary: Summary) -> bool:
    return bool(summary.step_time.step_ms) and longrun.plausible(summary.step_time.step_ms)


def compare(
    a: Sequence[Given],
    b: Sequence[Given],
    *,
    past: Past | None = None,
    gate: Gate | None = None,
    version: str = "",
) -> Comparison:
    """Compare runs ``b`` with the baseline ``a``.

    Args:
        a: The runs of the baseline, at least one, none of them :func:`empty`.
        b: The runs to be judged, likewise.
        past: What is known of earlier runs of the same script.
        gate: Conditions to check.
        version: Of TraceML, to be kept in the result.
    """
    found = _compare(a, b, past or Past(), version)
    if gate is None or not gate.wanted or found.verdict == "NOT_COMPARABLE":
        return found
    results = check(found, gate)
    return replace(found, gates=results, passed=all(result.passed for result in results))


def _compare(a: Sequence[Given], b: Sequence[Given], past: Past, version: str) -> Comparison:
    sides = [given.summary for given in a], [given.summary for given in b]
    obstacles = likeness.obstacles(*sides)
    known = Comparison(
        traceml_version=version,
        verdict="NOT_COMPARABLE",
        headline=f"NOT_COMPARABLE: {'; '.join(obstacles)}",
        reasons=obstacles,
        level_pct=LEVEL_PCT,
        a=[_ref(given) for given in a],
        b=[_ref(given) for given in b],
        differences=likeness.differences(*sides),
        warnings=[*_same_runs(a, b), *likeness.cautions(*sides)],
    )
    if obstacles:
        return known
    known = replace(
        known,
        findings=changes.finding_changes(*sides),
        throughput=changes.throughput(*sides),
        memory=changes.memory(*sides),
        between=changes.between(*sides),
    )
    return _judged(known, *sides, past)


def _ref(given: Given) -> RunRef:
    run, step = given.summary.run, given.summary.step_time
    known = _precision(given.summary)
    return RunRef(
        name=run.name,
        path=as_text(given.path),
        status=run.status,
        started_at=run.started_at,
        steps=step.steps,
        step_ms=step.step_ms,
        blocks=len(step.blocks.phases.get("step", [])),
        effective_blocks=known and round(known.effective, 1),
        within_pct=known and round(100 * math.sqrt(known.variance), 3),
    )


def _precision(summary: Summary) -> longrun.Precision | None:
    """Return how well the run's mean is known, relative to it."""
    blocks = summary.step_time.blocks
    values = [value for value in blocks.phases.get("step", []) if value is not None]
    mean = sum(values) / len(values) if values else 0.0
    if not mean or not longrun.plausible(mean):
        return None
    return longrun.precision([value / mean for value in values], blocks.steps_per_block)


def _same_runs(a: Sequence[Given], b: Sequence[Given]) -> list[str]:
    both = {given.path for given in a} & {given.path for given in b}
    return [f"{as_text(path)} is on both sides" for path in sorted(both)]


def _judged(known: Comparison, a: Sequence[Summary], b: Sequence[Summary], past: Past) -> Comparison:
    runs = _Runs(*([e for s in side if (e := _estimate(s))] for side in (a, b)))
    if len(runs.a) < len(a) or len(runs.b) < len(b):
        return _too_short(known)
    floor = noises.ASSUMED if noises.speaks_for_itself(*runs) else noises.learn(past.groups)
    found = interval(*runs, floor)
    change = _step_time(runs, found)
    verdict = judge(found)
    needed = _needed(wanted(found, *runs, floor), [*a, *b]) if verdict == "UNKNOWN" else None
    moved = phases.phase_changes(a, b, floor, change.a_ms, change.b_ms)
    script = program(a[0].run.command) or "the script"
    return replace(
        known,
        verdict=verdict,
        headline=headline(verdict, change),
        reasons=_reasons(verdict, change, needed, runs),
        step_time=change,
        noise=_noise(runs, floor, f"{script} in {past.place}"),
        needed=needed,
        phases=moved,
        shifts=phases.shifts(moved),
        warnings=[*known.warnings, *_beside(moved, change.a_ms)],
    )


def _beside(moved: Sequence[PhaseChange], step_ms: float) -> list[str]:
    """Time between steps is in no step: where it changed, the verdict alone would mislead."""
    return [
        f"time between steps changed by {signed(each.change_ms, 2)} ms a step: it is no part of step time"
        for each in moved
        if each.phase == BETWEEN and each.clear and abs(each.change_ms) >= SAME_PCT / 100 * step_ms
    ]


def _estimate(summary: Summary) -> Estimate | None:
    """Return the logarithm of a run's mean step time, and how well it is known."""
    mean, known = summary.step_time.step_ms, _precision(summary)
    if not mean or known is None:
        return None
    return Estimate(math.log(mean), known.variance, known.dof)


def _too_short(known: Comparison) -> Comparison:
    least = plural(longrun.LEAST_BLOCKS, "steady step")
    why = f"step time can't be judged from fewer than {least} a run; {_ENOUGH_STEPS} would do"
    return replace(
        known,
        verdict="UNKNOWN",
        headline="UNKNOWN: too few steady steps",
        reasons=[why],
        needed=Needed(steps_a_run=_ENOUGH_STEPS),
    )


def _step_time(runs: _Runs, found: Interval) -> StepTimeChange:
    """Return the change; means over runs are geometric, as the change is a ratio."""
    means = [math.exp(math.fsum(run.value for run in side) / len(side)) for side in runs]
    return StepTimeChange(
        a_ms=means[0],
        b_ms=means[1],
        change_pct=found.change_pct,
        low_pct=found.low_pct,
        high_pct=found.high_pct,
        speedup=math.exp(-found.change),
    )


def headline(verdict: Judgement, change: StepTimeChange) -> str:
    """Return the verdict in one line."""
    span = f"[{signed(change.low_pct)}, {bound(change.high_pct)}]"
    return f"{verdict} step time {signed(change.change_pct)} % {span}"


def _reasons(verdict: Judgement, change: StepTimeChange, needed: Needed | None, runs: _Runs) -> list[str]:
    if verdict == "REGRESSION":
        return [f"Every change that fits the runs is a slowdown, by {change.low_pct:.1f} % at least."]
    if verdict == "IMPROVEMENT":
        return [f"Every change that fits the runs is a speed-up, by {-change.high_pct:.1f} % at least."]
    if verdict == "SAME":
        most = max(abs(change.low_pct), abs(change.high_pct))
        return [f"No change of more than {most:.1f} % fits the runs."]
    span = f"Anything from {signed(change.low_pct)} to {bound(change.high_pct)} % fits the runs."
    return [span, _takes(needed or Needed(), runs)]


def _takes(needed: Needed, runs: _Runs) -> str:
    now = f"(now {len(runs.a)} and {len(runs.b)})"
    many = "" if needed.runs_a_side is None else f"{plural(needed.runs_a_side, 'run')} a side {now}"
    long = "" if needed.steps_a_run is None else f"{plural(needed.steps_a_run, 'step')} a run"
    if not many and not long:
        return f"Not even {MOST_RUNS} runs a side would decide: the noise is too large."
    if needed.together:
        return f"It would take about {many} with {long} to decide."
    return f"It would take about {' or '.join(filter(None, (many, long)))} to decide."


def _needed(found: Wanted, summaries: Sequence[Summary]) -> Needed:
    steps = max(summary.step_time.steps for summary in summaries)
    return Needed(
        runs_a_side=found.runs_a_side,
        steps_a_run=None if found.times_as_long is None else _rounded_up(steps * found.times_as_long),
        together=found.together,
    )


def _rounded_up(count: int) -> int:
    """Two digits are all that can be foretold."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // unit) * unit


def _noise(runs: _Runs, floor: Floor, where: str) -> Noise:
    if noises.speaks_for_itself(*runs):
        found = noises.spread(*runs, 0.0, 0.0, 1.0).variance / (1 / len(runs.a) + 1 / len(runs.b))
        relative, count = math.sqrt(found), len(runs.a) + len(runs.b)
        why = f"Noise between runs is that of the {len(runs.a)} + {len(runs.b)} runs: {_pct(relative)}."
        return Noise(source="runs", run_to_run_pct=100 * relative, runs=count, why=why)
    few = _few(runs)
    if floor.runs:
        why = f"{few} {_pct(floor.relative)} was learnt from {floor.runs} earlier runs of {where}."
        return Noise(source="earlier_runs", run_to_run_pct=100 * floor.relative, runs=floor.runs, why=why)
    why = f"{few} {_pct(floor.relative)} is assumed, for want of earlier runs of {where}."
    return Noise(source="assumed", run_to_run_pct=100 * floor.relative, why=why)


def _few(runs: _Runs) -> str:
    if noises.own_dof(*runs) == 0:
        return "One run a side can't show the noise between runs:"
    return "So few runs show little of the noise between them, so theirs is weighed with this:"


def _pct(relative: float) -> str:
    return f"{100 * relative:.2g} %"
