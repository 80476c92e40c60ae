"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceml_ai.report import compare_words as words
from traceml_ai.report.text import clean, number
from traceml_ai.schema.compare import Comparison

__all__ = ["render_markdown"]

_MARKS = {"IMPROVEMENT": "🟢", "REGRESSION": "🔴", "SAME": "⚪", "UNKNOWN": "🟡", "NOT_COMPARABLE": "🟡"}
# What has a meaning in Markdown or HTML; run names and arguments come from outside.
_SPECIAL = re.compile(r"([\\`*_{}\[\]!|<>~&$])")
# What hosts turn into mentions, references and links even where it is escaped; an invisible space stops it.
_LINKING = re.compile(r"(@|#|:(?=//)|www(?=\.))")
_BREAK = "\N{ZERO WIDTH SPACE}"


def render_markdown(found: Comparison) -> str:
    """Render a comparison as GitHub-flavoured Markdown, ending in a line feed.

    Names, arguments and sentences are escaped: they can't add links, mentions, images or HTML.
    """
    parts = (_head(found), _phases(found), _changes(found), _gates(found), _details(found))
    return "\n\n".join(text for part in parts if (text := "\n".join(part))) + "\n"


def _safe(text: str) -> str:
    return _LINKING.sub(rf"\1{_BREAK}", _SPECIAL.sub(r"\\\1", clean(text)))


def _head(found: Comparison) -> Iterator[str]:
    _, _, rest = found.headline.partition(" ")
    yield f"### {_MARKS[found.verdict]} {_safe(found.headline.removesuffix(rest).strip(' :'))}: {_safe(rest)}"
    yield ""
    times = f": {_safe(words.step_words(found))}" if found.step_time else ""
    yield f"`A` {_safe(words.names_of(found.a))} → `B` {_safe(words.names_of(found.b))}{times}"
    if found.verdict != "NOT_COMPARABLE":
        yield ""
        yield from (_safe(reason) for reason in found.reasons)
    if found.noise:
        yield _safe(found.noise.why)


def _phases(found: Comparison) -> Iterator[str]:
    if not found.phases:
        return
    yield f"| ms a step | A | B | change | {found.level_pct:g} % interval |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for change in found.phases:
        name = _safe(words.phase_name(change.phase))
        name = f"**{name}**" if change.clear else name
        changed = f"{words.signed_ms(change.change_ms)} | {words.span_ms(change)}"
        yield f"| {name} | {number(change.a_ms)} | {number(change.b_ms)} | {changed} |"


def _changes(found: Comparison) -> Iterator[str]:
    for shift in found.shifts:
        moved = f"{words.phase_name(shift.source)} → {words.phase_name(shift.target)}"
        yield f"- Shift: {number(shift.ms)} ms a step, {_safe(moved)}"
    for change in found.findings:
        yield f"- {_safe(words.finding_words(change))}"
    for figure in found.throughput:
        yield f"- {_safe(words.figure_words(figure))}"
    for text in words.memory_words(found):
        yield f"- peak memory: {_safe(text)}"


def _gates(found: Comparison) -> Iterator[str]:
    for gate in found.gates:
        yield f"- {'✅' if gate.passed else '❌'} {_safe(gate.condition)}: {_safe(gate.why)}"


def _details(found: Comparison) -> Iterator[str]:
    lines = [f"- {_safe(each.about)}: {_safe(words.difference_words(each))}" for each in found.differences]
    lines += [f"- between steps: {_safe(text)}" for text in words.between_words(found)]
    lines += [f"- note: {_safe(warning)}" for warning in found.warnings]
    if lines:
        yield "<details><summary>What else differs</summary>"
        yield ""
        yield from lines
        yield ""
        yield "</details>"
