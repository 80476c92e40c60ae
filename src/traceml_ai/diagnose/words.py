"""Numbers as the sentences of a finding spell them."""

from __future__ import annotations

_KIB = 1024.0
_BIG, _MIDDLE = 100, 10


def number(value: float) -> str:
    """Return about three digits, never an exponent."""
    size = abs(value)
    digits = 0 if size >= _BIG else 1 if size >= _MIDDLE else 2
    return f"{value:.{digits}f}"


def ms(nanoseconds: float) -> str:
    """Return a duration in milliseconds."""
    return f"{number(nanoseconds / 1e6)} ms"


def seconds(nanoseconds: float) -> str:
    """Return a duration in seconds."""
    return f"{number(nanoseconds / 1e9)} s"


def percent(part: float) -> str:
    """Return a part (0..1) in percent."""
    value = 100 * part
    return f"{value:.1f} %" if 0 < value < _MIDDLE else f"{value:.0f} %"


def size(count: float) -> str:
    """Return a number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < _KIB:
            return f"{number(count)} {unit}"
        count /= _KIB
    return f"{number(count)} GiB"


def plural(count: int, noun: str) -> str:
    """Return a count and its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ordinal(value: int) -> str:
    """Return 1st, 2nd, 3rd, 4th ..."""
    teen = value % 100 in (11, 12, 13)
    return f"{value:,}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"
