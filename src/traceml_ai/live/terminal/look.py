"""Which characters and colours a terminal shows, and the small pictures made of them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " .:-=+*#%"


class Look(NamedTuple):
    """What the terminal can show."""

    unicode: bool = True
    color: bool = True

    @classmethod
    def of(cls, environ: Mapping[str, str], encoding: str | None) -> Look:
        """Return what an environment and an encoding allow.

        Args:
            environ: ``NO_COLOR``, ``TERM``, ``LC_ALL``, ``TRACEML_ASCII`` decide.
            encoding: Of standard output.
        """
        utf8 = (encoding or "ascii").lower().replace("-", "") == "utf8"
        # Python itself speaks UTF-8 in the C locale; a terminal that was set to it may not.
        plain = environ.get("LC_ALL") in {"C", "POSIX"} or bool(environ.get("TRACEML_ASCII"))
        return cls(unicode=utf8 and not plain, color=not environ.get("NO_COLOR"))

    @classmethod
    def of_process(cls) -> Look:
        """Return what this process's terminal can show."""
        return cls.of(os.environ, getattr(sys.__stdout__, "encoding", None))

    @property
    def full(self) -> str:
        """A filled cell of a bar."""
        return "█" if self.unicode else "#"

    @property
    def empty(self) -> str:
        """An empty cell of a bar."""
        return "░" if self.unicode else "."

    @property
    def dot(self) -> str:
        """Between two facts of a line."""
        return "·" if self.unicode else "|"

    @property
    def rule(self) -> str:
        """A horizontal line."""
        return "─" if self.unicode else "-"

    @property
    def mark(self) -> str:
        """Points up, at where something begins."""
        return "▲" if self.unicode else "^"

    @property
    def levels(self) -> str:
        """Nine characters from nothing to full."""
        return _EIGHTHS if self.unicode else _ASCII_LEVELS

    def bar(self, share: float | None, width: int) -> str:
        """Draw a share of 0 to 1 as a bar."""
        if share is None or not math.isfinite(share):
            return " " * width
        filled = round(min(max(share, 0.0), 1.0) * width)
        return self.full * filled + self.empty * (width - filled)


def fold(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most ``width`` values: the largest of each group of neighbours, so that no spike is lost."""
    n = len(values)
    if n <= width:
        return list(values)
    groups = (values[at * n // width : (at + 1) * n // width] for at in range(width))
    return [max((value for value in group if value is not None), default=None) for group in groups]


def place(index: int, n: int, width: int) -> int:
    """Return the column of value ``index`` of ``n`` in a picture of ``width`` columns."""
    return index if n <= width else min(width - 1, index * width // n)


def spark(values: Sequence[float | None], width: int, look: Look) -> str:
    """Draw values as one row of characters, from 0 to the largest."""
    return column_chart(values, width, 1, look)[0]


def column_chart(values: Sequence[float | None], width: int, height: int, look: Look) -> list[str]:
    """Draw values as columns from 0 to the largest; rows top down, a value that is missing stays empty."""
    folded = fold(values, width)
    most = max((value for value in folded if value is not None), default=0.0)
    levels = [_eighths(value, most, height) for value in folded]
    rows = []
    for row in range(height - 1, -1, -1):
        parts = [min(max(level - 8 * row, 0), 8) for level in levels]
        rows.append("".join(look.levels[part] for part in parts))
    return rows


def _eighths(value: float | None, most: float, height: int) -> int:
    if value is None or not math.isfinite(value):
        return 0
    return max(1, round(8 * height * value / most)) if most > 0 else 1


def heat(values: Sequence[float | None], width: int, look: Look) -> list[tuple[str, float | None]]:
    """Return a character and its warmth (0 the coolest, 1 the hottest) for each cell of a heat row.

    Evenly slow ranks are all cool: what counts is the distance to the median, full at half of it more.
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return [("?", None)] * min(len(values), width)
    middle = known[(len(known) - 1) // 2]  # of two ranks the faster one: the other is warm
    return [_heat_cell(value, middle, look) for value in fold(values, width)]


def _heat_cell(value: float | None, middle: float, look: Look) -> tuple[str, float | None]:
    if value is None:
        return "?", None
    warmth = min(max((value / middle - 1.0) / 0.5, 0.0), 1.0) if middle > 0 else 0.0
    level = 2 + round(6 * warmth)
    return look.levels[level], warmth
