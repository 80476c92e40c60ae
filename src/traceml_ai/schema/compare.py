"""The comparison of two sides of runs as values: what ``traceml compare --output`` writes as JSON.

Every figure that may be unknown is ``None`` (JSON ``null``), never 0. ``a`` is the baseline, ``b`` what
is judged; a change is of ``b`` against ``a``, so a positive one of step time means slower.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from traceml_ai.schema.summary import Severity

COMPARISON_VERSION = 1

Verdict = Literal["IMPROVEMENT", "REGRESSION", "SAME", "UNKNOWN", "NOT_COMPARABLE"]
NoiseSource = Literal["runs", "earlier_runs", "assumed"]


class RunRef(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a side."""

    name: str
    path: str
    status: str
    started_at: str | None = None  # ISO 8601, UTC
    steps: int = 0  # steady steps
    step_ms: float | None = None
    blocks: int = 0  # block means of steady steps
    effective_blocks: float | None = None  # how many independent blocks they are worth
    within_pct: float | None = None  # standard error of this run's mean, from its own steps


class StepTimeChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of mean step time, with its interval."""

    a_ms: float
    b_ms: float
    change_pct: float
    low_pct: float
    high_pct: float
    speedup: float  # a / b, above 1: b is faster


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much step time differs between runs of the same program, and how that is known."""

    source: NoiseSource  # the runs compared, earlier runs in the log folder, or an assumption
    run_to_run_pct: float  # standard deviation of a run's mean step time
    runs: int = 0  # runs it was learnt from
    why: str  # in one sentence


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What it would take to decide an ``UNKNOWN``: either of the two. ``None``: that alone would not."""

    runs_a_side: int | None = None
    steps_a_run: int | None = None
    together: bool = False  # only both together would


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one phase in milliseconds a step; the interval is corrected for their number."""

    phase: str
    a_ms: float
    b_ms: float
    change_ms: float
    change_pct: float | None = None  # None: the baseline spent no time in it
    low_ms: float
    high_ms: float
    clear: bool  # the interval leaves zero out


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """Time that left one phase and turned up in another."""

    source: str
    target: str
    ms: float  # a step: the smaller of the two changes


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on one side only, or on both with another severity."""

    kind: str
    section: str
    change: Literal["came", "went", "changed"]
    severity_a: Severity | None = None
    severity_b: Severity | None = None
    why: str  # what the run that has it says


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of both sides without an interval; means over the runs of a side."""

    name: str
    unit: str  # bytes, per_sec, ms or s
    a: float | None = None
    b: float | None = None
    change_pct: float | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was set or installed differently."""

    about: Literal["argument", "setting", "environment"]
    name: str
    a: str | None = None  # None: not there, or not recorded
    b: str | None = None


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """One condition asked for on the command line."""

    condition: str  # as it was asked for
    passed: bool
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``traceml compare`` found."""

    comparison_version: int = COMPARISON_VERSION
    traceml_version: str
    verdict: Verdict
    headline: str  # the verdict in one line, with the interval
    reasons: list[str] = []  # why, or why not comparable
    level_pct: float = 95.0  # the probability that an interval covers
    a: list[RunRef]
    b: list[RunRef]
    step_time: StepTimeChange | None = None
    noise: Noise | None = None
    needed: Needed | None = None
    phases: list[PhaseChange] = []  # in the order of a step; then between_steps
    shifts: list[Shift] = []
    findings: list[FindingChange] = []
    throughput: list[Figure] = []
    memory: list[Figure] = []
    between: list[Figure] = []  # time between steps by cause, ms a step
    differences: list[Difference] = []
    gates: list[GateResult] = []
    passed: bool | None = None  # None: no gate was asked for, or nothing could be compared
    warnings: list[str] = []


def encode(comparison: Comparison) -> bytes:
    """Write a comparison as strict, readable JSON (NaN and infinities become ``null``)."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"
