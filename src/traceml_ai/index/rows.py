"""What is kept of a run in the index, and how it is read out of its summary."""

from __future__ import annotations

import msgspec

from traceml_ai.compare.command import arguments, program
from traceml_ai.compare.likeness import settings_of
from traceml_ai.compare.longrun import plausible, precision
from traceml_ai.schema.summary import SCHEMA_VERSION, RunSection


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run folder."""

    folder: str  # its name below the log folder
    stamp: tuple[int, int, int]  # modification time (ns), size and inode of the file that was read
    status: str = "unknown"
    started_at: str | None = None  # ISO 8601, UTC
    script: str | None = None
    arguments: dict[str, str] = {}
    settings: dict[str, str | None] = {}  # what must be equal for step times to mean the same
    host: str | None = None
    diagnosis: str | None = None
    severity: str | None = None
    steps: int = 0
    step_ms: float | None = None
    relative_variance: float | None = None  # of the mean, from the run's own steps
    samples_per_sec: float | None = None
    problem: str | None = None  # why there is nothing else


class _Blocks(msgspec.Struct):
    step: list[float | None] = []


class _BlocksOf(msgspec.Struct):
    steps_per_block: int = 0
    phases: _Blocks = msgspec.field(default_factory=_Blocks)


class _StepTime(msgspec.Struct):
    steps: int = 0
    step_ms: float | None = None
    blocks: _BlocksOf = msgspec.field(default_factory=_BlocksOf)


class _Diagnosis(msgspec.Struct):
    kind: str
    severity: str


class _System(msgspec.Struct):
    hostname: str | None = None


class _Throughput(msgspec.Struct):
    samples_per_sec: float | None = None


class _Excerpt(msgspec.Struct):
    """The parts of a summary that a row is made of: to read no more is what makes it fast."""

    schema_version: int
    traceml_version: str
    run: RunSection
    diagnosis: _Diagnosis
    step_time: _StepTime
    system: _System
    throughput: _Throughput


_DECODER = msgspec.json.Decoder(_Excerpt)


def row_of(folder: str, stamp: tuple[int, int, int], data: bytes) -> Row:
    """Return the row of a summary's content; what is wrong with it is said in the row."""
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return Row(folder=folder, stamp=stamp, problem=f"not a TraceML summary, or damaged ({error})")
    if found.schema_version > SCHEMA_VERSION:
        newer = f"written by a newer TraceML (schema {found.schema_version})"
        return Row(folder=folder, stamp=stamp, problem=newer)
    run = found.run
    return Row(
        folder=folder,
        stamp=stamp,
        status=run.status,
        started_at=run.started_at,
        script=program(run.command),
        arguments=arguments(run.command),
        settings=settings_of(run),
        host=found.system.hostname,
        diagnosis=found.diagnosis.kind,
        severity=found.diagnosis.severity,
        steps=found.step_time.steps,
        step_ms=_time(found.step_time.step_ms),
        relative_variance=_relative_variance(found.step_time.blocks),
        samples_per_sec=found.throughput.samples_per_sec,
    )


def _relative_variance(blocks: _BlocksOf) -> float | None:
    values = [value for value in blocks.phases.step if value is not None]
    known = precision(values, blocks.steps_per_block)
    mean = sum(values) / len(values) if values else 0.0
    return known.variance / mean**2 if known and mean else None


def _time(step_ms: float | None) -> float | None:
    """Leave out what is no time: a damaged file must not spoil the series that it is in."""
    return step_ms if step_ms and plausible(step_ms) else None
