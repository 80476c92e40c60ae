"""Earlier runs of the same script, for learning how much runs differ among themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from traceml_ai.compare.command import program
from traceml_ai.compare.comparison import Past
from traceml_ai.compare.likeness import settings_of
from traceml_ai.compare.noise import PastRun
from traceml_ai.compare.wording import as_text
from traceml_ai.errors import TraceMLError
from traceml_ai.index.cache import read_runs
from traceml_ai.index.rows import Row
from traceml_ai.schema.summary import Summary

_MOST_RUNS = 200  # of one kind; what a machine did long ago says little of today


def past_runs(folders: Sequence[Path], compared: Sequence[Path], summaries: Sequence[Summary]) -> Past:
    """Return the earlier runs that are alike: script, host, settings; grouped by their arguments.

    Args:
        folders: Log folders to look in; one that can't be read holds nothing.
        compared: The runs that are compared: not part of it.
        summaries: Their summaries.
    """
    own = {(path if path.is_dir() else path.parent).resolve() for path in compared}
    rows = [row for folder in folders for row in _rows(folder, own)]
    kinds = {_kind(summary) for summary in summaries}
    newest = max((summary.run.started_at or "" for summary in summaries), default="")
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.started_at or ""):
        if _row_kind(row) in kinds and _counts(row, newest):
            groups[str((_row_kind(row), sorted(row.arguments.items())))].append(row)
    found = [[_past(row) for row in group[-_MOST_RUNS:]] for group in groups.values()]
    return Past(found, ", ".join(_shown(folder) for folder in folders) or "the log folder")


def _shown(folder: Path) -> str:
    """Write a folder as the user would: from where they are, when it lies below."""
    try:
        return as_text(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return as_text(folder)


def _rows(folder: Path, own: set[Path]) -> list[Row]:
    try:
        return [row for row in read_runs(folder) if (folder / row.folder).resolve() not in own]
    except TraceMLError:
        return []


def _kind(summary: Summary) -> str:
    return str((program(summary.run.command), summary.system.hostname, settings_of(summary.run)))


def _row_kind(row: Row) -> str:
    return str((row.script, row.host, row.settings))


def _counts(row: Row, newest: str) -> bool:
    earlier = not newest or (row.started_at or "") <= newest
    return row.status == "completed" and bool(row.step_ms) and earlier


def _past(row: Row) -> PastRun:
    assert row.step_ms is not None
    return PastRun(row.step_ms, row.relative_variance)
