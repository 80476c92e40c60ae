"""The card's table of ranks: what each does itself, what it waits, and what that costs the job."""

from __future__ import annotations

from traceml_ai.report.text import clean, fit, number, pad
from traceml_ai.schema.summary import AcrossRanks, RankRow, Summary

_NUMBER = 10
_HEADS = ("step ms", "own work", "wait", "transfer", "score")


def rank_lines(summary: Summary, width: int, most: int, *, ascii_only: bool) -> list[str]:
    """Lay out the ranks of a job: all, or of many the slowest and a typical one.

    Args:
        summary: The run.
        width: Columns to use.
        most: Rows at most.
        ascii_only: Use no character outside ASCII.

    Returns:
        Nothing for a run whose ranks are not compared.
    """
    across = summary.step_time.across_ranks
    if across is None:
        return []
    shown = _shown(summary.step_time.ranks, most)
    room = width - len(_HEADS) * _NUMBER
    title = f"Ranks ({len(shown)} of {across.compared})" if len(shown) < across.compared else "Ranks"
    lines = [pad(title, room) + "".join(head.rjust(_NUMBER) for head in _HEADS)]
    several = len({row.node for row in summary.step_time.ranks}) > 1
    lines += [_line(row, room, _note(row, across, several=several), ascii_only=ascii_only) for row in shown]
    return [*lines, fit(slowdown_line(across), width)]


def _shown(rows: list[RankRow], most: int) -> list[RankRow]:
    """Return the slowest and, last, the most typical of the compared ones; all if there is room."""
    if len(rows) <= most:
        return rows
    compared = sorted((row for row in rows if row.work_ms is not None), key=lambda row: -(row.work_ms or 0.0))
    if not compared:
        return rows[:most]
    typical = compared[len(compared) // 2]
    slowest = [row for row in compared if row is not typical][: most - 1]
    return [*slowest, typical]


def _note(row: RankRow, across: AcrossRanks, *, several: bool) -> str:
    name = f"r{row.rank}" + (f" on {row.node}" if several and row.node else "")
    if row.ended is not None:
        return f"{name}, ended with {row.ended}"
    if row.left_out is not None:
        return f"{name}, {row.left_out}"
    work = across.phases.get("work")
    slowest = work is not None and work.worst_rank == row.rank
    return f"{name}, slowest" if slowest and (across.slowdown_ratio or 1.0) > 1.1 else name  # noqa: PLR2004


def _line(row: RankRow, room: int, note: str, *, ascii_only: bool) -> str:
    values = (row.step_ms, row.work_ms, row.wait_ms, row.transfer_ms)
    numbers = "".join(fit(number(value), _NUMBER - 1).rjust(_NUMBER) for value in values)
    score = "n/a" if row.score is None else f"{row.score:.2f}"
    return (
        "  "
        + pad(fit(clean(note, ascii_only=ascii_only), room - 2), room - 2)
        + numbers
        + score.rjust(_NUMBER)
    )


def slowdown_line(across: AcrossRanks) -> str:
    """Say what it costs the job that its ranks differ."""
    ratio = across.slowdown_ratio
    if ratio is None:
        return "  Uneven ranks: n/a"
    part = across.from_slowest_pct
    by = "" if part is None else f", {part:.0f} % by the slowest"
    return (
        f"  Uneven ranks: {ratio:.2f}x slower ({number(across.step_ms)} ms a turn, "
        f"{number(across.ideal_step_ms)} if all were typical){by}"
    )
