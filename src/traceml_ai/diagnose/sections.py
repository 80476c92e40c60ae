"""The sections of the summary: facts in the units and names that users read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceml_ai.analyze import curves, rates
from traceml_ai.analyze.breakdown import Breakdown, PhaseFigures
from traceml_ai.analyze.columns import EXT
from traceml_ai.analyze.host_curves import HostPoints, host_curves
from traceml_ai.diagnose import named
from traceml_ai.diagnose.ends import ending
from traceml_ai.diagnose.provider import RankView, RunView
from traceml_ai.diagnose.rank_table import across_ranks, rank_rows
from traceml_ai.diagnose.signals import Signals
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.series import (
    Blocks,
    Histogram,
    MemorySeries,
    ProcessSeries,
    Series,
    SystemSeries,
)
from traceml_ai.schema.step import Flags
from traceml_ai.schema.summary import (
    BetweenByCause,
    OverheadSection,
    PhaseStats,
    ProcessSection,
    RunSection,
    Severity,
    StepMemorySection,
    StepTimeSection,
    SystemSection,
    ThroughputSection,
    TimeSection,
)

_MS, _S = 1e6, 1e9


def _in(unit: float, nanoseconds: float | None) -> float | None:
    """Return a duration in another unit, to the nanosecond."""
    return None if nanoseconds is None else round(nanoseconds / unit, 9 if unit == _S else 6)


def _pct(part: float | None) -> float | None:
    return None if part is None else round(100 * part, 4)


def _nodes(run: RunInfo, view: RunView) -> int | None:
    """On how many hosts the ranks ran; those that do not say so ran where the collector did."""
    named = {rank.given.facts.get("node") for rank in view.ranks} - {None, ""}
    return len(named) or (1 if run.machine else None)


def run_section(run: RunInfo, view: RunView) -> RunSection:
    """Describe what ran, and how it ended."""
    facts, aggregate = view.first.given.facts, view.aggregate
    loader = (facts.get("loaders") or [{}])[0]
    found = ending(run, view)
    return RunSection(
        name=run.name,
        status=run.status,
        exit_code=run.exit_code,
        started_at=run.started_at,
        duration_s=_in(_S, run.end_ns - run.start_ns),
        command=run.command,
        framework=facts.get("framework"),
        mode="marked" if aggregate.marked else facts.get("mode"),
        world_size=facts.get("world_size") or len(view.ranks),
        nodes=_nodes(run, view),
        steps=aggregate.count,
        updates=_counted(view, "updates"),
        microbatches=_counted(view, "microbatches"),
        samples=_counted(view, "samples"),
        aborted_steps=_header(view.first, "aborted", facts.get("aborted_steps", 0)),
        skipped_updates=aggregate.flags[Flags.UPDATE_SKIPPED],
        dropped_steps=_header(view.first, "dropped", 0),
        dropped_groups=facts.get("dropped_groups", 0),
        exception=found.exception if found else facts.get("exception") or run.exception,
        attempts=view.attempts,
        ended_by=found.ended_by if found else None,
        devices=facts.get("devices", []),
        versions=_versions(run, facts),
        model=facts.get("model", []),
        optimizers=facts.get("optimizers", []),
        batch_size=loader.get("batch_size"),
        num_workers=loader.get("num_workers"),
        persistent_workers=loader.get("persistent_workers"),
        accumulation=facts.get("accumulation"),
        strategy=facts.get("strategy"),
        precision=facts.get("precision"),
        threads=facts.get("torch_threads"),
    )


def _counted(view: RunView, name: str) -> int | None:
    """Return a count of the first rank; none ever counted is not zero but unknown."""
    return int(view.aggregate.sums[EXT[name]]) or None


def _header(view: RankView, name: str, otherwise: int) -> int:
    header = view.given.header
    if header is None:
        return otherwise
    return header.aborted if name == "aborted" else header.dropped


def _versions(run: RunInfo, facts: ProcessFacts) -> dict[str, str]:
    versions = {
        "traceml": run.traceml_version,
        "python": facts.get("python_version"),
        "torch": facts.get("torch_version"),
        "driver": facts.get("driver_version"),
        facts.get("framework", "framework"): facts.get("framework_version"),
    }
    return {name: version for name, version in versions.items() if version}


def step_time_section(
    run: RunInfo, view: RunView, signals: Signals, diagnosis: str, severity: Severity
) -> StepTimeSection:
    """Describe the steady step."""
    whole, first = view.whole, view.first
    breakdown = view.breakdown
    section = StepTimeSection(
        diagnosis=diagnosis,
        severity=severity,
        clock=breakdown.clock if breakdown else "host",
        steps=first.steady.steps,
        warmup_steps=first.steady.warmup,
        warmup_s=_in(_S, first.steady.warmup_ns) if first.steady.warmup else None,
        gc_ms=_in(_MS, whole.total_ns("gc_ns") / whole.steps) if whole.steps else None,
        residual_by_cause={name: _in(_MS, value) for name, value in signals.residual_causes_ns.items()},
        ranks=rank_rows(run, view),
        across_ranks=across_ranks(view),
        series=_series(view),
        blocks=_blocks(view),
        histograms=_histograms(view),
    )
    return _with_breakdown(section, breakdown) if breakdown else section


def _with_breakdown(section: StepTimeSection, breakdown: Breakdown) -> StepTimeSection:
    return replace(
        section,
        step_ms=_in(_MS, breakdown.step_ns),
        median_step_ms=_in(_MS, breakdown.median_step_ns),
        p95_step_ms=_in(_MS, breakdown.p95_step_ns),
        p99_step_ms=_in(_MS, breakdown.p99_step_ns),
        dataloader_pct=_pct(breakdown.share("input_wait")),
        h2d_pct=_pct(breakdown.share("h2d")),
        forward_pct=_pct(breakdown.share("forward")),
        backward_pct=_pct(breakdown.share("backward")),
        optimizer_pct=_pct(breakdown.share("optimizer")),
        residual_pct=_pct(breakdown.share("residual")),
        phases={name: _phase(figures) for name, figures in breakdown.phases.items()},
        user_phases=breakdown.user_phases,
    )


def _phase(figures: PhaseFigures) -> PhaseStats:
    return PhaseStats(
        mean_ms=_in(_MS, figures.mean_ns),
        median_ms=_in(_MS, figures.median_ns),
        p95_ms=_in(_MS, figures.p95_ns),
        p99_ms=_in(_MS, figures.p99_ns),
        total_s=_in(_S, figures.total_ns),
        share_pct=_pct(figures.share),
        loop_share_pct=_pct(figures.loop_share),
        coverage=round(figures.coverage, 6),
    )


def _series(view: RunView) -> Series:
    points = curves.series(view.aggregate, view.first.breakdown)
    return Series(
        first_step=points.first_step,
        steps=points.steps,
        mean_ms=[_short(value) for value in points.mean_ns],
        max_ms=[_short(value) for value in points.max_ns],
        phases={name: [_short(value) for value in means] for name, means in points.phases_ns.items()},
    )


def _histograms(view: RunView) -> dict[str, Histogram]:
    return {
        name: Histogram(edges_ms=[_short(edge) for edge in edges], counts=counts)
        for name, (edges, counts) in curves.histograms(view.whole, view.breakdown).items()
    }


def _blocks(view: RunView) -> Blocks:
    found = curves.blocks(view.aggregate, view.first.steady.warmup, view.first.breakdown)
    return Blocks(
        steps_per_block=found.steps_per_block,
        phases={name: [_short(value) for value in means.tolist()] for name, means in found.phases.items()},
    )


def _short(nanoseconds: float) -> float:
    return round(nanoseconds / _MS, 4)


def _rounded(values: Sequence[float | None], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values]


def step_memory_section(
    view: RunView, signals: Signals, diagnosis: str, severity: Severity
) -> StepMemorySection:
    """Describe peak device memory."""
    memory = signals.step_memory
    if memory is None:
        return StepMemorySection(diagnosis=diagnosis, severity=severity)
    points = curves.series(view.aggregate, None)
    return StepMemorySection(
        diagnosis=diagnosis,
        severity=severity,
        peak_allocated_bytes=memory.peak_allocated_bytes,
        peak_reserved_bytes=memory.peak_reserved_bytes,
        growth_bytes_per_step=memory.growth.per_x if memory.growth else None,
        steps=signals.steps,
        series=MemorySeries(
            first_step=points.first_step,
            peak_allocated_bytes=points.peak_allocated_bytes,
            peak_reserved_bytes=points.peak_reserved_bytes,
        ),
    )


def time_section(run: RunInfo, signals: Signals) -> TimeSection:
    """Account for every second."""
    found = signals.timeline
    if found is None:
        return TimeSection(total_s=_in(_S, run.end_ns - run.start_ns))
    return TimeSection(
        total_s=_in(_S, found.total_ns),
        startup_s=_in(_S, found.startup_ns),
        steps_s=_in(_S, found.steps_ns),
        between_steps_s=_in(_S, found.between_ns),
        shutdown_s=_in(_S, found.shutdown_ns),
        between_by_cause=BetweenByCause(
            **{f"{cause}_s": _in(_S, value) for cause, value in found.by_cause.items()}
        ),
        handlers=named.costliest(signals.handlers_ns, signals.steps),
    )


def throughput_section(view: RunView) -> ThroughputSection:
    """Rates: samples and tokens of all ranks together, steps and updates of the first."""
    found = [
        rates.throughput(each.steady, each.given.aggregate.observed, each.steady.warmup)
        for each in view.ranks
        if each.steady.steps
    ]
    if not found:
        return ThroughputSection()
    return ThroughputSection(
        samples_per_sec=_sum([each.samples for each in found]),
        tokens_per_sec=_sum([each.tokens for each in found]),
        updates_per_sec=found[0].updates,
        steps_per_sec=found[0].steps,
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def system_section(
    run: RunInfo, view: RunView, signals: Signals, diagnosis: str, severity: Severity
) -> SystemSection:
    """Describe the host."""
    machine, host = run.machine, signals.host
    return SystemSection(
        diagnosis=diagnosis,
        severity=severity,
        hostname=machine.hostname if machine else None,
        host_cpus=machine.host_cpus if machine else None,
        cpu_pct=host.cpu_pct if host else None,
        cpu_pct_max=host.cpu_pct_max if host else None,
        used_bytes_max=host.used_bytes_max if host else None,
        total_bytes=host.total_bytes if host else None,
        samples=len(view.samples),
        series=_system_series(host_curves(view.samples, run.start_ns)),
    )


def _system_series(points: HostPoints) -> SystemSeries:
    return SystemSeries(
        at_s=[round(at / _S, 3) for at in points.at_ns],
        cpu_pct=_rounded(points.host_cpu_pct, 2),
        used_bytes=points.host_used_bytes,
    )


def process_section(
    run: RunInfo, view: RunView, signals: Signals, diagnosis: str, severity: Severity
) -> ProcessSection:
    """Describe the training process and its workers against what they may use."""
    machine, cpu = run.machine, signals.cpu
    main, workers = signals.main_memory, signals.workers_memory
    return ProcessSection(
        diagnosis=diagnosis,
        severity=severity,
        usable_cpus=machine.usable_cpus if machine else None,
        usable_cpus_source=machine.usable_cpus_source if machine else None,
        cpu_pct=_cpu_pct(signals),
        main_cpu_cores=cpu.main_cores if cpu else None,
        workers_cpu_cores=cpu.workers_cores if cpu else None,
        main_rss_bytes=main.last_bytes if main else None,
        main_rss_peak_bytes=main.peak_bytes if main else None,
        main_growth_bytes_per_step=main.growth.per_x if main and main.growth else None,
        workers=max((sample.workers for sample in view.samples), default=None),
        workers_pss_bytes=workers.last_bytes if workers else None,
        workers_pss_peak_bytes=workers.peak_bytes if workers else None,
        workers_growth_bytes_per_step=workers.growth.per_x if workers and workers.growth else None,
        memory_limit_bytes=machine.memory_limit_bytes if machine else None,
        memory_total_bytes=machine.memory_total_bytes if machine else None,
        samples=len(view.samples),
        series=_process_series(host_curves(view.samples, run.start_ns)),
    )


def _process_series(points: HostPoints) -> ProcessSeries:
    return ProcessSeries(
        at_s=[round(at / _S, 3) for at in points.at_ns],
        main_cpu_cores=_rounded(points.main_cores, 3),
        workers_cpu_cores=_rounded(points.workers_cores, 3),
        main_rss_bytes=points.main_rss_bytes,
        workers_pss_bytes=points.workers_pss_bytes,
    )


def _cpu_pct(signals: Signals) -> float | None:
    cpu, usable = signals.cpu, signals.usable_cpus
    if cpu is None or cpu.main_cores is None or not usable:
        return None
    return _pct((cpu.main_cores + (cpu.workers_cores or 0.0)) / usable)


def overhead_section(view: RunView) -> OverheadSection:
    """Describe what measuring cost the training thread."""
    found = rates.overhead(view.first.steady)
    facts = view.first.given.facts
    return OverheadSection(
        us_per_step=None if found.per_step_ns is None else round(found.per_step_ns / 1e3, 3),
        share_pct=_pct(found.share),
        attach_ms=_in(_MS, facts.get("attach_cost_ns")),
        memory_bytes=facts.get("host_memory_own_bytes"),
    )
