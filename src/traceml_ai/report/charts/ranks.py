"""Ranks against one another: who is slower than the others, and in what."""

from __future__ import annotations

from statistics import median
from typing import Any

from bokeh.models import BasicTicker, LinearColorMapper
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Blues, Oranges

from traceml_ai.report.charts.base import Figure, Kind, Sources, Table, View, add_hover, new_figure
from traceml_ai.report.charts.colours import INK
from traceml_ai.report.charts.step import phase_word, unique
from traceml_ai.report.text import number
from traceml_ai.schema.summary import RankRow, Summary

_PHASES = (
    "step",
    "input_wait",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "residual",
    "between_steps",
    "work",
    "wait",
    "transfer",
)
_WORDS = {"step": "step time", "work": "own work", "wait": "waiting", "transfer": "collectives"}
_MOST_NUMBERS = 16  # ranks: beyond, a cell is too low for a number
_PALETTE = [
    *Blues[256][135:226],
    *["#ffffff"] * 7,
    *reversed(Oranges[256][135:226]),
]  # as the median is white
_SCALE_PCT = 25.0  # of the step: a rank so much slower gets the strongest colour


def _view(summary: Summary) -> View | None:
    rows = _rows(summary)
    if len(rows) < 2:  # noqa: PLR2004  one rank has none to be compared with
        return None
    cells = [cell for column, phase in enumerate(_phases(rows)) for cell in _cells(rows, phase, column)]
    columns = {key: [cell[key] for cell in cells] for key in cells[0]}
    return View({"cells": columns}, factors=_names(rows), x_range=(-0.5, len(_phases(rows)) - 0.5))


def _rows(summary: Summary) -> list[RankRow]:
    return [row for row in summary.step_time.ranks if row.step_ms is not None]


def _phases(rows: list[RankRow]) -> list[str]:
    return [phase for phase in _PHASES if any(_ms(row, phase) is not None for row in rows)]


def _ms(row: RankRow, phase: str) -> float | None:
    value: float | None = getattr(row, f"{phase}_ms")
    return value


def _name(row: RankRow) -> str:
    return f"rank {row.rank}" if row.rank is not None else f"process {row.pid}"


def _names(rows: list[RankRow]) -> list[str]:
    return unique([_name(row) for row in rows])  # two processes without a rank may have had the same id


def _cells(rows: list[RankRow], phase: str, column: int) -> list[dict[str, Any]]:
    known = [ms for row in rows if (ms := _ms(row, phase)) is not None]
    middle = median(known)
    step = median(row.step_ms or 0.0 for row in rows) or 1.0
    return [
        {
            "rank": name,
            "column": column,
            "phase": _word(phase),
            "ms": number(ms),
            "excess_pct": float("nan") if ms is None else 100 * (ms - middle) / step,
            "label": number(ms) if len(rows) <= _MOST_NUMBERS else "",
        }
        for name, row in zip(_names(rows), rows, strict=True)
        for ms in [_ms(row, phase)]
    ]


def _word(phase: str) -> str:
    return _WORDS.get(phase) or phase_word(phase)


def _figure(summary: Summary, view: View, sources: Sources) -> Figure:
    ranks, phases = len(view.factors or ()), _phases(_rows(summary))
    fig = new_figure(view, height=min(900, 70 + max(3, min(28, 1600 // ranks)) * ranks), x=None)
    fig.xaxis.ticker = list(range(len(phases)))
    fig.xaxis.major_label_overrides = {at: _word(phase) for at, phase in enumerate(phases)}
    mapper = LinearColorMapper(palette=_PALETTE, low=-_SCALE_PCT, high=_SCALE_PCT, nan_color="#e6e8eb")
    cells = fig.rect("column", "rank", 0.96, 0.94, source=sources["cells"], line_color=None,
                     fill_color={"field": "excess_pct", "transform": mapper})  # fmt: skip
    fig.text("column", "rank", "label", source=sources["cells"], text_align="center", text_baseline="middle",
             text_color=INK, text_font_size="12px")  # fmt: skip
    fig.grid.grid_line_color = None
    if ranks > 4 * _MOST_NUMBERS:
        fig.yaxis.major_label_text_font_size = "0px"
    add_hover(fig, [cells], [("", "@rank, @phase"), ("ms a step", "@ms"),
                             ("above the median", "@excess_pct{+0.0} % of the step")], "mouse")  # fmt: skip
    bar = ColorBar(color_mapper=mapper, width=10, label_standoff=6, ticker=BasicTicker(desired_num_ticks=5),
                   background_fill_color=None, major_label_text_color=INK, title="% of step",
                   title_text_color=INK, title_text_font_style="normal")  # fmt: skip
    fig.add_layout(bar, "right")
    return fig


def _table(summary: Summary) -> Table:
    rows = _rows(summary)
    phases = _phases(rows)
    notes = [_note(row) for row in rows]
    more = ["remarks"] if any(notes) else []
    return Table(
        ["rank", *(f"{_word(phase)}, ms" for phase in phases), *more],
        [
            [name, *(number(_ms(row, phase)) for phase in phases), *([note] if more else [])]
            for name, row, note in zip(_names(rows), rows, notes, strict=True)
        ],
    )


def _note(row: RankRow) -> str:
    node = f"on {row.node}" if row.node else ""
    left_out = f"not compared: {row.left_out}" if row.left_out else ""
    return "; ".join(part for part in (node, left_out, row.ended or "") if part)


RANKS = Kind(
    "ranks",
    "Ranks",
    "Milliseconds a step of each rank; the colour is what a rank takes more (orange) or less (blue) than the "
    "median rank, in per cent of the step.",
    _view,
    _figure,
    _table,
)
