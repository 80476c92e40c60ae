"""Summaries for the tests of the card: one that reads like a real run, and a strategy for any other."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from traceml_ai.schema.kinds import OVER_THE_RUN_KINDS, PROCESS_KINDS, STEP_TIME_KINDS
from traceml_ai.schema.summary import (
    BetweenByCause,
    Estimate,
    Finding,
    OverheadSection,
    PhaseStats,
    ProcessSection,
    RunSection,
    StepMemorySection,
    StepTimeSection,
    Summary,
    SystemSection,
    ThroughputSection,
    TimeSection,
)

CORE = ("input_wait", "h2d", "forward", "backward", "optimizer")


def phase(mean_ms: float, share_pct: float, coverage: float = 1.0) -> PhaseStats:
    return PhaseStats(
        mean_ms=mean_ms,
        median_ms=0.97 * mean_ms,
        p95_ms=1.4 * mean_ms,
        p99_ms=2 * mean_ms,
        total_s=0.27 * mean_ms,
        share_pct=share_pct,
        loop_share_pct=0.9 * share_pct,
        coverage=coverage,
    )


INPUT_BOUND = Finding(
    kind="INPUT_BOUND",
    severity="critical",
    section="step_time",
    why="61.2 % of step time (18.0 of 29.4 ms) is spent waiting for the next batch.",
    next="Prepare batches while the model computes: DataLoader(..., num_workers=1).",
    estimate=Estimate(step_ms=16.2, low_ms=15.1, high_ms=18.0, speedup=1.72, num_workers=1),
    saved_s=4.0,
)

STALL = Finding(
    kind="PERIODIC_STALL",
    severity="warning",
    section="step_time",
    why="Every 23rd step takes 80 ms longer.",
    next="Look at what happens every 23 steps.",
)


def make_summary(**changes: Any) -> Summary:
    """An input-bound run of 276 steps; ``changes`` replace whole sections."""
    sections: dict[str, Any] = {
        "traceml_version": "0.1.0",
        "run": RunSection(
            name="digits", status="completed", exit_code=0, duration_s=11.65, steps=276, devices=["cpu"]
        ),
        "diagnosis": INPUT_BOUND,
        "findings": [INPUT_BOUND, STALL],
        "step_time": StepTimeSection(
            diagnosis="INPUT_BOUND",
            severity="critical",
            steps=270,
            warmup_steps=6,
            step_ms=29.4,
            median_step_ms=28.8,
            p95_step_ms=35.2,
            phases={
                "input_wait": phase(18.0, 61.24),
                "forward": phase(4.4, 14.96),
                "backward": phase(5.5, 18.7),
                "optimizer": phase(0.4, 1.36),
                "loss": phase(0.1, 0.34),
                "residual": phase(1.0, 3.4),
                "between_steps": PhaseStats(mean_ms=3.4, loop_share_pct=10.2),
            },
            residual_by_cause={"checkpoint": 0.5, "other": 0.5},
        ),
        "step_memory": StepMemorySection(diagnosis="NO_DATA"),
        "time": TimeSection(
            total_s=11.65,
            startup_s=2.13,
            steps_s=8.11,
            between_steps_s=1.25,
            shutdown_s=0.16,
            between_by_cause=BetweenByCause(validation_s=0.8, checkpoint_s=0.1, loader_s=0.23, other_s=0.12),
        ),
        "throughput": ThroughputSection(samples_per_sec=1789.2, steps_per_sec=28.1, updates_per_sec=28.1),
        "system": SystemSection(diagnosis="NORMAL"),
        "process": ProcessSection(
            diagnosis="NORMAL",
            usable_cpus=2,
            main_cpu_cores=1.4,
            main_rss_bytes=412_000_000,
            main_rss_peak_bytes=415_300_000,
            workers=0,
        ),
        "overhead": OverheadSection(us_per_step=9.8, share_pct=0.031, attach_ms=12.3),
        "warnings": ["H2D: this run had no accelerator to copy to."],
    }
    return Summary(**(sections | changes))


def empty_summary() -> Summary:
    """A run of which nothing is known but that it ran."""
    nothing = Finding(
        kind="NO_DATA", severity="info", section="step_time", why="No step was seen.", next="Mark the step."
    )
    return make_summary(
        run=RunSection(name="nothing", status="completed"),
        diagnosis=nothing,
        findings=[nothing],
        step_time=StepTimeSection(diagnosis="NO_DATA"),
        time=TimeSection(),
        throughput=ThroughputSection(),
        process=ProcessSection(diagnosis="NO_DATA"),
        overhead=OverheadSection(),
        warnings=[],
    )


texts = st.text(max_size=400)
names = st.text(min_size=1, max_size=60)
amounts = st.none() | st.floats(min_value=0, max_value=1e9)
counts = st.integers(min_value=0, max_value=10**9)
maybe_counts = st.none() | counts
byte_counts = st.none() | st.integers(min_value=0, max_value=10**15)
severities = st.sampled_from(["info", "warning", "critical"])

estimates = st.none() | st.builds(
    Estimate,
    step_ms=amounts,
    low_ms=amounts,
    high_ms=amounts,
    speedup=amounts,
    num_workers=st.none() | st.integers(0, 512),
)
findings = st.builds(
    Finding,
    kind=st.sampled_from(STEP_TIME_KINDS + OVER_THE_RUN_KINDS + PROCESS_KINDS),
    severity=severities,
    section=st.sampled_from(["step_time", "process"]),
    why=texts,
    next=texts,
    estimate=estimates,
    confidence=st.sampled_from(["low", "medium", "high"]),
    saved_s=amounts,
)
runs = st.builds(
    RunSection,
    name=names,
    status=st.sampled_from(["running", "completed", "failed", "interrupted", "terminated", "killed"]),
    exit_code=st.none() | st.integers(-64, 255),
    duration_s=amounts,
    steps=counts,
    aborted_steps=st.integers(0, 3),
    exception=st.none() | names,
    devices=st.lists(st.sampled_from(["cpu", "cuda:0 NVIDIA H200"]), max_size=8),
    world_size=st.none() | st.integers(1, 4096),
)


@st.composite
def breakdowns(draw: st.DrawFn) -> StepTimeSection:
    """Phases whose shares add up to 100, as the analysis makes them; some phases may be missing."""
    seen = draw(st.lists(st.sampled_from(CORE), unique=True))
    named = draw(
        st.lists(
            names.filter(lambda n: n not in {*CORE, "residual", "between_steps"}), unique=True, max_size=8
        )
    )
    ordered = [*(name for name in CORE if name in seen), *named, "residual"]
    weight = st.floats(min_value=1e-3, max_value=1e3)
    weights = draw(st.lists(weight, min_size=len(ordered), max_size=len(ordered)))
    whole = sum(weights)
    phases = {n: phase(w, 100 * w / whole) for n, w in zip(ordered, weights, strict=True)}
    missing = {name: PhaseStats() for name in CORE if name not in seen}
    return StepTimeSection(
        diagnosis="BALANCED",
        steps=draw(st.integers(1, 10**9)),
        warmup_steps=draw(counts),
        step_ms=whole,
        median_step_ms=draw(amounts),
        p95_step_ms=draw(amounts),
        phases=phases
        | missing
        | {"between_steps": PhaseStats(mean_ms=draw(amounts), loop_share_pct=draw(amounts))},
        user_phases=named,
        residual_by_cause=draw(
            st.dictionaries(st.sampled_from(["validation", "checkpoint", "other"]), amounts)
        ),
    )


def _section(kind: type[msgspec.Struct], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **fields)


any_summary = st.builds(
    make_summary,
    run=runs,
    diagnosis=findings,
    findings=st.lists(findings, max_size=6),
    step_time=breakdowns() | st.just(StepTimeSection(diagnosis="NO_DATA")),
    step_memory=_section(
        StepMemorySection,
        diagnosis=st.just("BALANCED"),
        peak_allocated_bytes=byte_counts,
        peak_reserved_bytes=byte_counts,
    ),
    time=_section(
        TimeSection,
        total_s=amounts,
        startup_s=amounts,
        steps_s=amounts,
        between_steps_s=amounts,
        shutdown_s=amounts,
        between_by_cause=st.builds(
            BetweenByCause,
            validation_s=amounts,
            checkpoint_s=amounts,
            gc_s=amounts,
            loader_s=amounts,
            handlers_s=amounts,
            other_s=amounts,
            traceml_s=amounts,
        ),
    ),
    throughput=_section(
        ThroughputSection, samples_per_sec=amounts, tokens_per_sec=amounts, steps_per_sec=amounts
    ),
    process=_section(
        ProcessSection,
        diagnosis=st.just("NORMAL"),
        usable_cpus=st.none() | st.floats(0.1, 1024),
        main_cpu_cores=amounts,
        workers_cpu_cores=amounts,
        main_rss_peak_bytes=byte_counts,
        workers=maybe_counts,
        workers_pss_peak_bytes=byte_counts,
        memory_limit_bytes=byte_counts,
    ),
    overhead=_section(OverheadSection, us_per_step=amounts, share_pct=amounts, attach_ms=amounts),
    warnings=st.lists(texts, max_size=6),
)
