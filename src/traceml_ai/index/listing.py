"""Tables of runs from rows of the index: what changed from run to run, and which to show."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from traceml_ai.compare.history import level_table
from traceml_ai.compare.wording import as_text
from traceml_ai.index.rows import Row
from traceml_ai.schema.history import HistoryLevel, ListedRun, Series


class Filter(NamedTuple):
    """Which runs to show; ``None``: all."""

    script: str | None = None  # file name, its stem, or a pattern with * and ?
    status: str | None = None
    diagnosis: str | None = None
    since: str | None = None  # ISO 8601, or the beginning of it
    last: int | None = None


def same_script(row: Row, wanted: str) -> bool:
    """Whether a run is one of a script: ``train.py``, ``train``, ``examples/train.py`` or ``tr*`` all are."""
    name = row.script or ""
    stem = name.removesuffix(".py")
    file_name = PurePath(wanted).name
    return any(fnmatch.fnmatchcase(text, wish) for text in (name, stem) for wish in (wanted, file_name))


def listed(rows: Sequence[Row], wanted: Filter) -> list[ListedRun]:
    """Return the runs to show, oldest first; changes refer to runs that may not be shown."""
    before: dict[str, float] = {}
    found = []
    for row in rows:
        run = _listed(row, before.get(kind_of(row)))
        if row.step_ms:
            before[kind_of(row)] = row.step_ms
        if _is_wanted(row, wanted):
            found.append(run)
    return found if wanted.last is None else found[-wanted.last :]


def kind_of(row: Row) -> str:
    """Return what two runs must share for their step times to mean the same."""
    return str((row.script, row.host, row.settings))


def _is_wanted(row: Row, wanted: Filter) -> bool:
    return (
        (wanted.script is None or same_script(row, wanted.script))
        and (wanted.status is None or row.status == wanted.status)
        and (wanted.diagnosis is None or row.diagnosis == wanted.diagnosis)
        and (wanted.since is None or (row.started_at or "") >= wanted.since)
    )


def _listed(row: Row, before_ms: float | None) -> ListedRun:
    return ListedRun(
        name=as_text(row.folder),
        started_at=row.started_at,
        script=row.script,
        status=row.status,
        diagnosis=row.diagnosis,
        severity=row.severity,
        steps=row.steps,
        step_ms=row.step_ms,
        change_pct=100 * (row.step_ms / before_ms - 1) if row.step_ms and before_ms else None,
        samples_per_sec=row.samples_per_sec,
        arguments=row.arguments,
        problem=row.problem,
    )


def series(rows: Sequence[Row], wanted: Filter) -> list[Series]:
    """Return the runs of a script with a step time, those with the same host and settings together.

    Args:
        rows: All rows, oldest first.
        wanted: Which to take.
    """
    kinds: dict[str, list[tuple[Row, ListedRun]]] = {}
    shown = {run.name: run for run in listed(rows, wanted._replace(last=None))}
    for row in rows:
        if row.step_ms and as_text(row.folder) in shown:
            kinds.setdefault(kind_of(row), []).append((row, shown[as_text(row.folder)]))
    found = [_series(runs if wanted.last is None else runs[-wanted.last :]) for runs in kinds.values()]
    return sorted(found, key=lambda each: each.runs[-1].started_at or "")


def _series(runs: Sequence[tuple[Row, ListedRun]]) -> Series:
    last = runs[-1][0]
    names = [run for _, run in runs]
    found = level_table([row.step_ms or 0.0 for row, _ in runs])
    return Series(
        script=last.script or "",
        host=last.host,
        settings=last.settings,
        runs=names,
        levels=[
            HistoryLevel(
                since=names[level.first].started_at,
                first_run=names[level.first].name,
                runs=level.runs,
                step_ms=level.step_ms,
                change_pct=level.change_pct,
            )
            for level in found
        ],
    )
