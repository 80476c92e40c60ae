"""The steady step: what its time is made of, and how the times are distributed."""

from __future__ import annotations

from typing import Any

from bokeh.models import NumeralTickFormatter

from traceml_ai.report.charts.base import (
    Figure,
    Kind,
    Sources,
    Table,
    View,
    add_hover,
    add_legend,
    new_figure,
)
from traceml_ai.report.charts.colours import INK, colour_of
from traceml_ai.report.text import NOT_AVAILABLE, clean, number
from traceml_ai.report.words import PHASE_WORDS
from traceml_ai.schema.series import Histogram
from traceml_ai.schema.summary import PhaseStats, Summary

BETWEEN = "between_steps"


def phase_word(name: str) -> str:
    """Return what a phase is called in text; never a formula, for which bokeh would go and get MathJax."""
    return no_formula(PHASE_WORDS.get(name, name)) or "?"


def no_formula(text: str) -> str:
    """Return text that bokeh draws as it is."""
    text = clean(text)
    for mark in _FORMULA_MARKS:
        text = text.replace(mark, " ".join(mark))
    return text


_FORMULA_MARKS = ("$$", "\\[", "\\(")


def _measured(summary: Summary) -> dict[str, PhaseStats]:
    return {name: stats for name, stats in summary.step_time.phases.items() if stats.mean_ms is not None}


# --- what a step is made of ----------------------------------------------------------------------


def _breakdown_view(summary: Summary) -> View | None:
    phases = _measured(summary)
    if not phases:
        return None
    # A mean over all steps: what adds up to the step even where only some steps had the phase.
    each = [(stats.mean_ms or 0.0) * _part(stats.coverage) for stats in phases.values()]
    bars: dict[str, list[Any]] = {
        "phase": unique([phase_word(name) for name in phases]),
        "ms": each,
        "p95_ms": [stats.p95_ms for stats in phases.values()],
        "share": [_share(stats) for stats in phases.values()],
        "label": [_bar_label(ms, stats) for ms, stats in zip(each, phases.values(), strict=True)],
        "colour": [colour_of(name) for name in phases],
    }
    widest = max(*each, 1e-9)
    return View({"bars": bars}, factors=bars["phase"], x_range=(0.0, 1.7 * widest))


def _bar_label(ms: float, stats: PhaseStats) -> str:
    share = "" if stats.share_pct is None else f" · {_share(stats)}"
    return f"{number(ms)} ms{share}"


def _part(coverage: float | None) -> float:
    return 1.0 if coverage is None else coverage


def unique(words: list[str]) -> list[str]:
    """Tell equal names apart: categories of an axis must differ."""
    first = {word: at for at, word in reversed(list(enumerate(words)))}
    return [word if at == first[word] else f"{word} ({at})" for at, word in enumerate(words)]


def _share(stats: PhaseStats) -> str:
    return NOT_AVAILABLE if stats.share_pct is None else f"{stats.share_pct:.1f} %"


def _breakdown_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    rows = len(view.factors or ())
    fig = new_figure(view, height=56 + 30 * rows, x="mean ms a step")
    bars = fig.hbar(y="phase", right="ms", height=0.7, color="colour", source=sources["bars"])
    fig.text(x="ms", y="phase", text="label", x_offset=6, text_baseline="middle", text_color=INK,
             text_font_size="12px", source=sources["bars"])  # fmt: skip
    fig.ygrid.grid_line_color = None
    tips = [
        ("phase", "@phase"),
        ("a step", "@ms{0.000} ms"),
        ("share", "@share"),
        ("p95", "@p95_ms{0.000} ms"),
    ]
    add_hover(fig, [bars], tips, "mouse")
    return fig


def _breakdown_table(summary: Summary) -> Table:
    head = ["phase", "mean ms", "median", "p95", "p99", "share of step", "in steps"]
    return Table(head, [_phase_row(name, stats) for name, stats in summary.step_time.phases.items()])


def _phase_row(name: str, stats: PhaseStats) -> list[str]:
    times = (stats.mean_ms, stats.median_ms, stats.p95_ms, stats.p99_ms)
    seen = NOT_AVAILABLE if stats.coverage is None else f"{100 * stats.coverage:.0f} %"
    return [phase_word(name), *(number(value) for value in times), _share(stats), seen]


# --- how the times are distributed ---------------------------------------------------------------


def _histograms_view(summary: Summary) -> View | None:
    found = {
        name: histogram for name, histogram in summary.step_time.histograms.items() if any(histogram.counts)
    }
    if not found:
        return None
    longest = max(_SHORTEST_MS, *(histogram.edges_ms[-1] for histogram in found.values()))
    shortest = min(_first_drawn(histogram) for histogram in found.values())
    outlines = {name: outline(histogram) for name, histogram in found.items()}
    return View(outlines, x_range=(min(shortest, longest) / 1.3, 1.3 * longest))


def _first_drawn(histogram: Histogram) -> float:
    return next((edge for edge in histogram.edges_ms if edge >= _SHORTEST_MS), _SHORTEST_MS)


def outline(histogram: Histogram) -> dict[str, list[Any]]:
    """Return the outline of a histogram as a line, its height in per cent of the steps."""
    edges, total = histogram.edges_ms, sum(histogram.counts)
    x: list[float] = []
    y: list[float] = []
    for low, high, count in zip(edges[:-1], edges[1:], histogram.counts, strict=True):
        low_drawn = max(low, _SHORTEST_MS)  # the axis is logarithmic: zero has no place on it
        x += [low_drawn, max(high, low_drawn)]
        y += [100 * count / total] * 2
    return {"ms": [x[0], *x, x[-1]], "pct": [0.0, *y, 0.0]}


_SHORTEST_MS = 1e-3  # less is the clock's own noise


def _histograms_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=300, x="ms (logarithmic)", y="% of steps", x_axis_type="log")
    fig.xaxis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    fig.y_range.start = 0  # type: ignore[attr-defined]  # a DataRange1d: no range was asked for
    items = []
    for name, source in sources.items():
        whole = name == "step"
        colour = INK if whole else colour_of(name)
        line = fig.line("ms", "pct", source=source, color=colour, line_width=2.5 if whole else 1.5)
        area = fig.varea("ms", 0, "pct", source=source, color=colour, fill_alpha=0.12)
        items.append(("step time" if whole else phase_word(name), [line, area]))
    add_legend(fig, items)
    return fig


def _histograms_table(summary: Summary) -> Table:
    found = summary.step_time.histograms
    rows = [
        ["step time" if name == "step" else phase_word(name), *_range(histogram)]
        for name, histogram in found.items()
        if histogram.counts
    ]
    return Table(["phase", "steps", "shortest, ms", "most frequent, ms", "longest, ms"], rows)


def _range(histogram: Histogram) -> list[str]:
    edges, counts = histogram.edges_ms, histogram.counts
    top = counts.index(max(counts))
    most = f"{number(edges[top])} to {number(edges[top + 1])}"
    return [f"{sum(counts):,}", f"from {number(edges[0])}", most, f"up to {number(edges[-1])}"]


BREAKDOWN = Kind(
    "breakdown",
    "What a step is made of",
    "Mean time of each phase over all steady steps; the shares of the step add up to 100 %.",
    _breakdown_view,
    _breakdown_figure,
    _breakdown_table,
)
HISTOGRAMS = Kind(
    "histograms",
    "How long each phase takes",
    "How often a phase took how long, in the steady steps that had it; two hills are two kinds of steps. "
    "Click a name to hide it.",
    _histograms_view,
    _histograms_figure,
    _histograms_table,
)
