"""Processors and memory over the run: of the training process, its loader workers, the host, the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

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

Item: TypeAlias = tuple[str, list[Any]]


class _Line(NamedTuple):
    name: str
    column: str
    colour: str


def _view(at: Sequence[float], limit: float | None = None, **lines: Sequence[float | None]) -> View | None:
    """Show the lines that hold anything, from zero up; ``None`` when none does.

    Each has its own source, of its own readings: some are made less often than others.
    A limit comes into the picture when the lines come near it.
    """
    columns = {name: _readings(at, line) for name, line in lines.items()}
    known = {name: line for name, line in columns.items() if line["at"]}
    if not known:
        return None
    top = 1.15 * max(value for line in known.values() for value in line["value"]) or 1.0
    if limit is not None and top > limit / 2:
        top = max(top, 1.05 * limit)
    return View(known, y_range=(0.0, top))


def _readings(at: Sequence[float], line: Sequence[float | None]) -> dict[str, list[Any]]:
    known = [(t, value) for t, value in zip(at, line, strict=True) if value is not None]
    return {"at": [t for t, _ in known], "value": [value for _, value in known]}


def _lines(fig: Figure, sources: Sources, lines: Sequence[_Line], x: str, y: str) -> list[Item]:
    items: list[Item] = []
    for line in lines:
        if line.column in sources:
            source = sources[line.column]
            stroke = fig.line("at", "value", source=source, color=line.colour, line_width=2)
            dots = fig.scatter("at", "value", source=source, color=line.colour, size=3)
            add_hover(fig, [dots], [("", line.name), (x, "@at{0,0.[0]}"), ("", f"@value{{{y}}}")], "mouse")
            items.append((line.name, [stroke, dots]))
    return items


def _draw_limit(fig: Figure, limit: float | None) -> list[Item]:
    if limit is None or not isinstance(fig.y_range, Range1d) or limit > float(fig.y_range.end):  # type: ignore[arg-type]
        return []
    line = fig.hspan(y=[limit], line_color=LIMIT, line_dash="dashed", line_width=1.5)
    return [("limit", [line])]


# --- processors ----------------------------------------------------------------------------------

_CORES = (_Line("main process", "main", "#0072b2"), _Line("loader workers", "workers", "#e69f00"))


def _cores_view(summary: Summary) -> View | None:
    series = summary.process.series
    limit = summary.process.usable_cpus
    return _view(series.at_s, limit, main=series.main_cpu_cores, workers=series.workers_cpu_cores)


def _cores_figure(summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="seconds since the start", y="processors busy")
    items = _lines(fig, sources, _CORES, "second", "0.00") + _draw_limit(fig, summary.process.usable_cpus)
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
    limit = summary.process.memory_limit_bytes
    return _view(series.at_s, limit, main=series.main_rss_bytes, workers=series.workers_pss_bytes)


def _memory_figure(summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="seconds since the start")
    count_bytes(fig)
    items = _lines(fig, sources, _MEMORY, "second", "0.0 ib") + _draw_limit(
        fig, summary.process.memory_limit_bytes
    )
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
        series.first_step, allocated=series.peak_allocated_bytes, reserved=series.peak_reserved_bytes
    )


def _device_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=240, x="step")
    count_steps(fig)
    count_bytes(fig)
    add_legend(fig, _lines(fig, sources, _DEVICE, "from step", "0.0 ib"))
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
    view = _view(series.at_s, cpu=series.cpu_pct)
    return view._replace(y_range=(0.0, 104.0)) if view else None


def _host_figure(_summary: Summary, view: View, sources: Sources) -> Figure:
    fig = new_figure(view, height=220, x="seconds since the start", y="% busy")
    _lines(fig, sources, _HOST, "second", "0.0")
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
