"""What ``traceml runs --json`` and ``traceml history --json`` write."""

from __future__ import annotations

import msgspec

HISTORY_VERSION = 1


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a log folder. A value that is not known is ``null``."""

    name: str  # the run folder's
    started_at: str | None = None  # ISO 8601, UTC
    script: str | None = None
    status: str = "unknown"
    diagnosis: str | None = None
    severity: str | None = None
    steps: int = 0  # steady steps
    step_ms: float | None = None
    change_pct: float | None = None  # against the last run of the same script with the same settings
    samples_per_sec: float | None = None
    arguments: dict[str, str] = {}
    problem: str | None = None  # why there is nothing else


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a log folder, oldest first."""

    history_version: int = HISTORY_VERSION
    logs_dir: str
    runs: list[ListedRun]


class HistoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive runs whose step times differ by noise only."""

    since: str | None  # when its first run started
    first_run: str
    runs: int
    step_ms: float
    change_pct: float | None = None  # against the level before


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one script on one host with the same settings: their step times mean the same."""

    script: str
    host: str | None = None
    settings: dict[str, str | None] = {}
    runs: list[ListedRun]
    levels: list[HistoryLevel]  # the second and later ones begin at a change point


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Step time of a script over its runs, the series with the newest run last."""

    history_version: int = HISTORY_VERSION
    logs_dir: str
    script: str
    series: list[Series]


def encode(value: RunList | History) -> bytes:
    """Write as strict, readable JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
