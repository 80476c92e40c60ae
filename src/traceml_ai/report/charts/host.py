"""Processors and memory over the run: of the training process, its loader workers, the host, the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bokeh.models import Range1d

from traceml_ai.report.charts.base import (
    Figure,
    Kind,
    Sources,
    Table,
    View,
    add_hover,
    add_legend,
    count_bytes,
    count_steps,
    new_figure,
)
from traceml_ai.report.charts.colours import LIMIT
from traceml_ai.report.text import number, size
from traceml_ai.schema.summary import Summary


class _Line(NamedTuple):
    name: str
    column: str
    colour: str


def _columns(at: Sequence[float], **lines: Sequence[float | None]) -> dict[str, list[Any]] | None:
    """Return the lines that hold anything; ``None`` when none does."""
    known = {name: line for name, line in lines.items() if any(value is not None for value in line)}
    if not at or not known:
        return None
    gaps = {name: [float("nan") if v is None else v for v in line] for name, line in known.items()}
    return {"at": list(at), **gaps}


def _view(columns: dict[str, list[Any]] | None, limit: float | None = None) -> View | None:
    """Show lines from zero up; a limit comes into the picture when the lines come near it."""
    if columns is None:
        return None
    values = [v for name, line in columns.items() if name != "at" for v in line if v == v]  # noqa: PLR0124  NaN
    top = 1.15 * max(values) or 1.0
    if limit is not None and top > limit / 2:
        top = max(top, 1.05 * limit)
    return View({"lines": columns}, y_range=(0.0, top))


def _lines(
    fig: Figure, view: View, sources: Sources, lines: Sequence[_Line], tips: Sequence[tuple[str, str]]
) -> list[tuple[str, list[Any]]]:
    drawn = [line for line in lines if line.column in view.columns["lines"]]
    items: list[tuple[str, list[Any]]] = []
    for line in drawn:
        stroke = fig.line("at", line.column, source=sources["lines"], color=line.colour, line_width=2)
        # Readings with gaps on both sides would be invisible as a line.
        dots = fig.scatter("at", line.column, source=sources["lines"], color=line.colour, size=3)
        items.append((line.name, [stroke, dots]))
    if items:
        known = {f"@{line.column}" for line in drawn} | {"@at"}
        shown = [tip for tip in tips if tip[1].partition("{")[0] in known]
        add_hover(fig, [items[0][1][1]], shown, "vline")
    return items


def _draw_limit(fig: Figure, limit: float | None) -> list[tuple[str, list[Any]]]:
    if limit is None or not isinstance(fig.y_range, Range1d) or limit > float(fig.y_range.end):  # type: ignore[arg-type]
        return []
    line = fig.hspan(y=[limit], line_color=LIMIT, line_dash="dashed", line_width=1.5)
    return [("limit", [line])]


# --- processors ----------------------------------------------------------------------------------

_CORES = (_Line("main process", "main", "#0072b2"), _Line("loader workers", "workers", "#e69f00"))


def _cores_view(summary: Summary) -> View | None:
    series = summary.process.series
    columns = _columns(series.at_s, main=series.main_cpu_cores, workers=series.workers_cpu_cores)
    return _view(columns, summary.process.usable_cpus)


def _cores_figure(summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="seconds since the start", y="processors busy")
    tips = [("second", "@at{0.0}"), ("main process", "@main{0.00}"), ("loader workers", "@workers{0.00}")]
    items = _lines(fig, view, sources, _CORES, tips) + _draw_limit(fig, summary.process.usable_cpus)
    add_legend(fig, items)
    return fig


def _cores_table(summary: Summary) -> Table:
    series = summary.process.series
    return Table(
        ["second", "main process", "loader workers"],
        _rows(series.at_s, (series.main_cpu_cores, series.workers_cpu_cores), lambda v: number(v, 2)),
    )


def _rows(
    at: Sequence[float], lines: Sequence[Sequence[float | None]], word: Callable[[float | None], str]
) -> list[list[str]]:
    return [[number(t), *(word(line[i]) for line in lines)] for i, t in enumerate(at)]


# --- host memory ---------------------------------------------------------------------------------

_MEMORY = (_Line("main process", "main", "#0072b2"), _Line("loader workers", "workers", "#e69f00"))


def _memory_view(summary: Summary) -> View | None:
    series = summary.process.series
    columns = _columns(series.at_s, main=series.main_rss_bytes, workers=series.workers_pss_bytes)
    return _view(columns, summary.process.memory_limit_bytes)


def _memory_figure(summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="seconds since the start")
    count_bytes(fig)
    tips = [("second", "@at{0.0}"), ("main process", "@main{0.0 ib}"), ("loader workers", "@workers{0.0 ib}")]
    items = _lines(fig, view, sources, _MEMORY, tips) + _draw_limit(fig, summary.process.memory_limit_bytes)
    add_legend(fig, items)
    return fig


def _memory_table(summary: Summary) -> Table:
    series = summary.process.series
    return Table(
        ["second", "main process (RSS)", "loader workers (PSS)"],
        _rows(series.at_s, (series.main_rss_bytes, series.workers_pss_bytes), size),
    )


# --- device memory -------------------------------------------------------------------------------

_DEVICE = (_Line("peak allocated", "allocated", "#0072b2"), _Line("peak reserved", "reserved", "#cc79a7"))


def _device_view(summary: Summary) -> View | None:
    series = summary.step_memory.series
    return _view(
        _columns(
            series.first_step, allocated=series.peak_allocated_bytes, reserved=series.peak_reserved_bytes
        )
    )


def _device_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="step")
    count_steps(fig)
    count_bytes(fig)
    tips = [("from step", "@at{0,0}"), ("allocated", "@allocated{0.0 ib}"), ("reserved", "@reserved{0.0 ib}")]
    add_legend(fig, _lines(fig, view, sources, _DEVICE, tips))
    return fig


def _device_table(summary: Summary) -> Table:
    series = summary.step_memory.series
    lines = (series.peak_allocated_bytes, series.peak_reserved_bytes)
    rows = [[f"{step:,}", *(size(line[i]) for line in lines)] for i, step in enumerate(series.first_step)]
    return Table(["from step", "peak allocated", "peak reserved"], rows)


# --- the host ------------------------------------------------------------------------------------

_HOST = (_Line("processors of the host", "cpu", "#7b61a8"),)


def _host_view(summary: Summary) -> View | None:
    series = summary.system.series
    view = _view(_columns(series.at_s, cpu=series.cpu_pct))
    return view._replace(y_range=(0.0, 100.0)) if view else None


def _host_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=220, x="seconds since the start", y="% busy")
    _lines(fig, view, sources, _HOST, [("second", "@at{0.0}"), ("busy", "@cpu{0.0} %")])
    return fig


def _host_table(summary: Summary) -> Table:
    series = summary.system.series
    rows = [
        [number(at), number(cpu), size(used)]
        for at, cpu, used in zip(series.at_s, series.cpu_pct, series.used_bytes, strict=True)
    ]
    return Table(["second", "processors busy, %", "memory used"], rows)


PROCESSORS = Kind(
    "processors",
    "Processors",
    "How many processors the training process and its loader workers kept busy.",
    _cores_view,
    _cores_figure,
    _cores_table,
)
MEMORY = Kind(
    "memory",
    "Host memory",
    "Memory of the main process, and the loader workers' share (shared pages are counted once).",
    _memory_view,
    _memory_figure,
    _memory_table,
)
DEVICE_MEMORY = Kind(
    "device_memory",
    "Device memory",
    "Peak memory of a step on the device, allocated to tensors and reserved by the allocator.",
    _device_view,
    _device_figure,
    _device_table,
)
HOST = Kind(
    "host",
    "The host",
    "How busy the whole machine was, whoever used it.",
    _host_view,
    _host_figure,
    _host_table,
)
