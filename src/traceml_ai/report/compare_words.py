"""Figures of a comparison as words, for text and Markdown alike."""

from __future__ import annotations

from collections.abc import Sequence

from traceml_ai.compare.wording import MINUS, signed
from traceml_ai.report.text import NOT_AVAILABLE, number, size
from traceml_ai.report.words import CAUSE_WORDS, PHASE_WORDS
from traceml_ai.schema.compare import Comparison, Difference, Figure, FindingChange, PhaseChange, RunRef

_TRIFLE = 0.01  # of a step
_RATES = {"samples": "samples/s", "tokens": "tokens/s", "updates": "updates/s", "steps": "steps/s"}


def names_of(side: Sequence[RunRef]) -> str:
    """Return the runs of a side."""
    if len(side) <= 2:  # noqa: PLR2004  two names still fit
        return " + ".join(run.name for run in side)
    return f"{side[0].name} + {len(side) - 1} more"


def phase_name(phase: str) -> str:
    """Return what a phase is called."""
    return PHASE_WORDS.get(phase, phase)


def signed_ms(value: float) -> str:
    """Write milliseconds with their sign, three digits long."""
    text = number(abs(value))
    return text if text == "0" else f"{MINUS if value < 0 else '+'}{text}"


def span_ms(change: PhaseChange) -> str:
    """Write a phase's interval."""
    return f"[{signed_ms(change.low_ms)}, {signed_ms(change.high_ms)}]"


def step_words(found: Comparison) -> str:
    """Write step times of both sides, and how many times faster or slower one is."""
    change = found.step_time
    if change is None:
        return NOT_AVAILABLE
    words = f"{number(change.a_ms)} → {number(change.b_ms)} ms a step"
    if found.verdict == "IMPROVEMENT":
        return f"{words}, {change.speedup:.2f}x faster"
    return f"{words}, {1 / change.speedup:.2f}x slower" if found.verdict == "REGRESSION" else words


def figure_words(figure: Figure) -> str:
    """Write a figure of both sides with its change."""
    change = "" if figure.change_pct is None else f" ({signed(figure.change_pct)} %)"
    label = _RATES.get(figure.name, figure.name) if figure.unit == "per_sec" else figure.name
    return f"{label} {_amount(figure.a, figure.unit)} → {_amount(figure.b, figure.unit)}{change}"


def _amount(value: float | None, unit: str) -> str:
    return size(value) if unit == "bytes" else number(value)


def between_words(found: Comparison) -> list[str]:
    """Write time between steps by cause, leaving out what is a trifle against a step."""
    if found.step_time is None:
        return []
    least = _TRIFLE * found.step_time.a_ms
    shown = [each for each in found.between if max(each.a or 0.0, each.b or 0.0) >= least]
    return [
        f"{CAUSE_WORDS.get(each.name, each.name)} {number(each.a)} → {number(each.b)} ms a step"
        for each in shown
    ]


def memory_words(found: Comparison) -> list[str]:
    """Write peaks of memory; what neither side used is left out."""
    return [figure_words(each) for each in found.memory if each.a or each.b]


def finding_words(change: FindingChange) -> str:
    """Write what became of a finding."""
    if change.change == "changed":
        return f"{change.kind}: {change.severity_a} → {change.severity_b}: {change.why}"
    return f"{change.kind} ({change.severity_b or change.severity_a}) {change.change}: {change.why}"


def difference_words(difference: Difference) -> str:
    """Write a difference of settings, arguments or environment."""
    name = difference.name
    return f"{name} {_value(difference.a)} → {_value(difference.b)}"


def _value(value: str | None) -> str:
    return "(none)" if value is None else value or '""'
