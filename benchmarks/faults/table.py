"""The strikes as tables."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from _evidence import table
from judge import COUNTED

Row = dict[str, Any]
_WORDS = {
    "forked": "each signal and no more memory, in turn",
    "memory": "no more memory",
    "oom": "kernel's out-of-memory kill",
    "disk": "disk full",
    "disk+tmp": "disk and temporary folder full",
    "fsize": "every write of more than 1 kB fails",
    "folder": "run folder removed",
    "logs": "all of the logs folder removed",
    "spool": "step log removed",
    "shm": "/dev/shm filled",
    "no shm": "/dev/shm full from the start",
    "clock": "wall clock stepped by hours",
    "stop": "stopped for 30 s",
    "cut": "link cut for 3 s",
}
_TARGETS = {
    "forked": "twelve forked processes",
    "everyone": "the run",
    "node1": "launcher of node 1",
    "agent": "torchrun",
    "rank1": "a rank",
}
_LOOPS = {"plain": "plain", "lightning": "Lightning", "monai": "MONAI", "ddp": "DDP", "nodes": "2 nodes"}
_LOOPS["forked"] = "plain, Lightning, MONAI"


def totals(rows: list[Row]) -> str:
    """Return all of it in a line."""
    done = _done(rows)
    counts = [f"{name} {_count(done, name)}" for name in COUNTED]
    median, worst = _times(done)
    return (
        f"{_strikes(done)} strikes in {len(done)} runs: {', '.join(counts)}; summary after {median:.2f} s "
        f"(median), {worst:.2f} s (worst); {len(rows) - len(done)} skipped"
    )


def tables(rows: list[Row]) -> str:
    """Return all of it for the page of the documentation."""
    done = _done(rows)
    median, worst = _times(done)
    counts = [
        ["strikes, runs", f"{_strikes(done)}, {len(done)}"],
        ["training harmed by TraceML", str(_count(done, "harmed"))],
        ["closed steps missing from the summary", str(_count(done, "missing"))],
        ["summary invalid or absent", str(_count(done, "invalid"))],
        ["processes, files or shared memory left behind after 5 s", str(_count(done, "left"))],
        ["time to the summary, median and worst", f"{median:.2f} s, {worst:.2f} s"],
        ["skipped", _skipped(rows)],
    ]
    return f"{table(['', 'all'], counts)}\n\n{_by_kind(done)}"


def _by_kind(done: list[Row]) -> str:
    head = ["strike", "at", "loops", "strikes", *COUNTED, "summary, s (median, worst)"]
    lines = []
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in done:
        hit = row["hits"][0]
        key = ("forked", "forked") if row["loop"] == "forked" else (hit["kind"], hit["target"])
        groups[key].append(row)
    for (kind, target), rows in sorted(groups.items(), key=_in_order):
        median, worst = _times(rows)
        loops = sorted({_LOOPS.get(row["loop"], row["loop"]) for row in rows})
        counts = [str(_count(rows, name)) for name in COUNTED]
        where = "loader worker" if target == "worker" else _TARGETS.get(target, target)
        words = [_WORDS.get(kind, f"SIG{kind}"), where, ", ".join(loops), str(_strikes(rows))]
        lines.append([*words, *counts, f"{median:.2f}, {worst:.2f}"])
    return table(head, lines)


def _in_order(group: tuple[tuple[str, str], list[Row]]) -> tuple[bool, int, str]:
    kind, target = group[0]
    return kind in _WORDS, list(_WORDS).index(kind) if kind in _WORDS else 0, kind + target


def _done(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "problems" in row]


def _strikes(rows: list[Row]) -> int:
    return sum(row["struck"] for row in rows)


def _count(rows: list[Row], name: str) -> int:
    return sum(bool(row["problems"][name]) for row in rows)


def _times(rows: list[Row]) -> tuple[float, float]:
    took = [row["took_s"] for row in rows] or [float("nan")]
    return statistics.median(took), max(took)


def _skipped(rows: list[Row]) -> str:
    why = sorted({row["skipped"] for row in rows if "skipped" in row})
    count = sum("skipped" in row for row in rows)
    return f"{count} ({'; '.join(why)})" if count else "0"
