"""From a run's records, facts and samples to its summary."""

from __future__ import annotations

from collections.abc import Sequence

from traceml_ai.diagnose.catalogue import diagnose
from traceml_ai.diagnose.provider import RunView, signals_of, view_run
from traceml_ai.diagnose.sections import (
    overhead_section,
    process_section,
    run_section,
    step_memory_section,
    step_time_section,
    system_section,
    throughput_section,
    time_section,
)
from traceml_ai.diagnose.signals import RankInput, Signals
from traceml_ai.diagnose.unseen import warnings_of
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.summary import Finding, Severity, Summary

__all__ = ["RankInput", "summarize"]


def summarize(run: RunInfo, ranks: Sequence[RankInput], samples: Sequence[HostSample]) -> Summary:
    """Say what a run was, where its time went and what to change first.

    Works on a run that goes on as on one that is over, and on any number of steps, none included.

    Args:
        run: What was launched and how it ended.
        ranks: Its training processes; several, one or none.
        samples: What was sampled beside them, in order of time; may be empty.
    """
    view = view_run(ranks, samples)
    signals = signals_of(run, view)
    findings = diagnose(signals)
    return _assemble(run, view, signals, findings)


def _assemble(run: RunInfo, view: RunView, signals: Signals, findings: list[Finding]) -> Summary:
    return Summary(
        traceml_version=run.traceml_version,
        run=run_section(run, view),
        diagnosis=findings[0],
        findings=findings,
        step_time=step_time_section(run, view, signals, *_verdict(findings, "step_time", "NO_DATA")),
        step_memory=step_memory_section(
            view,
            signals,
            *_verdict(findings, "step_memory", "BALANCED" if signals.step_memory else "NO_DATA"),
        ),
        time=time_section(run, signals),
        throughput=throughput_section(view),
        system=system_section(
            run, view, signals, *_verdict(findings, "system", "NORMAL" if signals.host else "NO_DATA")
        ),
        process=process_section(
            run, view, signals, *_verdict(findings, "process", "NORMAL" if view.samples else "NO_DATA")
        ),
        overhead=overhead_section(view),
        warnings=warnings_of(run, view, signals),
    )


def _verdict(findings: list[Finding], section: str, otherwise: str) -> tuple[str, Severity]:
    for finding in findings:
        if finding.section == section:
            return finding.kind, finding.severity
    return otherwise, "info"
