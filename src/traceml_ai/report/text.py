"""Text for a terminal: cleaning what comes from outside, fitting it into columns, numbers with units."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len

__all__ = [
    "NOT_AVAILABLE",
    "apportion",
    "clean",
    "duration",
    "fit",
    "millis",
    "number",
    "pad",
    "size",
    "steps_of",
    "wrap",
]

NOT_AVAILABLE = "n/a"

# Control, format (bidi overrides, zero-width), surrogate, private use, unassigned, line and
# paragraph separators: none of them may reach a terminal from a run name or a sentence.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ASCII = str.maketrans(
    {"·": "|", "×": "x", "µ": "u", "…": "...", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=", "’": "'"}
)


def clean(text: str, *, ascii_only: bool = False) -> str:
    """Return ``text`` on one line, without anything that could steer a terminal."""
    spaced = " ".join(text.split())
    safe = "".join("?" if unicodedata.category(c) in _UNSAFE else c for c in spaced)
    return safe.translate(_ASCII).encode("ascii", "replace").decode() if ascii_only else safe


def fit(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` columns, marking the cut."""
    if cell_len(text) <= width:
        return text
    mark = "..." if text.isascii() else "…"
    if width <= len(mark):
        return mark[:width]
    while cell_len(text) > width - len(mark):
        text = text[:-1]
    return text.rstrip() + mark


def pad(text: str, width: int) -> str:
    """Cut or fill ``text`` to exactly ``width`` columns."""
    text = fit(text, width)
    return text + " " * (width - cell_len(text))


def wrap(text: str, width: int, max_lines: int) -> list[str]:
    """Break ``text`` at spaces into at most ``max_lines`` lines; what does not fit is cut with a mark."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < max_lines - 1:
        line, words = _take_line(words, width)
        lines.append(line)
    if words:
        lines.append(fit(" ".join(words), width))
    return lines


def _take_line(words: Sequence[str], width: int) -> tuple[str, list[str]]:
    used = 1
    while used < len(words) and cell_len(" ".join(words[: used + 1])) <= width:
        used += 1
    return fit(" ".join(words[:used]), width), list(words[used:])


def number(value: float | None, digits: int = 3) -> str:
    """Write ``value`` with about ``digits`` significant digits and no exponent."""
    if value is None:
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    if abs(value) < 10.0**-digits:
        return f"<{10.0**-digits:.{digits}f}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - max(whole, 0))}f}"


def steps_of(count: int) -> str:
    """Write a number of steps."""
    return f"{count:,} step" if count == 1 else f"{count:,} steps"


def millis(value: float | None) -> str:
    """Write milliseconds with their unit."""
    return NOT_AVAILABLE if value is None else f"{number(value)} ms"


def duration(seconds: float | None) -> str:
    """Write a length of time in the unit a person would choose."""
    if seconds is None:
        return NOT_AVAILABLE
    if seconds < 60:  # noqa: PLR2004
        return f"{number(seconds)} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: float | None) -> str:
    """Write bytes in binary units."""
    if count is None:
        return NOT_AVAILABLE
    for unit, bits in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(count) >= 1 << bits:
            return f"{number(count / (1 << bits))} {unit}"
    return f"{count:.0f} B"


def apportion(parts: Sequence[float], decimals: int = 1) -> list[float]:
    """Round ``parts`` so that the rounded ones add up to their rounded sum (largest remainder)."""
    scale = 10**decimals
    floors = [int(part * scale // 1) for part in parts]
    missing = round(sum(parts) * scale) - sum(floors)
    by_remainder = sorted(range(len(parts)), key=lambda i: floors[i] - parts[i] * scale)
    for i in by_remainder[: max(missing, 0)]:
        floors[i] += 1
    return [floor / scale for floor in floors]
