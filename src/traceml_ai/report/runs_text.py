"""Lists and histories of runs as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len

from traceml_ai.compare.wording import MINUS, plural, signed
from traceml_ai.report.text import NOT_AVAILABLE, clean, fit, number, pad
from traceml_ai.schema.history import History, ListedRun, RunList, Series

_BAR = 24
_LONGEST = {"run": 40, "script": 24}
_PROBLEMS = 5
_FULL, _CHANGE = "█", "◆"


class _Column(NamedTuple):
    head: str
    cells: list[str]
    right: bool = False


def render_runs(found: RunList, *, ascii_only: bool = False) -> str:
    """Render a list of runs as a table, oldest first, with a line for what could not be read."""
    good = [run for run in found.runs if run.problem is None]
    columns = [
        _Column("when", [_when(run.started_at) for run in good]),
        _Column("run", [run.name for run in good]),
        _Column("script", [run.script or NOT_AVAILABLE for run in good]),
        _Column("verdict", [run.diagnosis or NOT_AVAILABLE for run in good]),
        _Column("step ms", [number(run.step_ms) for run in good], right=True),
        _Column("change", [_change(run.change_pct) for run in good], right=True),
        _Column("status", [run.status for run in good]),
    ]
    lines = _table(columns) if good else ["no run to show"]
    return _text([*lines, *_problems(found.runs)], ascii_only=ascii_only)


def _when(started_at: str | None) -> str:
    """Write a time in the reader's own zone."""
    if started_at is None:
        return NOT_AVAILABLE
    try:
        return f"{datetime.fromisoformat(started_at.replace('Z', '+00:00')).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return started_at


def _change(change_pct: float | None) -> str:
    return "" if change_pct is None else f"{signed(change_pct)} %"


def _table(columns: Sequence[_Column]) -> list[str]:
    widths = [_width(column) for column in columns]
    heads = [[column.head for column in columns]]
    rows = [*heads, *zip(*(column.cells for column in columns), strict=True)]
    return ["  ".join(map(_cell, row, columns, widths)) for row in rows]


def _width(column: _Column) -> int:
    cells = max((cell_len(clean(cell)) for cell in column.cells), default=0)
    return min(max(cells, len(column.head)), _LONGEST.get(column.head, cells + len(column.head)))


def _cell(text: str, column: _Column, width: int) -> str:
    shown = fit(clean(text), width)
    return " " * (width - cell_len(shown)) + shown if column.right else pad(shown, width)


def _problems(runs: Sequence[ListedRun]) -> list[str]:
    bad = [clean(f"{run.name}: {run.problem}") for run in runs if run.problem is not None]
    rest = [f"and {len(bad) - _PROBLEMS} more"] if len(bad) > _PROBLEMS else []
    return ["", *bad[:_PROBLEMS], *rest] if bad else []


def render_history(found: History, *, ascii_only: bool = False) -> str:
    """Render step time over the runs of a script, a bar each, with the change points marked."""
    lines: list[str] = []
    for series in found.series:
        lines += [*([""] if lines else []), *_series(series)]
    return _text(lines, ascii_only=ascii_only)


def _series(series: Series) -> list[str]:
    settings = [f"{name} {value}" for name, value in series.settings.items() if value is not None]
    head = (
        f"{series.script} on {series.host or 'an unknown host'}: {', '.join(settings) or 'no settings known'}"
    )
    starts = {level.first_run: level for level in series.levels[1:]}
    most = max(run.step_ms or 0.0 for run in series.runs)
    columns = [
        _Column("when", [_when(run.started_at) for run in series.runs]),
        _Column("run", [run.name for run in series.runs]),
        _Column("step ms", [number(run.step_ms) for run in series.runs], right=True),
        _Column("", [_bar(run, most) for run in series.runs]),
        _Column(
            "", [_mark(starts[run.name].change_pct) if run.name in starts else "" for run in series.runs]
        ),
    ]
    return [clean(head), *_table(columns), _levels(series)]


def _bar(run: ListedRun, most: float) -> str:
    return _FULL * max(1, round(_BAR * (run.step_ms or 0.0) / most))


def _mark(change_pct: float | None) -> str:
    return f"{_CHANGE} {_change(change_pct)} from here on"


def _levels(series: Series) -> str:
    if len(series.levels) == 1:
        return f"No change point in {plural(len(series.runs), 'run')}."
    parts = [f"{number(level.step_ms)} ms ({plural(level.runs, 'run')})" for level in series.levels]
    return f"{plural(len(parts) - 1, 'change point')}: {' → '.join(parts)}"


def _text(lines: Sequence[str], *, ascii_only: bool) -> str:
    if ascii_only:
        lines = [_in_ascii(line) for line in lines]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _in_ascii(line: str) -> str:
    for fancy, plain in ((_FULL, "#"), (_CHANGE, "<-"), (MINUS, "-"), ("→", "->"), ("…", "...")):
        line = line.replace(fancy, plain)
    return line.encode("ascii", "replace").decode()
