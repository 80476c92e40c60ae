"""Two sides of runs: what changed by how much and how surely, and both sides on top of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bokeh.models import NumeralTickFormatter
from bokeh.models.annotations import Span
from bokeh.transform import dodge

from traceml_ai.report.charts.base import (
    ChartOf,
    Figure,
    KindOf,
    Sources,
    Table,
    View,
    add_hover,
    add_legend,
    count_steps,
    draw,
    new_figure,
)
from traceml_ai.report.charts.colours import INK
from traceml_ai.report.charts.step import no_formula, outline, phase_word
from traceml_ai.report.compare_words import signed_ms, span_ms
from traceml_ai.report.text import clean, number
from traceml_ai.schema.compare import Comparison, PhaseChange, RunRef
from traceml_ai.schema.summary import Summary

A, B = "#0072b2", "#e08a00"
_SLOWER, _FASTER, _UNCLEAR = "#c62828", "#1a7f37", "#8a929c"
_TALLEST = 4.0


class Sides(NamedTuple):
    """A comparison, and the runs that were compared."""

    found: Comparison
    a: Sequence[Summary]
    b: Sequence[Summary]


def draw_comparison(sides: Sides) -> list[ChartOf[Sides]]:
    """Draw every chart that a comparison has something for, in reading order."""
    drawn = (draw(kind, sides) for kind in (CHANGES, PHASES, TIMELINES, HISTOGRAMS))
    return [chart for chart in drawn if chart is not None]


# --- what changed, and how surely ----------------------------------------------------------------


def _changes(found: Comparison) -> list[PhaseChange]:
    """Return the changes of the phases, that of the whole step in front."""
    step = found.step_time
    if step is None:
        return []
    whole = PhaseChange(
        phase="step",
        a_ms=step.a_ms,
        b_ms=step.b_ms,
        change_ms=step.b_ms - step.a_ms,
        change_pct=step.change_pct,
        low_ms=step.low_pct * step.a_ms / 100,
        high_ms=step.high_pct * step.a_ms / 100,
        clear=step.low_pct > 0 or step.high_pct < 0,
    )
    return [whole, *found.phases]


def _word(change: PhaseChange) -> str:
    return "step time" if change.phase == "step" else phase_word(change.phase)


def _changes_view(sides: Sides) -> View | None:
    changes = _changes(sides.found)
    if not changes:
        return None
    columns: dict[str, list[Any]] = {
        "phase": [_word(change) for change in changes],
        "change": [change.change_ms for change in changes],
        "low": [change.low_ms for change in changes],
        "high": [change.high_ms for change in changes],
        "colour": [_colour(change) for change in changes],
        "label": [f"{signed_ms(change.change_ms)} {span_ms(change)} ms" for change in changes],
    }
    reach = 1.1 * max(*(abs(v) for v in (*columns["low"], *columns["high"])), 1e-9)
    low = -reach if min(columns["low"]) < 0 else -0.1 * reach
    return View({"changes": columns}, factors=columns["phase"], x_range=(low, max(reach, -0.1 * low)))


def _colour(change: PhaseChange) -> str:
    if not change.clear:
        return _UNCLEAR
    return _SLOWER if change.change_ms > 0 else _FASTER


def _changes_figure(_sides: Sides, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=60 + 30 * len(view.factors or ()), x="change in ms a step")
    fig.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
    source = sources["changes"]
    fig.segment(
        "low", "phase", "high", "phase", source=source, color="colour", line_width=4, line_cap="round"
    )
    dots = fig.scatter("change", "phase", source=source, color="colour", size=11)
    fig.ygrid.grid_line_color = None
    add_hover(fig, [dots], [("", "@phase"), ("", "@label")], "mouse")
    return fig


def _changes_table(sides: Sides) -> Table:
    head = ["phase", "A, ms", "B, ms", "change", f"{sides.found.level_pct:g} % interval", "for sure"]
    return Table(
        head,
        [
            [
                _word(change),
                number(change.a_ms),
                number(change.b_ms),
                signed_ms(change.change_ms),
                span_ms(change),
                "yes" if change.clear else "no",
            ]
            for change in _changes(sides.found)
        ],
    )


# --- both sides' steps ---------------------------------------------------------------------------


def _phases_view(sides: Sides) -> View | None:
    phases = sides.found.phases
    if not phases:
        return None
    columns: dict[str, list[Any]] = {
        "phase": [phase_word(change.phase) for change in phases],
        "a": [change.a_ms for change in phases],
        "b": [change.b_ms for change in phases],
    }
    widest = max(*(change.a_ms for change in phases), *(change.b_ms for change in phases), 1e-9)
    return View({"bars": columns}, factors=columns["phase"], x_range=(0.0, 1.1 * widest))


def _phases_figure(_sides: Sides, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=80 + 40 * len(view.factors or ()), x="mean ms a step")
    bars = [
        fig.hbar(
            y=dodge("phase", offset, range=fig.y_range),
            right=side,
            height=0.36,
            color=colour,
            source=sources["bars"],
        )
        for side, offset, colour in (("a", 0.2, A), ("b", -0.2, B))
    ]
    fig.ygrid.grid_line_color = None
    add_hover(fig, bars, [("", "@phase"), ("A", "@a{0.000} ms"), ("B", "@b{0.000} ms")], "mouse")
    add_legend(fig, [("A, the baseline", [bars[0]]), ("B", [bars[1]])])
    return fig


# --- both sides' runs ----------------------------------------------------------------------------


def _runs(sides: Sides) -> Iterator[tuple[str, RunRef, Summary]]:
    for letter, refs, summaries in (("a", sides.found.a, sides.a), ("b", sides.found.b, sides.b)):
        for at, (ref, summary) in enumerate(zip(refs, summaries, strict=True)):
            yield f"{letter}{at}", ref, summary


def _side_items(sides: Sides, drawn: dict[str, list[Any]]) -> list[tuple[str, list[Any]]]:
    names = {"a": f"A: {_names(sides.found.a)}", "b": f"B: {_names(sides.found.b)}"}
    items = []
    for letter, name in names.items():
        mine = [each for key, renderers in drawn.items() if key[0] == letter for each in renderers]
        if mine:
            items.append((name, mine))
    return items


def _names(side: Sequence[RunRef]) -> str:
    first = no_formula(side[0].name)
    return first if len(side) == 1 else f"{first} and {len(side) - 1} more"


def _timelines_view(sides: Sides) -> View | None:
    columns: dict[str, dict[str, list[Any]]] = {}
    levels: list[float] = []
    for key, _ref, summary in _runs(sides):
        series, warm = summary.step_time.series, summary.step_time.warmup_steps
        kept = [
            (first, mean)
            for first, mean in zip(series.first_step, series.mean_ms, strict=True)
            if mean is not None
        ]
        if kept:
            columns[key] = {"step": [first for first, _ in kept], "mean": [mean for _, mean in kept]}
            levels += sorted(mean for first, mean in kept if first >= warm or first == kept[-1][0])
    if not columns:
        return None
    usual = sorted(levels)[(len(levels) - 1) * 19 // 20]
    return View(columns, y_range=(0.0, 1.15 * min(max(levels), _TALLEST * usual) or 1.0))


def _timelines_figure(sides: Sides, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=300, x="step", y="ms a step")
    count_steps(fig)
    drawn = {
        key: [
            fig.line("step", "mean", source=source, color=A if key[0] == "a" else B, line_width=2, alpha=0.8)
        ]
        for key, source in sources.items()
    }
    add_legend(fig, _side_items(sides, drawn))
    return fig


def _runs_table(sides: Sides) -> Table:
    head = ["run", "side", "steady steps", "mean ms", "median ms", "95th percentile"]
    rows = [
        [
            clean(ref.name),
            key[0].upper(),
            f"{ref.steps:,}",
            number(ref.step_ms),
            number(summary.step_time.median_step_ms),
            number(summary.step_time.p95_step_ms),
        ]
        for key, ref, summary in _runs(sides)
    ]
    return Table(head, rows)


def _histograms_view(sides: Sides) -> View | None:
    found = {key: summary.step_time.histograms.get("step") for key, _, summary in _runs(sides)}
    columns = {key: outline(shape) for key, shape in found.items() if shape is not None and any(shape.counts)}
    if not columns:
        return None
    low = min(min(line["ms"]) for line in columns.values())
    high = max(max(line["ms"]) for line in columns.values())
    return View(columns, x_range=(low / 1.1, 1.1 * high))


def _histograms_figure(sides: Sides, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=260, x="ms a step (logarithmic)", y="% of steps", x_axis_type="log")
    fig.xaxis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    fig.y_range.start = 0  # type: ignore[attr-defined]  # a DataRange1d: no range was asked for
    drawn: dict[str, list[Any]] = {}
    for key, source in sources.items():
        colour = A if key[0] == "a" else B
        line = fig.line("ms", "pct", source=source, color=colour, line_width=2)
        drawn[key] = [line, fig.varea("ms", 0, "pct", source=source, color=colour, fill_alpha=0.12)]
    add_legend(fig, _side_items(sides, drawn))
    return fig


CHANGES = KindOf[Sides](
    "changes",
    "What changed, and how surely",
    "The change of each phase in milliseconds a step with its interval; grey may be no change at all.",
    _changes_view,
    _changes_figure,
    _changes_table,
)
PHASES = KindOf[Sides](
    "both_phases",
    "Both sides, phase by phase",
    "Mean time of each phase over all steady steps.",
    _phases_view,
    _phases_figure,
    _changes_table,
)
TIMELINES = KindOf[Sides](
    "both_timelines",
    "Both sides over the run",
    "Mean step time of each run from its first step to its last.",
    _timelines_view,
    _timelines_figure,
    _runs_table,
)
HISTOGRAMS = KindOf[Sides](
    "both_histograms",
    "How long steps take on both sides",
    "How often a steady step took how long; one line a run.",
    _histograms_view,
    _histograms_figure,
    _runs_table,
)
