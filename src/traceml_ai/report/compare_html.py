"""A comparison as one page that opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from traceml_ai.report import compare_words as words
from traceml_ai.report.html import Rows, check_lists, need_libraries
from traceml_ai.report.text import NOT_AVAILABLE, number
from traceml_ai.schema.compare import Comparison, RunRef
from traceml_ai.schema.summary import Summary

_CLASSES = {
    "IMPROVEMENT": "good",
    "SAME": "good",
    "REGRESSION": "critical",
    "UNKNOWN": "warning",
    "NOT_COMPARABLE": "warning",
}


class Part(NamedTuple):
    """A list of sentences under a heading, and perhaps a table."""

    key: str
    title: str
    lines: list[str]
    table: Rows | None = None


def render_comparison(found: Comparison, a: Sequence[Summary], b: Sequence[Summary]) -> str:
    """Return the page of a comparison: one file, complete in itself.

    Args:
        found: The comparison.
        a: The runs of the baseline, in its order.
        b: The runs that were judged.

    Raises:
        UsageError: bokeh or jinja2 is not installed.
    """
    need_libraries()
    for summary in (*a, *b):
        check_lists(summary)
    from traceml_ai.report.charts.compare import Sides, draw_comparison
    from traceml_ai.report.html_page import make_page

    charts = draw_comparison(Sides(found, a, b))
    title = f"{words.names_of(found.a)} → {words.names_of(found.b)}"
    return make_page(
        "compare.html",
        f"{title} · TraceML",
        charts,
        title_line=title,
        verdict=found.verdict,
        look=_CLASSES[found.verdict],
        lines=_verdict_lines(found),
        drawn=charts,
        drawn_title="Each run for itself" if found.verdict == "NOT_COMPARABLE" else "Where the time moved",
        parts=[part for part in _parts(found) if part.lines or part.table],
        version=found.traceml_version,
    )


def _verdict_lines(found: Comparison) -> list[tuple[str, str]]:
    lines = [("Verdict", found.headline)]
    if found.step_time is not None:
        lines.append(("Step time", words.step_words(found)))
    lines += [("Why", reason) for reason in found.reasons]
    if found.noise is not None:
        lines.append(("Noise", found.noise.why))
    if found.passed is not None:
        lines.append(("Gates", "passed" if found.passed else "failed"))
    return lines


def _parts(found: Comparison) -> list[Part]:
    return [
        Part("gates", "Gates", [], _gates(found)),
        Part("shifts", "Time that moved", [_shift(each) for each in found.shifts]),
        Part(
            "findings", "Findings that came and went", [words.finding_words(each) for each in found.findings]
        ),
        Part("throughput", "Throughput", [words.figure_words(each) for each in found.throughput]),
        Part("memory", "Peak memory", words.memory_words(found)),
        Part("between", "Between steps", words.between_words(found)),
        Part("differences", "What was different", [], _differences(found)),
        Part("runs", "Runs", [], _runs(found)),
        Part("warnings", "To be kept in mind", found.warnings),
    ]


def _shift(shift: Any) -> str:
    return (
        f"{number(shift.ms)} ms a step from {words.phase_name(shift.source)} to "
        f"{words.phase_name(shift.target)}"
    )


def _gates(found: Comparison) -> Rows | None:
    if not found.gates:
        return None
    rows = [[gate.condition, "passed" if gate.passed else "failed", gate.why] for gate in found.gates]
    return Rows(["gate", "result", "why"], rows)


def _differences(found: Comparison) -> Rows | None:
    if not found.differences:
        return None
    rows = [[each.name, each.about, each.a or "(none)", each.b or "(none)"] for each in found.differences]
    return Rows(["what", "kind", "A", "B"], rows)


def _runs(found: Comparison) -> Rows:
    rows = [[*_run(ref), side] for side, refs in (("A", found.a), ("B", found.b)) for ref in refs]
    return Rows(["run", "path", "status", "started", "steady steps", "mean ms", "side"], rows)


def _run(ref: RunRef) -> list[str]:
    started = ref.started_at or NOT_AVAILABLE
    return [ref.name, ref.path, ref.status, started, f"{ref.steps:,}", number(ref.step_ms)]
