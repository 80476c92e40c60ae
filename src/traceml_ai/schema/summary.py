"""``final_summary.json`` as values: what a run was, where its time went, what to change first.

Every figure that may be unknown is ``None`` (JSON ``null``), never 0. Units are in the names; a
``share_pct`` is a share of total (mean) time, so the shares of a step add up to 100.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec

from traceml_ai.errors import TraceMLError
from traceml_ai.schema.run import Status
from traceml_ai.schema.series import Blocks, Histogram, MemorySeries, ProcessSeries, Series, SystemSeries

SCHEMA_VERSION = 1

Severity = Literal["info", "warning", "critical"]
Confidence = Literal["low", "medium", "high"]
EvidenceValue: TypeAlias = float | int | str | bool | list[float | int | str | None] | None


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a finding holds. ``None``: not narrowed down in that respect."""

    ranks: list[int] | None = None
    node: str | None = None
    process: str | None = None  # "main process" or "loader workers"
    phase: str | None = None  # a key of step_time.phases, or a cause of between_by_cause
    first_step: int | None = None
    last_step: int | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What following the advice would buy; only present when it can be estimated honestly."""

    step_ms: float | None = None  # mean step time afterwards; None: the time saved is between steps
    low_ms: float | None = None
    high_ms: float | None = None
    speedup: float | None = None  # of the training loop, 1.0 = none
    speedup_low: float | None = None
    speedup_high: float | None = None
    saved_share_pct: float | None = None  # of the training loop's time (steps and between steps)
    num_workers: int | None = None  # the number of workers it was computed for
    basis: str = ""  # what the figure rests on, in one sentence


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing found in a run.

    ``findings`` are ordered by severity, and within one by ``saved_s``: what fixing it would have saved of
    this run.
    """

    kind: str
    severity: Severity
    section: str  # step_time, step_memory, process or system
    scope: Scope = Scope()
    why: str  # one sentence with the number
    next: str  # one sentence: what to do
    evidence: dict[str, EvidenceValue] = {}
    estimate: Estimate | None = None
    confidence: Confidence = "medium"
    cost_ms_per_step: float | None = None  # averaged over the steady steps
    saved_s: float | None = None


class RunSection(msgspec.Struct, frozen=True, kw_only=True):
    """What ran, and how it ended."""

    name: str
    status: Status
    exit_code: int | None = None
    started_at: str | None = None  # ISO 8601, UTC
    duration_s: float | None = None  # the training process's life
    command: list[str] = []
    framework: str | None = None
    mode: str | None = None  # "marked" or "inferred" steps
    world_size: int | None = None
    nodes: int | None = None
    steps: int = 0  # closed steps, warm-up included, of the first rank
    updates: int | None = None  # optimizer steps that took effect
    microbatches: int | None = None
    samples: int | None = None
    aborted_steps: int = 0
    skipped_updates: int = 0
    dropped_steps: int = 0  # closed but not kept: counted, averaged nowhere
    dropped_groups: int = 0  # microbatches were trained, and the update never came
    exception: str | None = None
    attempts: int | None = None  # how often the ranks were started; figures are of the last attempt
    ended_by: str | None = None  # which of several training processes ended the run, and how
    devices: list[str] = []
    versions: dict[str, str] = {}
    model: list[str] = []
    optimizers: list[str] = []
    batch_size: int | None = None
    num_workers: int | None = None
    persistent_workers: bool | None = None
    accumulation: int | None = None
    strategy: str | None = None  # a framework's way to use devices and processes
    precision: str | None = None
    threads: int | None = None


class PhaseStats(msgspec.Struct, frozen=True, kw_only=True):
    """One phase: figures of the steady steps, but ``total_s`` of the whole run."""

    mean_ms: float | None = None  # over the steps that saw the phase
    median_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    total_s: float | None = None
    share_pct: float | None = None  # of step time; None for between_steps
    loop_share_pct: float | None = None  # of step time and time between steps together
    coverage: float | None = None  # fraction of the steps that saw it, 0..1


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's steady step."""

    rank: int | None = None
    pid: int | None = None
    steps: int = 0
    step_ms: float | None = None
    median_step_ms: float | None = None
    input_wait_ms: float | None = None
    h2d_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    residual_ms: float | None = None
    between_steps_ms: float | None = None
    node: str | None = None
    work_ms: float | None = None  # a turn of the loop without waiting for other ranks
    wait_ms: float | None = None  # for other ranks, per step
    transfer_ms: float | None = None  # at collectives however early the rank comes, per step
    score: float | None = None  # the fastest rank's median over this one's, 1.0 is the fastest
    left_out: str | None = None  # why this rank was not compared with the others
    ended: str | None = None  # how its process ended, if not in order


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over ranks."""

    median_ms: float | None = None
    worst_ms: float | None = None
    worst_rank: int | None = None
    skew_pct: float | None = None  # how far the worst is above the median


class AcrossRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that train together, over the steps that all of them made."""

    compared: int = 0
    listed: int = 0  # rows in `ranks`: of many, the worst and the typical ones
    first_step: int | None = None
    last_step: int | None = None
    waiting_measured: bool = False
    step_ms: float | None = None  # each step as long as its slowest rank
    ideal_step_ms: float | None = None  # every rank takes the typical time in every phase
    slowdown_ratio: float | None = None  # S: step_ms over ideal_step_ms
    from_slowest_pct: float | None = None  # of the slowdown: goes away with the slowest ranks ideal
    transfer_ms: float | None = None
    wait_ms: float | None = None
    phases: dict[str, Spread] = {}  # "work", "wait", "step" and each phase


class StepTimeSection(msgspec.Struct, frozen=True, kw_only=True):
    """Where a steady step's time goes."""

    diagnosis: str
    severity: Severity = "info"
    clock: Literal["host", "device"] = "host"
    steps: int = 0  # steady steps, behind every figure here
    warmup_steps: int = 0
    warmup_s: float | None = None
    step_ms: float | None = None  # mean step time
    median_step_ms: float | None = None
    p95_step_ms: float | None = None
    p99_step_ms: float | None = None
    dataloader_pct: float | None = None  # input wait's share of step time
    h2d_pct: float | None = None
    forward_pct: float | None = None
    backward_pct: float | None = None
    optimizer_pct: float | None = None
    residual_pct: float | None = None
    phases: dict[str, PhaseStats] = {}  # in the order of a step; then between_steps
    user_phases: list[str] = []  # which keys of phases the user named
    # ms per step: validation, checkpoint, what a framework tells (loss, zero_grad, ...), other
    residual_by_cause: dict[str, float | None] = {}
    gc_ms: float | None = None  # collections inside the step, ms per step; overlaps phases
    ranks: list[RankRow] = []
    across_ranks: AcrossRanks | None = None
    series: Series = Series()
    blocks: Blocks = Blocks()
    histograms: dict[str, Histogram] = {}  # "step" and each observed phase


class StepMemorySection(msgspec.Struct, frozen=True, kw_only=True):
    """Peak device memory per step."""

    diagnosis: str
    severity: Severity = "info"
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    growth_bytes_per_step: float | None = None
    steps: int = 0
    series: MemorySeries = MemorySeries()


class BetweenByCause(msgspec.Struct, frozen=True, kw_only=True):
    """Time between steps by cause. ``traceml_s`` is TraceML's own work on the training thread."""

    validation_s: float | None = None
    checkpoint_s: float | None = None
    gc_s: float | None = None
    loader_s: float | None = None
    handlers_s: float | None = None
    other_s: float | None = None
    traceml_s: float | None = None


class TimeSection(msgspec.Struct, frozen=True, kw_only=True):
    """Every second of the run: ``total_s = startup_s + steps_s + between_steps_s + shutdown_s``.

    All but ``total_s`` are ``None`` when no step was seen.
    """

    total_s: float | None = None
    startup_s: float | None = None
    steps_s: float | None = None
    between_steps_s: float | None = None
    shutdown_s: float | None = None
    between_by_cause: BetweenByCause = BetweenByCause()
    # A framework's handlers between steps, the costliest first, in s; whatever cause their time is under.
    handlers: dict[str, float] = {}


class ThroughputSection(msgspec.Struct, frozen=True, kw_only=True):
    """Rates over the steady period, time between steps included. One rank's samples are its own."""

    samples_per_sec: float | None = None
    tokens_per_sec: float | None = None
    updates_per_sec: float | None = None
    steps_per_sec: float | None = None


class SystemSection(msgspec.Struct, frozen=True, kw_only=True):
    """The host, whoever used it."""

    diagnosis: str
    severity: Severity = "info"
    hostname: str | None = None
    host_cpus: int | None = None
    cpu_pct: float | None = None  # mean, of all processors
    cpu_pct_max: float | None = None
    used_bytes_max: int | None = None
    total_bytes: int | None = None
    samples: int = 0
    series: SystemSeries = SystemSeries()


class ProcessSection(msgspec.Struct, frozen=True, kw_only=True):
    """The training process and its loader workers against what they may use."""

    diagnosis: str
    severity: Severity = "info"
    usable_cpus: float | None = None
    usable_cpus_source: str | None = None
    cpu_pct: float | None = None  # of the usable processors, main process and workers
    main_cpu_cores: float | None = None  # processors kept busy, on average
    workers_cpu_cores: float | None = None
    main_rss_bytes: int | None = None  # last
    main_rss_peak_bytes: int | None = None
    main_growth_bytes_per_step: float | None = None  # over the late part of the run
    workers: int | None = None  # most seen at once
    workers_pss_bytes: int | None = None  # last seen while there were workers
    workers_pss_peak_bytes: int | None = None
    workers_growth_bytes_per_step: float | None = None
    memory_limit_bytes: int | None = None
    memory_total_bytes: int | None = None
    samples: int = 0
    series: ProcessSeries = ProcessSeries()


class OverheadSection(msgspec.Struct, frozen=True, kw_only=True):
    """What measuring cost the training thread."""

    us_per_step: float | None = None
    share_pct: float | None = None  # of step time and time between steps
    attach_ms: float | None = None  # once, at start
    memory_bytes: int | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """``final_summary.json``."""

    schema_version: int = SCHEMA_VERSION
    traceml_version: str
    run: RunSection
    diagnosis: Finding  # the primary finding
    findings: list[Finding]  # all of them, the most severe first, and of those the most costly
    step_time: StepTimeSection
    step_memory: StepMemorySection
    time: TimeSection
    throughput: ThroughputSection
    system: SystemSection
    process: ProcessSection
    overhead: OverheadSection
    warnings: list[str]  # what was not seen, and why


def encode(summary: Summary) -> bytes:
    """Write a summary as strict, readable JSON (NaN and infinities become ``null``)."""
    text = msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()
    return (_NUMBER_LIST.sub(_on_one_line, text) + "\n").encode()


def decode(data: bytes | str, *, source: str = "the summary") -> Summary:
    """Read a summary written by this or an older version.

    Args:
        data: The file's content.
        source: How to call it in an error, usually its path.

    Raises:
        TraceMLError: Not JSON, cut off, another tool's, damaged, or from a newer version.
    """
    fields = _json_object(data, source)
    version = fields.get("schema_version")
    if "traceml_version" not in fields or not isinstance(version, int) or version < 1:
        raise TraceMLError(
            f"{source} is JSON but not a TraceML summary (no traceml_version and integer "
            f"schema_version in it): name a final_summary.json"
        )
    if version > SCHEMA_VERSION:
        raise TraceMLError(
            f"{source} was written by a newer TraceML (schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}): update traceml to read it"
        )
    try:
        return msgspec.convert(fields, Summary)
    except msgspec.ValidationError as error:
        raise TraceMLError(f"{source} is damaged ({error}): write it again or view the run folder") from None


def json_schema() -> dict[str, Any]:
    """Return the published JSON Schema (2020-12) of ``final_summary.json``."""
    return msgspec.json.schema(Summary)


# Raw line breaks never occur inside a JSON string, so this matches structure only.
_NUMBER_LIST = re.compile(r"\[\n\s+(?:(?:-?\d[\d.eE+-]*|null),?\s+)+\]")


def _on_one_line(match: re.Match[str]) -> str:
    return " ".join(match.group().split()).replace("[ ", "[").replace(" ]", "]")


def _json_object(data: bytes | str, source: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise TraceMLError(
                f"{source} is cut off in the middle: write it again or view the run folder"
            ) from None
        raise TraceMLError(f"{source} is not JSON ({error}): name a final_summary.json") from None
    except RecursionError:
        raise TraceMLError(
            f"{source} is JSON but nested too deeply for a TraceML summary: name a final_summary.json"
        ) from None
    if not isinstance(value, dict):
        raise TraceMLError(f"{source} is JSON but not a TraceML summary: name a final_summary.json")
    return value
