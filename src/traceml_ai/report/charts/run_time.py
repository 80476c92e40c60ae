"""Every second of the run, and what the time between steps was."""

from __future__ import annotations

from typing import Any

from traceml_ai.report.charts.base import Figure, Kind, Sources, Table, View, add_hover, new_figure
from traceml_ai.report.charts.colours import INK, colour_of
from traceml_ai.report.text import NOT_AVAILABLE, duration, number
from traceml_ai.report.words import CAUSE_WORDS
from traceml_ai.schema.summary import Summary

_PARTS = {
    "startup_s": ("start-up", "#7b61a8"),
    "steps_s": ("steps", "#0072b2"),
    "between_steps_s": ("between steps", "#e69f00"),
    "shutdown_s": ("shut-down", "#8a929c"),
}


def _bars(parts: list[tuple[str, float, str]], total: float) -> View:
    columns: dict[str, list[Any]] = {
        "part": [name for name, _, _ in parts],
        "seconds": [seconds for _, seconds, _ in parts],
        "label": [f"{duration(s)} · {_pct(s, total)}" for _, s, _ in parts],
        "colour": [colour for _, _, colour in parts],
    }
    widest = max(seconds for _, seconds, _ in parts) or 1e-9
    return View({"bars": columns}, factors=columns["part"], x_range=(0.0, 1.7 * widest))


def _pct(part: float, total: float) -> str:
    return f"{100 * part / total:.1f} %" if total else NOT_AVAILABLE


def _parts(summary: Summary) -> list[tuple[str, float, str]]:
    values = ((getattr(summary.time, field), *words) for field, words in _PARTS.items())
    return [(name, seconds, colour) for seconds, name, colour in values if seconds is not None]


def _run_view(summary: Summary) -> View | None:
    parts = _parts(summary)
    return _bars(parts, summary.time.total_s or 0.0) if parts else None


def _causes(summary: Summary) -> list[tuple[str, float, str]]:
    causes = summary.time.between_by_cause
    names = [field.removesuffix("_s") for field in causes.__struct_fields__]
    values = [(CAUSE_WORDS.get(n, n), getattr(causes, f"{n}_s"), colour_of(f"cause {n}")) for n in names]
    known = [(name, seconds, colour) for name, seconds, colour in values if seconds]
    return sorted(known, key=lambda part: part[1], reverse=True)


def _causes_view(summary: Summary) -> View | None:
    causes = _causes(summary)
    return _bars(causes, summary.time.between_steps_s or 0.0) if causes else None


def _figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=56 + 30 * len(view.factors or ()), x="seconds")
    bars = fig.hbar(y="part", right="seconds", height=0.7, color="colour", source=sources["bars"])
    fig.text(x="seconds", y="part", text="label", x_offset=6, text_baseline="middle", text_color=INK,
             text_font_size="12px", source=sources["bars"])  # fmt: skip
    fig.ygrid.grid_line_color = None
    add_hover(fig, [bars], [("", "@part"), ("", "@label")], "mouse")
    return fig


def _run_table(summary: Summary) -> Table:
    total = summary.time.total_s
    rows = [[name, number(seconds), _pct(seconds, total or 0.0)] for name, seconds, _ in _parts(summary)]
    return Table(["part", "seconds", "share"], [*rows, ["= run", number(total), "100.0 %"]])


def _causes_table(summary: Summary) -> Table:
    total = summary.time.between_steps_s
    rows = [[name, number(seconds), _pct(seconds, total or 0.0)] for name, seconds, _ in _causes(summary)]
    return Table(["cause", "seconds", "share"], [*rows, ["= between steps", number(total), "100.0 %"]])


RUN_TIME = Kind(
    "run_time",
    "Every second of the run",
    "Start-up, steps, the time between them and shut-down add up to the life of the training process.",
    _run_view,
    _figure,
    _run_table,
)
BETWEEN_STEPS = Kind(
    "between_steps",
    "Between steps",
    "What the training thread did outside of steps, by cause, over the whole run.",
    _causes_view,
    _figure,
    _causes_table,
)
