"""The report: a run as one page that opens from disk. bokeh and jinja2 are only loaded to make one."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.report import facts
from traceml_ai.report.card import ending_of, seen_steps, worth_of
from traceml_ai.report.html_facts import groups_of
from traceml_ai.report.ranks import slowdown_line
from traceml_ai.report.text import NOT_AVAILABLE, number
from traceml_ai.report.words import KIND_WORDS, QUIET_KINDS
from traceml_ai.schema.summary import EvidenceValue, Finding, Summary

if TYPE_CHECKING:
    from traceml_ai.report.charts import Chart

HTML_FILE = "report.html"
"""Its name in a run folder."""

_SECTIONS = (
    ("step", "The step", ("breakdown", "timeline", "phases", "histograms", "ranks")),
    ("run", "The run", ("run_time", "between_steps")),
    ("resources", "Processors and memory", ("processors", "memory", "device_memory", "host")),
)


def _ranks_line(summary: Summary) -> str | None:
    across = summary.step_time.across_ranks
    return None if across is None else slowdown_line(across).strip()


_LINES = {
    "step": (*facts.OPTIONAL, _ranks_line, facts.cost_line),
    "run": (facts.run_line, facts.rate_line),
    "resources": (facts.memory_line,),
}


class Rows(NamedTuple):
    """A table of the page."""

    head: list[str]
    rows: list[list[str]]


class FindingText(NamedTuple):
    """A finding as the page shows it."""

    kind: str
    severity: str
    words: str
    lines: list[tuple[str, str]]
    evidence: Rows | None


class Section(NamedTuple):
    """A part of the page: a few sentences, and charts."""

    key: str
    title: str
    lines: list[str]
    charts: list[Chart]


def need_libraries() -> None:
    """Make sure that a report can be made, without loading anything.

    Raises:
        UsageError: bokeh or jinja2 is not installed.
    """
    missing = [name for name in ("bokeh", "jinja2") if find_spec(name) is None]
    if missing:
        raise UsageError(f'an HTML report needs {" and ".join(missing)}: pip install "traceml-ai[report]"')


def render_html(summary: Summary) -> str:
    """Return the report of a run: one file, complete in itself.

    Args:
        summary: The run, finished or not.

    Returns:
        An HTML page of at most 2 MB. It asks nobody for anything, and whatever names or messages the
        summary holds are shown as text.

    Raises:
        UsageError: bokeh or jinja2 is not installed.
        TraceMLError: Lists of the summary that belong together are not of one length.
    """
    need_libraries()
    check_lists(summary)
    from traceml_ai.report.charts import draw_all
    from traceml_ai.report.html_page import make_page

    charts = draw_all(summary)
    step_ms = summary.step_time.step_ms
    return make_page(
        "run.html",
        f"{summary.run.name} · TraceML",
        charts,
        head=_head(summary),
        verdict=finding_text(summary.diagnosis, step_ms),
        others=[finding_text(each, step_ms) for each in _others(summary)],
        sections=[each for each in _sections(summary, charts) if each.charts or each.lines],
        facts=groups_of(summary),
        warnings=summary.warnings,
    )


def check_lists(summary: Summary) -> None:
    """Refuse a summary whose lists don't fit one another: it was changed after it was written.

    Raises:
        TraceMLError: They don't.
    """
    step = summary.step_time
    together: dict[str, list[int]] = {
        "step_time.series": [*_lengths(step.series), *map(len, step.series.phases.values())],
        "step_memory.series": _lengths(summary.step_memory.series),
        "process.series": _lengths(summary.process.series),
        "system.series": _lengths(summary.system.series),
    }
    for name, histogram in step.histograms.items():
        if histogram.counts:
            together[f"step_time.histograms.{name}"] = [len(histogram.edges_ms), len(histogram.counts) + 1]
    odd = next((name for name, lengths in together.items() if len(set(lengths)) > 1), None)
    if odd is not None:
        raise TraceMLError(
            f"the summary is damaged (lists of {odd} differ in length): write it again or view the run folder"
        )


def _lengths(series: Struct) -> list[int]:
    values = (getattr(series, name) for name in series.__struct_fields__)
    return [len(value) for value in values if isinstance(value, list)]


def _head(summary: Summary) -> dict[str, Any]:
    run = summary.run
    ranks = f"{run.world_size} ranks" if (run.world_size or 1) > 1 else ""
    started = (run.started_at or "").replace("T", " ")
    state = [
        run.status,
        seen_steps(summary),
        ", ".join(run.devices) or f"device {NOT_AVAILABLE}",
        ranks,
        started,
    ]
    return {
        "name": run.name,
        "state": " · ".join(part for part in state if part),
        "ending": ending_of(summary),
        "command": shlex.join(run.command) or NOT_AVAILABLE,
        "version": summary.traceml_version,
    }


def _sections(summary: Summary, charts: list[Chart]) -> list[Section]:
    return [
        Section(
            key,
            title,
            [text for line in _LINES[key] if (text := line(summary))],
            [chart for chart in charts if chart.key in keys],
        )
        for key, title, keys in _SECTIONS
    ]


def _others(summary: Summary) -> list[Finding]:
    return [f for f in summary.findings if f != summary.diagnosis and f.kind not in QUIET_KINDS]


def finding_text(finding: Finding, step_ms: float | None) -> FindingText:
    """Return a finding in the words of the page."""
    lines = [("Why", finding.why), ("Next", finding.next)]
    worth = worth_of(finding, step_ms)
    if worth:
        basis = finding.estimate.basis if finding.estimate else ""
        lines.append(("Gain", worth + (f" ({basis})" if basis else "")))
    place = _place(finding)
    if place:
        lines.append(("Where", place))
    lines.append(("Confidence", finding.confidence))
    evidence = [[name, _evidence(value)] for name, value in finding.evidence.items()]
    words = KIND_WORDS.get(finding.kind, "")
    return FindingText(
        finding.kind,
        finding.severity,
        words[:1].upper() + words[1:] + ("." if words else ""),
        lines,
        Rows(["measured", "value"], evidence) if evidence else None,
    )


def _place(finding: Finding) -> str:
    scope = finding.scope
    steps = ""
    if scope.first_step is not None:
        to = f" to {scope.last_step:,}" if scope.last_step is not None else " on"
        steps = f"{'steps' if scope.last_step is not None else 'from step'} {scope.first_step:,}{to}"
    ranks = "" if scope.ranks is None else "rank " + ", ".join(str(rank) for rank in scope.ranks)
    phase = "" if scope.phase is None else scope.phase.replace("_", " ")
    return ", ".join(part for part in (phase, steps, ranks, scope.node or "", scope.process or "") if part)


def _evidence(value: EvidenceValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else number(value, 4)
    if isinstance(value, list):
        return ", ".join(_evidence(each) for each in value)
    return NOT_AVAILABLE if value is None else value
