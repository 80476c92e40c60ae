"""How characters look, and the control sequence that says so (``SGR``, ``ESC [ ... m``).

Source: ECMA-48, 8.3.117, and xterm's ctlseqs for colours beyond the first sixteen.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_PARAMETERS = 32
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}


class Style(NamedTuple):
    """How a character looks; colours are ``None``, 0 to 255, or ``#rrggbb``."""

    color: int | str | None = None
    background: int | str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


PLAIN = Style()


def styled(style: Style, parameters: str) -> Style:
    """Return a style after the parameters of ``SGR`` (``ESC [ ... m``)."""
    parts = [part.split(":") for part in parameters.split(";")[:MOST_PARAMETERS]]
    while parts:
        first, *sub = parts.pop(0)
        code = int(first) if first.isdigit() else 0
        if code in {38, 48}:
            words = sub or [part[0] for part in parts]
            color, used = _extended(words, in_colons=bool(sub))
            if not sub:
                del parts[:used]
            style = style._replace(color=color) if code == 38 else style._replace(background=color)  # noqa: PLR2004
        else:
            style = _simple(style, code, underline_off=sub[:1] == ["0"])
    return style


def _simple(style: Style, code: int, *, underline_off: bool) -> Style:  # noqa: PLR0911 -- a table in words
    if code == 0:
        return PLAIN
    if code in _ON:
        return style._replace(**{_ON[code]: not (code == 4 and underline_off)})  # noqa: PLR2004
    if code in _OFF:
        return style._replace(**dict.fromkeys(_OFF[code], False))
    for base, first in ((30, 0), (90, 8)):
        if base <= code <= base + 7:
            return style._replace(color=code - base + first)
        if base + 10 <= code <= base + 17:
            return style._replace(background=code - base - 10 + first)
    if code == 39:  # noqa: PLR2004
        return style._replace(color=None)
    return style._replace(background=None) if code == 49 else style  # noqa: PLR2004


def _extended(words: list[str], *, in_colons: bool) -> tuple[int | str | None, int]:
    """Return the colour behind 38 or 48, and how many words it takes.

    Between colons there may be a colour space in front of red, green and blue.
    """
    numbers = [min(int(word), 255) if word.isdigit() else 0 for word in words]
    if numbers[:1] == [5] and len(numbers) > 1:
        return numbers[1], 2
    if numbers[:1] == [2] and len(numbers) >= 4:  # noqa: PLR2004 -- red, green, blue
        first = 2 if in_colons and len(numbers) >= 5 else 1  # noqa: PLR2004
        red, green, blue = numbers[first : first + 3]
        return f"#{red:02x}{green:02x}{blue:02x}", 4
    return None, len(words)


def sgr(style: Style) -> str:
    """Return the sequence that switches a terminal to a style."""
    codes = ["0", *(str(code) for code, name in _ON.items() if getattr(style, name))]
    for base, color in ((38, style.color), (48, style.background)):
        if isinstance(color, int):
            codes.append(f"{base};5;{color}" if color > 15 else str(_basic(base - 8, color)))  # noqa: PLR2004
        elif color is not None:
            red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
            codes.append(f"{base};2;{red};{green};{blue}")
    return f"\x1b[{';'.join(codes)}m"


def _basic(base: int, color: int) -> int:
    return base + color if color < 8 else base + 60 + color - 8  # noqa: PLR2004
