"""Numbers in sentences."""

from __future__ import annotations

MINUS = "\N{MINUS SIGN}"


def signed(value: float, decimals: int = 1) -> str:
    """Write a number with its sign; what rounds to zero has none."""
    text = f"{abs(value):,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        return text
    return f"{MINUS if value < 0 else '+'}{text}"


def plural(count: int, word: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
