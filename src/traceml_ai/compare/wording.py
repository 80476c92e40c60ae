"""Numbers in sentences."""

from __future__ import annotations

MINUS = "\N{MINUS SIGN}"

BEYOND_PCT = 1000.0


def signed(value: float, decimals: int = 1) -> str:
    """Write a number with its sign; what rounds to zero has none."""
    text = f"{abs(value):,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        return text
    return f"{MINUS if value < 0 else '+'}{text}"


def bound(pct: float) -> str:
    """Write the bound of a change in percent; beyond a tenfold change the figure says nothing more."""
    return f"+{BEYOND_PCT:,.0f} or more" if pct > BEYOND_PCT else signed(pct)


def plural(count: int, word: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def as_text(name: object) -> str:
    """Return a file's name or path as text that any encoding of Unicode takes, whatever its bytes are."""
    return str(name).encode(errors="replace").decode()
