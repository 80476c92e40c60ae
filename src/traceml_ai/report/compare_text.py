"""A comparison as text for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceml_ai.compare.wording import MINUS
from traceml_ai.report import compare_words as words
from traceml_ai.report.card import MAX_WIDTH, MIN_WIDTH
from traceml_ai.report.text import clean, fit, number, pad, wrap
from traceml_ai.schema.compare import Comparison, PhaseChange

__all__ = ["render_text"]

_COLOURS = {
    "IMPROVEMENT": "32;1",
    "REGRESSION": "31;1",
    "NOT_COMPARABLE": "33;1",
    "UNKNOWN": "33;1",
    "SAME": "32;1",
}
_INDENT = 9  # "  Noise  "
_LINES = 4  # that one sentence may take
_MOST = 12  # entries of a list
_NUMBER = 10
_SPAN = 22
_ABOUT = {"argument": "Arguments", "setting": "Settings", "environment": "Environment"}


def render_text(
    found: Comparison, *, width: int = MAX_WIDTH, ascii_only: bool = False, color: bool = False
) -> str:
    """Render a comparison as text.

    Args:
        found: The comparison.
        width: Columns to use, held between 80 and 100.
        ascii_only: Use no character outside ASCII.
        color: Colour the verdict with terminal escape codes; without it the text holds none.

    Returns:
        Lines, ending in a line feed. What was not measured reads ``n/a``.
    """
    page = _Page(found, min(MAX_WIDTH, max(MIN_WIDTH, width)), ascii_only=ascii_only)
    lines = [line.rstrip() for line in page.lines()]
    if color:
        lines = [_coloured(line, found) for line in lines]
    return "\n".join(lines) + "\n"


def _coloured(line: str, found: Comparison) -> str:
    return f"\x1b[{_COLOURS[found.verdict]}m{line}\x1b[0m" if line.startswith(found.verdict) else line


class _Page:
    def __init__(self, found: Comparison, width: int, *, ascii_only: bool) -> None:
        self.found = found
        self.width = width
        self.ascii_only = ascii_only

    def lines(self) -> Iterator[str]:
        for i, part in enumerate((self._head(), self._phases(), self._changes(), self._ends())):
            lines = list(part)
            if i and lines:
                yield ""
            yield from lines

    def _clean(self, text: str) -> str:
        return clean(text.replace(MINUS, "-") if self.ascii_only else text, ascii_only=self.ascii_only)

    def _one(self, text: str) -> str:
        return fit(self._clean(text), self.width)

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        body = wrap(self._clean(text), self.width - _INDENT, _LINES)
        for i, line in enumerate(body):
            yield f"  {label if i == 0 else '':<{_INDENT - 2}}{line}"

    def _hanging(self, text: str) -> Iterator[str]:
        for i, line in enumerate(wrap(self._clean(text), self.width - 2, _LINES)):
            yield f"  {line}" if i else line

    def _head(self) -> Iterator[str]:
        found = self.found
        yield self._one(f"TraceML compare · {words.names_of(found.a)} → {words.names_of(found.b)}")
        if found.step_time is None:
            yield from self._hanging(found.headline)
        else:
            yield self._one(f"{found.headline} · {words.step_words(found)}")
        if found.verdict != "NOT_COMPARABLE":
            for reason in found.reasons:
                yield from self._labelled("Why" if reason == found.reasons[0] else "", reason)
        if found.noise:
            yield from self._labelled("Noise", found.noise.why)

    def _phases(self) -> Iterator[str]:
        found = self.found
        if not found.phases:
            return
        heads = "".join(head.rjust(_NUMBER) for head in ("A", "B", "change"))
        title = "Where the time moved (ms a step)"
        room = self.width - 3 * _NUMBER - _SPAN
        span = self._clean(f"{found.level_pct:g} % interval")
        yield f"{pad(title, room)}{heads}{span.rjust(_SPAN)}"
        inside = [change for change in found.phases if change.phase != "between_steps"]
        for change in (*inside, *(c for c in found.phases if c not in inside)):
            yield self._phase(change, room)
        for shift in found.shifts:
            moved = f"{number(shift.ms)} ms a step from {words.phase_name(shift.source)}"
            yield from self._hanging(f"Shift: {moved} to {words.phase_name(shift.target)}")

    def _phase(self, change: PhaseChange, room: int) -> str:
        mark = "*" if change.clear else " "
        numbers = (number(change.a_ms), number(change.b_ms), words.signed_ms(change.change_ms))
        cells = "".join(self._clean(cell).rjust(_NUMBER) for cell in numbers)
        name = pad(f"{mark} {self._clean(words.phase_name(change.phase))}", room)
        return f"{name}{cells}{self._clean(words.span_ms(change)).rjust(_SPAN)}"

    def _changes(self) -> Iterator[str]:
        found = self.found
        for change in found.findings[:_MOST]:
            yield from self._hanging(f"Finding: {words.finding_words(change)}")
        for label, texts in (
            ("Throughput", [words.figure_words(each) for each in found.throughput]),
            ("Peak memory", words.memory_words(found)),
            ("Between steps", words.between_words(found)),
        ):
            if texts:
                yield from self._hanging(f"{label}: {', '.join(texts)}")
        for about, label in _ABOUT.items():
            these = [words.difference_words(each) for each in found.differences if each.about == about]
            if these:
                yield from self._hanging(f"{label}: {_some(these)}")

    def _ends(self) -> Iterator[str]:
        for warning in self.found.warnings[:_MOST]:
            yield from self._hanging(f"Note: {warning}")
        for gate in self.found.gates:
            yield from self._hanging(
                f"Gate {'passed' if gate.passed else 'FAILED'}: {gate.condition}: {gate.why}"
            )


def _some(entries: Sequence[str]) -> str:
    rest = len(entries) - _MOST
    return ", ".join(entries[:_MOST]) + (f", and {rest} more" if rest > 0 else "")
