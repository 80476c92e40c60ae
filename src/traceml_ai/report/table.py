"""The breakdown of a step as a table: a bar, mean, median, p95 and share for each phase."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.report.text import NOT_AVAILABLE, apportion, clean, fit, number, pad
from traceml_ai.report.words import PHASE_WORDS
from traceml_ai.schema.summary import PhaseStats, StepTimeSection, Summary

_CORE = ("input_wait", "h2d", "forward", "backward", "optimizer")
_LABEL = 14
_NUMBER = 10
_SHARE = 9
_WHOLE_STEP = "= step time"
_WHOLE = 99.5, 100.5  # shares that mean to be a whole


class Row(NamedTuple):
    """One line of the table."""

    label: str
    stats: PhaseStats
    share_pct: float | None


def rows_of(summary: Summary, max_named: int) -> list[Row]:
    """Phases in the order of a step, the smallest named ones folded so that at most ``max_named`` remain."""
    step = summary.step_time
    found = [(name, step.phases.get(name, PhaseStats())) for name in _core_names(summary)]
    found += _fold(_named(step), max_named)
    found.append(("residual", step.phases.get("residual", PhaseStats())))
    shares = _displayed([stats.share_pct for _, stats in found])
    rows = [Row(PHASE_WORDS.get(n, n), s, share) for (n, s), share in zip(found, shares, strict=True)]
    return [*rows, _whole(step, [row.share_pct for row in rows])]


def _whole(step: StepTimeSection, shares: list[float | None]) -> Row:
    known = [share for share in shares if share is not None]
    stats = PhaseStats(mean_ms=step.step_ms, median_ms=step.median_step_ms, p95_ms=step.p95_step_ms)
    return Row(_WHOLE_STEP, stats, round(sum(known), 1) if known else None)


def _core_names(summary: Summary) -> list[str]:
    """H2D is left out where there is no device to copy to."""
    devices = summary.run.devices
    no_device = bool(devices) and all(device.startswith("cpu") for device in devices)
    seen = _seen(summary.step_time.phases.get("h2d", PhaseStats()))
    return [name for name in _CORE if name != "h2d" or seen or not no_device]


def _seen(stats: PhaseStats) -> bool:
    return stats.mean_ms is not None or stats.share_pct is not None


def _named(step: StepTimeSection) -> list[tuple[str, PhaseStats]]:
    known = {*_CORE, "residual", "between_steps"}
    return [(name, stats) for name, stats in step.phases.items() if name not in known]


def _fold(named: list[tuple[str, PhaseStats]], keep: int) -> list[tuple[str, PhaseStats]]:
    if len(named) <= keep:
        return named
    largest = sorted(named, key=lambda item: item[1].share_pct or 0.0, reverse=True)[: keep - 1]
    kept = [item for item in named if item in largest]
    rest = [stats for name, stats in named if (name, stats) not in kept]
    return [*kept, (f"{len(rest)} other phases", _together(rest))]


def _together(parts: list[PhaseStats]) -> PhaseStats:
    """Shares add up; means and quantiles of different phases do not, where phases miss in some steps."""
    shares = [part.share_pct for part in parts if part.share_pct is not None]
    return PhaseStats(share_pct=sum(shares) if shares else None)


def _displayed(shares: list[float | None]) -> list[float | None]:
    """Round to a tenth of a per cent such that what adds up to 100 still does on the screen."""
    known = [share for share in shares if share is not None]
    if not known or not _WHOLE[0] <= sum(known) <= _WHOLE[1]:
        return [None if share is None else round(share, 1) for share in shares]
    rounded = iter(apportion([share * 100 / sum(known) for share in known]))
    return [None if share is None else next(rounded) for share in shares]


def table_lines(rows: list[Row], title: str, width: int, *, ascii_only: bool) -> list[str]:
    """Lay the rows out in ``width`` columns under a line that holds ``title`` and the column heads."""
    room = width - 3 * _NUMBER - _SHARE
    heads = "".join(head.rjust(_NUMBER) for head in ("mean ms", "median", "p95"))
    lines = [pad(title, room) + heads + "share".rjust(_SHARE)]
    return lines + [_line(row, room, ascii_only=ascii_only) for row in rows]


def _line(row: Row, room: int, *, ascii_only: bool) -> str:
    label = pad(clean(row.label, ascii_only=ascii_only), _LABEL)
    drawn_share = None if row.label == _WHOLE_STEP else row.share_pct
    drawn = bar(drawn_share, room - _LABEL - 4, ascii_only=ascii_only)
    times = (row.stats.mean_ms, row.stats.median_ms, row.stats.p95_ms)
    numbers = "".join(fit(number(value), _NUMBER - 1).rjust(_NUMBER) for value in times)
    return f"  {label} {drawn} {numbers}{_share(row.share_pct)}"


def _share(value: float | None) -> str:
    return (NOT_AVAILABLE if value is None else f"{value:.1f} %").rjust(_SHARE)


def bar(share_pct: float | None, width: int, *, ascii_only: bool) -> str:
    """Draw a share of 100 % as a bar; what is not known has no bar at all."""
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    if share_pct is None:
        return " " * width
    filled = min(width, max(0, round(share_pct / 100 * width)))
    return full * filled + empty * (width - filled)
