"""What ran and on what, as groups of labelled facts for the report."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.report.text import NOT_AVAILABLE, duration, number, size
from traceml_ai.schema.summary import Summary


class Group(NamedTuple):
    """Facts under one heading."""

    title: str
    lines: list[tuple[str, str]]


def groups_of(summary: Summary) -> list[Group]:
    """Return everything about a run that is no chart; what is not known reads ``n/a``."""
    return [_run(summary), _model(summary), _process(summary), _host(summary), _versions(summary)]


def _run(summary: Summary) -> Group:
    run = summary.run
    return Group(
        "Run",
        [
            ("Status", run.status if run.exit_code is None else f"{run.status}, exit code {run.exit_code}"),
            ("Started", _word(run.started_at)),
            ("Duration", duration(run.duration_s)),
            ("Steps", f"{run.steps:,}"),
            ("Optimizer updates", _count(run.updates)),
            ("Microbatches", _count(run.microbatches)),
            ("Samples", _count(run.samples)),
            ("Skipped updates", f"{run.skipped_updates:,}"),
            ("Steps not finished", f"{run.aborted_steps:,}"),
            ("Processes", _count(run.world_size)),
            ("Nodes", _count(run.nodes)),
            *_ifs({"Attempts": run.attempts, "Ended by": run.ended_by}),
        ],
    )


def _model(summary: Summary) -> Group:
    run = summary.run
    return Group(
        "Training",
        [
            ("Framework", _word(run.framework)),
            ("Steps were", _word(run.mode)),
            ("Model", _words(run.model)),
            ("Optimizers", _words(run.optimizers)),
            ("Batch size", _count(run.batch_size)),
            ("Loader workers", _count(run.num_workers)),
            ("Accumulation", _count(run.accumulation)),
            ("Precision", _word(run.precision)),
            ("Strategy", _word(run.strategy)),
            ("Threads of torch", _count(run.threads)),
            ("Devices", _words(run.devices)),
            ("Clock", f"{summary.step_time.clock} clock"),
        ],
    )


def _process(summary: Summary) -> Group:
    process, device = summary.process, summary.step_memory
    usable = NOT_AVAILABLE if process.usable_cpus is None else f"{process.usable_cpus:g}"
    source = f" ({process.usable_cpus_source})" if process.usable_cpus_source else ""
    return Group(
        "Process",
        [
            ("Verdict", process.diagnosis),
            ("Usable processors", usable + source),
            ("Busy, main process", number(process.main_cpu_cores, 2)),
            ("Busy, loader workers", number(process.workers_cpu_cores, 2)),
            ("Peak memory", size(process.main_rss_peak_bytes)),
            ("Peak memory of workers", size(process.workers_pss_peak_bytes)),
            ("Memory limit", size(process.memory_limit_bytes)),
            ("Device memory", device.diagnosis),
            ("Peak allocated", size(device.peak_allocated_bytes)),
            ("Peak reserved", size(device.peak_reserved_bytes)),
        ],
    )


def _host(summary: Summary) -> Group:
    system = summary.system
    return Group(
        "Host",
        [
            ("Verdict", system.diagnosis),
            ("Name", _word(system.hostname)),
            ("Processors", _count(system.host_cpus)),
            ("Busy", _pct(system.cpu_pct)),
            ("Busy at most", _pct(system.cpu_pct_max)),
            ("Memory used at most", size(system.used_bytes_max)),
            ("Memory", size(system.total_bytes)),
        ],
    )


def _versions(summary: Summary) -> Group:
    return Group("Versions", list(summary.run.versions.items()) or [("traceml", summary.traceml_version)])


def _ifs(facts: dict[str, int | str | None]) -> list[tuple[str, str]]:
    """Return facts that only some runs have."""
    return [(label, str(fact)) for label, fact in facts.items() if fact is not None]


def _word(text: str | None) -> str:
    return text or NOT_AVAILABLE


def _words(texts: list[str]) -> str:
    return ", ".join(texts) or NOT_AVAILABLE


def _count(value: int | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:,}"


def _pct(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:.0f} %"
