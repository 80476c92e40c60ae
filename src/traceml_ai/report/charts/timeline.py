"""The whole run, first step to last: step time with the findings where they happened, and its phases."""

from __future__ import annotations

from typing import Any

from traceml_ai.report.charts.base import (
    Figure,
    Kind,
    Sources,
    Table,
    View,
    add_hover,
    add_legend,
    count_steps,
    new_figure,
)
from traceml_ai.report.charts.colours import ACCENT, GRID, INK, SEVERITY_COLOURS, colour_of
from traceml_ai.report.charts.step import BETWEEN, phase_word
from traceml_ai.report.text import number
from traceml_ai.schema.series import Series
from traceml_ai.schema.summary import Finding, Summary

_TALLEST = 4.0
"""A peak may be so many times what is usual; beyond, it is drawn at the edge, lest it flatten the rest."""


# --- step time -----------------------------------------------------------------------------------


def _timeline_view(summary: Summary) -> View | None:
    series = summary.step_time.series
    if not series.first_step:
        return None
    top = _top(summary)
    columns = {"points": _points(series, top), "marks": _marks(summary, top)}
    return View(columns, x_range=_steps_range(series), y_range=(0.0, top))


def _steps_range(series: Series) -> tuple[float, float]:
    return series.first_step[0], series.first_step[-1] + series.steps[-1]


def _top(summary: Summary) -> float:
    """Return the upper edge: above every step after warm-up, single peaks within reason."""
    series, warm = summary.step_time.series, summary.step_time.warmup_steps
    steady = [i for i, first in enumerate(series.first_step) if first >= warm] or range(
        len(series.first_step)
    )
    means = sorted(series.mean_ms[i] or 0.0 for i in steady)
    usual = means[(len(means) - 1) * 19 // 20]  # a level that lasted is in it, a single point is not
    peak = max((series.max_ms[i] or 0.0 for i in steady), default=0.0)
    return 1.15 * min(max(peak, means[-1]), _TALLEST * usual) or 1.0


def _points(series: Series, top: float) -> dict[str, list[Any]]:
    return {
        "step": [first + (n - 1) / 2 for first, n in zip(series.first_step, series.steps, strict=True)],
        "steps": [_span(first, n) for first, n in zip(series.first_step, series.steps, strict=True)],
        "mean": _known(series.mean_ms),
        "max": _known(series.max_ms),
        "drawn": [min(value, 0.985 * top) for value in _known(series.max_ms)],
        "marker": ["triangle" if value > top else "circle" for value in _known(series.max_ms)],
    }


def _known(values: list[float | None]) -> list[float]:
    """NaN is how bokeh leaves a gap."""
    return [float("nan") if value is None else value for value in values]


def _span(first: int, n: int) -> str:
    return f"{first:,}" if n == 1 else f"{first:,} to {first + n - 1:,}"


def _marks(summary: Summary, top: float) -> dict[str, list[Any]]:
    """Return where warm-up was and where findings that have a place happened."""
    series, warm = summary.step_time.series, summary.step_time.warmup_steps
    begin, end = _steps_range(series)
    spans = [(begin, float(warm), "warm-up", "#8a929c", "")] if warm else []
    for finding in summary.findings:
        place = _place(finding, end)
        if place is not None:
            colour = SEVERITY_COLOURS[finding.severity]
            spans.append((*place, finding.kind.replace("_", " ").lower(), colour, finding.why))
    return {
        "x0": [span[0] for span in spans],
        "x1": [span[1] for span in spans],
        "name": [span[2] for span in spans],
        "colour": [span[3] for span in spans],
        "why": [span[4] for span in spans],
        "y": [top * (0.99 - 0.08 * row) for row in range(len(spans))],
    }


def _place(finding: Finding, end: float) -> tuple[float, float] | None:
    first, last = finding.scope.first_step, finding.scope.last_step
    if first is None and last is None:
        return None
    return float(first or 0), float(last + 1 if last is not None else end)


def _timeline_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=320, x="step", y="ms a step")
    count_steps(fig)
    marks, points = sources["marks"], sources["points"]
    strips = fig.vstrip("x0", "x1", source=marks, fill_color="colour", fill_alpha=0.12, line_color="colour",
                        line_alpha=0.5)  # fmt: skip
    fig.text("x0", "y", "name", source=marks, text_color="colour", text_font_size="12px", x_offset=4,
             text_baseline="top", text_font_style="bold")  # fmt: skip
    peaks = fig.scatter("step", "drawn", source=points, marker="marker", size=5, color=INK, alpha=0.35)
    mean = fig.line("step", "mean", source=points, color=ACCENT, line_width=2)
    dots = fig.scatter("step", "mean", source=points, color=ACCENT, size=4)
    add_hover(
        fig, [dots], [("steps", "@steps"), ("mean", "@mean{0.00} ms"), ("slowest", "@max{0.00} ms")], "vline"
    )
    add_hover(fig, [strips], [("", "@name"), ("", "@why")], "mouse")
    add_legend(fig, [("mean", [mean, dots]), ("slowest step of the point", [peaks])])
    return fig


def _timeline_table(summary: Summary) -> Table:
    series = summary.step_time.series
    rows = [
        [_span(first, n), number(mean), number(peak)]
        for first, n, mean, peak in zip(
            series.first_step, series.steps, series.mean_ms, series.max_ms, strict=True
        )
    ]
    return Table(["steps", "mean ms", "slowest, ms"], rows)


# --- its phases ----------------------------------------------------------------------------------


def _phases_view(summary: Summary) -> View | None:
    series = summary.step_time.series
    names = _stacked(series)
    if not names or not series.first_step:
        return None
    columns = {_column(name): _zeros(series.phases[name]) for name in names}
    # A single point has no width: an area needs two.
    edges = [*series.first_step, series.first_step[-1] + series.steps[-1]]
    stairs = {name: [*values, values[-1]] for name, values in columns.items()}
    total = [sum(values) for values in zip(*columns.values(), strict=True)]
    warm = [i for i, first in enumerate(series.first_step) if first >= summary.step_time.warmup_steps]
    top = max((total[i] for i in warm), default=max(total)) or 1.0
    return View({"areas": {"step": edges, **stairs}}, x_range=_steps_range(series), y_range=(0.0, 1.1 * top))


def _stacked(series: Series) -> list[str]:
    inside = [name for name in series.phases if name != BETWEEN]
    return [*inside, BETWEEN] if BETWEEN in series.phases else inside


def _column(name: str) -> str:
    return f"phase {name}"  # so that no name a user chose is one of ours


def _zeros(values: list[float | None]) -> list[float]:
    """In a stack, a phase that a point did not have takes no room."""
    return [value or 0.0 for value in values]


def _phases_figure(summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=320, x="step", y="ms a step")
    count_steps(fig)
    names = _stacked(summary.step_time.series)
    areas = fig.varea_stack(
        [_column(name) for name in names],
        x="step",
        color=[colour_of(name) for name in names],
        fill_alpha=0.85,
        source=sources["areas"],
    )
    add_legend(fig, [(phase_word(n), [a]) for n, a in zip(names, areas, strict=True)], hides=False)
    fig.grid.grid_line_color = GRID
    return fig


def _phases_table(summary: Summary) -> Table:
    series = summary.step_time.series
    names = _stacked(series)
    rows = [
        [_span(first, n), *(number(series.phases[name][i]) for name in names)]
        for i, (first, n) in enumerate(zip(series.first_step, series.steps, strict=True))
    ]
    return Table(["steps", *(f"{phase_word(name)}, ms" for name in names)], rows)


TIMELINE = Kind(
    "timeline",
    "Step time over the run",
    "Mean step time from the first step to the last, and the slowest step of each point (a triangle: beyond "
    "the upper edge). Shaded: warm-up, and findings where they happened.",
    _timeline_view,
    _timeline_figure,
    _timeline_table,
)
PHASES_OVER_TIME = Kind(
    "phases",
    "Phases over the run",
    "The phases of a step on top of one another, and the time between steps; host clock.",
    _phases_view,
    _phases_figure,
    _phases_table,
)
