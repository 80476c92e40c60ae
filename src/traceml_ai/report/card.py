"""The card: a whole run on at most 30 lines and 100 columns."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len

from traceml_ai.report import facts
from traceml_ai.report.ranks import rank_lines
from traceml_ai.report.table import rows_of, table_lines
from traceml_ai.report.text import NOT_AVAILABLE, clean, duration, fit, number, steps_of, wrap
from traceml_ai.report.words import KIND_WORDS, QUIET_KINDS
from traceml_ai.schema.summary import Estimate, Finding, Summary

__all__ = ["MAX_LINES", "MAX_WIDTH", "MIN_WIDTH", "render_card"]

MAX_LINES = 30
MIN_WIDTH = 80
MAX_WIDTH = 100

_INDENT = 7  # "  Why  "
_COLOURS = {"critical": "31;1", "warning": "33;1", "info": "32;1"}
_HANGING = 2
_SHORTEST_NAME = 16
_NO_GAIN = 1.005  # a speed-up that shows as 1.00x


class _Limits(NamedTuple):
    """How much room each part gets; the card takes the first row of ``_LIMITS`` that fits."""

    gaps: bool
    sentence: int  # lines of why and of next
    named: int  # rows for the user's own phases
    others: int  # further findings
    notes: int  # lines that a fact, a further finding or a warning may take
    ranks: int = 4  # rows of the table of ranks


_LIMITS = (
    _Limits(gaps=True, sentence=4, named=8, others=3, notes=3, ranks=8),
    _Limits(gaps=False, sentence=4, named=8, others=3, notes=3, ranks=6),
    _Limits(gaps=False, sentence=4, named=5, others=3, notes=2, ranks=4),
    _Limits(gaps=False, sentence=3, named=3, others=3, notes=2, ranks=3),
    _Limits(gaps=False, sentence=3, named=3, others=3, notes=1, ranks=3),
    _Limits(gaps=False, sentence=2, named=2, others=2, notes=1, ranks=2),
    _Limits(gaps=False, sentence=2, named=2, others=1, notes=1, ranks=1),
)
_WARNINGS = 3


def render_card(
    summary: Summary, *, width: int = MAX_WIDTH, ascii_only: bool = False, color: bool = False
) -> str:
    """Render a summary as text.

    Args:
        summary: The run.
        width: Columns to use, held between 80 and 100.
        ascii_only: Use no character outside ASCII.
        color: Colour the verdict with terminal escape codes; without it the text holds none.

    Returns:
        At most 30 lines, ending in a line feed. What was not measured reads ``n/a``.
    """
    width = min(MAX_WIDTH, max(MIN_WIDTH, width))
    lines = _shortest_fit(summary, width, ascii_only=ascii_only)
    if color:
        lines = [_coloured(line, summary) for line in lines]
    return "\n".join(lines) + "\n"


def _shortest_fit(summary: Summary, width: int, *, ascii_only: bool) -> list[str]:
    lines: list[str] = []
    for limits in _LIMITS:
        lines = list(_Card(summary, width, limits, ascii_only=ascii_only).lines())
        if len(lines) <= MAX_LINES:
            break
    return lines[:MAX_LINES]


def _coloured(line: str, summary: Summary) -> str:
    if not line.startswith(summary.diagnosis.kind):
        return line
    return f"\x1b[{_COLOURS[summary.diagnosis.severity]}m{line}\x1b[0m"


class _Card:
    def __init__(self, summary: Summary, width: int, limits: _Limits, *, ascii_only: bool) -> None:
        self.summary = summary
        self.width = width
        self.limits = limits
        self.ascii_only = ascii_only

    def lines(self) -> Iterator[str]:
        parts = (
            self._head(),
            self._verdict(),
            self._breakdown(),
            self._ranks(),
            self._facts(),
            self._notes(),
        )
        for i, part in enumerate(parts):
            found = list(part)
            if i > 1 and found and self.limits.gaps:
                yield ""
            yield from found

    def _clean(self, text: str) -> str:
        return clean(text, ascii_only=self.ascii_only)

    def _one(self, text: str) -> str:
        return fit(self._clean(text), self.width)

    def _labelled(self, label: str, text: str, max_lines: int) -> Iterator[str]:
        body = wrap(self._clean(text), self.width - _INDENT, max_lines)
        for i, line in enumerate(body):
            yield f"  {label if i == 0 else '':<{_INDENT - 2}}{line}"

    def _hanging(self, text: str, tail: str = "") -> Iterator[str]:
        """Wrap a line, its continuation set in; ``tail`` is never cut off."""
        room = self.width - _HANGING - len(tail)
        lines = wrap(self._clean(text), room if self.limits.notes > 1 else room + _HANGING, self.limits.notes)
        for i, line in enumerate(lines):
            yield (" " * _HANGING if i else "") + line + (tail if i == len(lines) - 1 else "")

    def _head(self) -> Iterator[str]:
        run, dot = self.summary.run, self._clean("·")
        facts_of_run = [
            run.status,
            seen_steps(self.summary),
            ", ".join(run.devices) or f"device {NOT_AVAILABLE}",
        ]
        if (run.world_size or 1) > 1:
            facts_of_run.append(f"{run.world_size} ranks")
        tail = "".join(f" {dot} {self._clean(fact)}" for fact in facts_of_run)
        title = f"TraceML {dot} "
        name = fit(self._clean(run.name), max(_SHORTEST_NAME, self.width - cell_len(title + tail)))
        yield fit(title + name + tail, self.width)
        ending = ending_of(self.summary)
        if ending:
            yield self._one(ending)

    def _verdict(self) -> Iterator[str]:
        finding = self.summary.diagnosis
        yield self._one(_headline(finding))
        yield from self._labelled("Why", finding.why, self.limits.sentence)
        yield from self._labelled("Next", finding.next, self.limits.sentence)
        worth = worth_of(finding, self.summary.step_time.step_ms)
        if worth:
            yield from self._labelled("Gain", worth, min(2, self.limits.notes))

    def _breakdown(self) -> Iterable[str]:
        step = self.summary.step_time
        if not step.steps or step.step_ms is None:
            return ()
        rows = rows_of(self.summary, self.limits.named)
        return table_lines(rows, f"Step ({step.clock} clock)", self.width, ascii_only=self.ascii_only)

    def _ranks(self) -> Iterable[str]:
        return rank_lines(self.summary, self.width, self.limits.ranks, ascii_only=self.ascii_only)

    def _facts(self) -> Iterator[str]:
        lines = (*facts.OPTIONAL, *facts.LINES)
        for text in (line(self.summary) for line in lines):
            if text:
                yield from self._hanging(text)

    def _notes(self) -> Iterator[str]:
        for finding in _others(self.summary)[: self.limits.others]:
            yield from self._hanging(f"Also: {finding.kind} ({finding.severity}): {finding.why}")
        warnings = self.summary.warnings
        for i, warning in enumerate(warnings[:_WARNINGS]):
            more = len(warnings) - _WARNINGS if i == _WARNINGS - 1 else 0
            yield from self._hanging(f"Not seen: {warning}", f" (and {more} more)" if more > 0 else "")


def seen_steps(summary: Summary) -> str:
    """Say how many steps were closed, and in what time."""
    warm = summary.step_time.warmup_steps
    warmed = f" ({warm:,} warm-up)" if warm else ""
    return f"{steps_of(summary.run.steps)}{warmed} in {duration(summary.run.duration_s)}"


def _headline(finding: Finding) -> str:
    words = KIND_WORDS.get(finding.kind)
    said = f"{finding.kind} ({finding.severity})" + (f" {words}" if words else "")
    return said if finding.confidence != "low" else f"{said}, low confidence"


def _others(summary: Summary) -> list[Finding]:
    return [
        finding
        for finding in summary.findings
        if finding != summary.diagnosis and finding.kind not in QUIET_KINDS
    ]


def worth_of(finding: Finding, step_ms: float | None) -> str | None:
    """Say what following the advice would buy, or ``None`` when that is not known."""
    estimate = finding.estimate
    if estimate is None:
        return None if finding.saved_s is None else f"at most {duration(finding.saved_s)} of this run"
    parts = [part for part in (_speedup(estimate), _step_change(estimate, step_ms)) if part]
    return ": ".join(parts) or None


def _speedup(estimate: Estimate) -> str:
    if estimate.speedup is None or estimate.speedup < _NO_GAIN:
        return ""
    workers = "" if estimate.num_workers is None else f" with num_workers={estimate.num_workers}"
    span = "" if estimate.step_ms is not None else _span(estimate.speedup_low, estimate.speedup_high)
    return f"about {number(estimate.speedup)}x faster{span}{workers}"


def _step_change(estimate: Estimate, step_ms: float | None) -> str:
    if estimate.step_ms is None or step_ms is None:
        return ""
    span = _span(estimate.low_ms, estimate.high_ms)
    return f"step {number(step_ms)} → {number(estimate.step_ms)} ms{span}"


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({number(low)} to {number(high)})"


def ending_of(summary: Summary) -> str | None:
    """Say how a run ended that did not complete; ``None`` for one that did."""
    run = summary.run
    if run.status == "completed":
        return None
    aborted = f", {run.aborted_steps} not finished" if run.aborted_steps else ""
    if run.status == "running":
        return f"Still running: {steps_of(run.steps)} closed so far{aborted}"
    code = "" if run.exit_code is None else f" (exit code {run.exit_code})"
    if run.ended_by:
        return f"Run {run.status}{code}: {run.ended_by}; figures up to there"
    return f"Run {_cause(summary)} after {steps_of(run.steps)}{aborted}{code}: figures up to there"


def _cause(summary: Summary) -> str:
    run = summary.run
    if run.status == "failed":
        return f"failed with {run.exception}" if run.exception else "failed"
    name = _signal_name(run.exit_code)
    return f"{run.status} by {name}" if name else run.status


def _signal_name(exit_code: int | None) -> str | None:
    """A shell reports death by signal ``n`` as ``128 + n``; ``subprocess`` as ``-n``."""
    if exit_code is None:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in set(signal.Signals) else None
