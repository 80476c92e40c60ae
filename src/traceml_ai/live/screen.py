"""What a program printed, as the lines that a terminal would show.

Carriage returns, cursor movement, erasing, colours and line wrap are carried out, so that a progress
bar is one line however often it was drawn. Written for logs: plain text, the common case, goes
through in whole runs (a general terminal emulator handles it character by character, which at the
rate of a busy job costs more than the rest of the view together).

Control sequences: ECMA-48 and xterm's ctlseqs; what is not listed here is skipped whole.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby

from rich.cells import cell_len

from traceml_ai.live.styles import MOST_PARAMETERS, PLAIN, Style, sgr, styled

MAX_LINES = 10_000
_TAB = 8
_LONGEST_SEQUENCE = 4096  # an unfinished sequence longer than this is no sequence

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<csi>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b[\]PX^_](?:[^\x07\x1b]|\x1b(?!\\))*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b(?P<escape>[0-Z\\^-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])",
    re.DOTALL,
)
_UNFINISHED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_](?:[^\x07\x1b]|\x1b(?!\\))*\x1b?|[ -/]*)?\Z", re.DOTALL
)


class Line:
    """One row: a character and a style a cell; the second cell of a wide character is empty."""

    __slots__ = ("cells", "styles", "wrapped")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.styles: list[Style] = []
        self.wrapped = False  # it goes on in the next row

    @property
    def text(self) -> str:
        """The row without its styles."""
        return "".join(self.cells)

    def runs(self) -> Iterator[tuple[str, Style]]:
        """Yield its text in pieces of one style each."""
        at = 0
        for style, group in groupby(self.styles):
            end = at + len(list(group))
            yield "".join(self.cells[at:end]), style
            at = end

    def put(self, column: int, cells: list[str], style: Style) -> None:
        """Write cells over what is there."""
        if column > len(self.cells):
            self.pad(column)
        end = column + len(cells)
        self.cells[column:end] = cells
        self.styles[column:end] = [style] * len(cells)

    def pad(self, width: int) -> None:
        """Fill with spaces up to a width."""
        missing = width - len(self.cells)
        self.cells.extend(" " * missing)
        self.styles.extend([PLAIN] * missing)

    def cut(self, width: int) -> None:
        """Drop everything from a column on."""
        del self.cells[width:], self.styles[width:]
        self.wrapped = False


class Screen:
    """The rows of a terminal with everything that scrolled out at its top.

    Args:
        width: Columns; longer lines wrap.
        height: Rows the cursor can reach.
        max_lines: Keep so many rows in all.
        answer: Takes what a terminal would answer to a request for its state.
    """

    def __init__(
        self,
        width: int = 80,
        height: int = 24,
        *,
        max_lines: int = MAX_LINES,
        answer: Callable[[bytes], None] | None = None,
    ) -> None:
        self.width = max(width, 2)  # a wide character must fit
        self.height = max(height, 1)
        self.lines: deque[Line] = deque([Line()], maxlen=max(max_lines, height))
        self.dropped = 0  # rows that are no longer kept
        self.changed_from = 0  # rows before this one are as they were at the last `take_changes`
        self.cursor_visible = True
        self._answer = answer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._row, self._column = 0, 0
        self._saved = (0, 0)
        self._style = PLAIN

    @property
    def cursor(self) -> tuple[int, int]:
        """Row (among `lines`) and column of the cursor."""
        return self._row, min(self._column, self.width - 1)

    def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal; what was written stays as it is."""
        self.width, self.height = max(width, 2), max(height, 1)

    def take_changes(self) -> int:
        """Return the first row that may have changed since the last call."""
        changed, self.changed_from = self.changed_from, len(self.lines)
        return changed

    def feed(self, data: bytes) -> None:
        """Take in what the program printed next."""
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        if (cut := _UNFINISHED.search(text)) and len(text) - cut.start() < _LONGEST_SEQUENCE:
            self._pending, text = text[cut.start() :], text[: cut.start()]
        for token in _TOKEN.finditer(text):
            self._carry_out(token)

    def _carry_out(self, token: re.Match[str]) -> None:
        kind = token.lastgroup
        if kind == "text":
            self._print(token["text"])
        elif kind == "control":
            self._control(token["control"])
        elif kind == "final":
            self._csi(token["csi"], token["between"] + token["final"])
        elif kind == "escape":
            self._escape(token["escape"])

    # -- printing ------------------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        cells = list(text) if text.isascii() else _cells(text)
        while cells:
            if self._column >= self.width:
                self.lines[self._row].wrapped = True
                self._feed_line()
                self._column = 0
            part = _fitting(cells, self.width - self._column)
            if part:
                self._touch()
                self.lines[self._row].put(self._column, part, self._style)
            self._column = self._column + len(part) if len(part) == len(cells) else self.width
            cells = cells[len(part) :]

    def _touch(self) -> None:
        self.changed_from = min(self.changed_from, self._row)

    def _feed_line(self) -> None:
        self._touch()
        if self._row + 1 < len(self.lines):
            self._row += 1
            return
        if len(self.lines) == self.lines.maxlen:
            self.dropped += 1
            self._row -= 1
            self.changed_from = 0
        self.lines.append(Line())
        self._row += 1

    def _control(self, character: str) -> None:
        if character in "\n\x0b\x0c":
            self._feed_line()
            self._touch()
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, min(self._column, self.width - 1) - 1)
        elif character == "\t":
            self._column = min((self._column // _TAB + 1) * _TAB, self.width - 1)

    def _escape(self, letter: str) -> None:
        if letter == "7":
            self._saved = (self._row - self._top, self._column)
        elif letter == "8":
            self._go(*self._saved)
        elif letter == "D":
            self._feed_line()
        elif letter == "E":
            self._feed_line()
            self._column = 0
        elif letter == "M":
            self._move_rows(-1)
        elif letter == "c":
            self._style = PLAIN
            self._clear_screen()

    # -- control sequences ---------------------------------------------------------------------------

    def _csi(self, parameters: str, final: str) -> None:
        if parameters[:1] in {"?", ">", "=", "<"}:
            self._private(parameters, final)
            return
        if final == "m":
            self._style = styled(self._style, parameters)
            return
        numbers = [int(part[:6]) if part.isdigit() else 0 for part in parameters.split(";")]
        handler = _HANDLERS.get(final)
        if handler is not None:
            handler(self, numbers[:MOST_PARAMETERS])

    def _private(self, parameters: str, final: str) -> None:
        modes = parameters[1:].split(";")
        if parameters[0] != "?" or final not in "hl":
            return
        if "25" in modes:
            self.cursor_visible = final == "h"
            self._touch()
        if "1049" in modes or "47" in modes:  # a full-screen program comes or goes
            self._clear_screen()

    @property
    def _top(self) -> int:
        """The row of `lines` that is the terminal's first."""
        return max(0, len(self.lines) - self.height)

    def _go(self, row: int, column: int) -> None:
        """Move the cursor to a row and column of the terminal, counted from 0."""
        target = self._top + max(0, min(row, self.height - 1))
        while len(self.lines) <= target:
            self.lines.append(Line())
        self._row, self._column = target, max(0, min(column, self.width - 1))

    def _move_rows(self, by: int) -> None:
        row = self._row - self._top + by
        self._go(row, self._column)
        self._touch()

    def _move_columns(self, by: int) -> None:
        self._column = max(0, min(min(self._column, self.width - 1) + by, self.width - 1))

    def _erase_in_line(self, what: int) -> None:
        self._touch()
        line = self.lines[self._row]
        if what == 0:
            line.cut(self._column)
        elif what == 1:
            line.put(0, [" "] * min(self._column + 1, self.width), PLAIN)
        elif what == 2:  # noqa: PLR2004 -- the number of the operation
            line.cut(0)

    def _erase_in_display(self, what: int) -> None:
        if what == 0:
            self._erase_in_line(0)
            for row in range(self._row + 1, len(self.lines)):
                self.lines[row].cut(0)
        elif what == 1:
            self._erase_in_line(1)
            for row in range(self._top, self._row):
                self.lines[row].cut(0)
            self.changed_from = min(self.changed_from, self._top)
        elif what == 2:  # noqa: PLR2004
            self._clear_screen()

    def _clear_screen(self) -> None:
        """Scroll what is there out of the screen, as terminals that keep it do."""
        self.changed_from = min(self.changed_from, self._top)
        filled = [row for row in range(self._top, len(self.lines)) if self.lines[row].cells]
        if not filled:
            return
        self._row = filled[-1]
        while len(self.lines) > filled[-1] + 1:
            self.lines.pop()
        for _ in range(self.height):
            self._feed_line()
        self._row, self._column = self._top, 0

    def _delete_characters(self, count: int) -> None:
        self._touch()
        line = self.lines[self._row]
        del line.cells[self._column : self._column + count], line.styles[self._column : self._column + count]

    def _insert_characters(self, count: int) -> None:
        self._touch()
        line = self.lines[self._row]
        if self._column < len(line.cells):
            line.cells[self._column : self._column] = [" "] * count
            line.styles[self._column : self._column] = [PLAIN] * count
            line.cut(self.width)

    def _erase_characters(self, count: int) -> None:
        self._touch()
        line = self.lines[self._row]
        line.put(self._column, [" "] * min(count, self.width - self._column), PLAIN)

    def _report(self, what: int) -> None:
        if self._answer is None:
            return
        if what == 5:  # noqa: PLR2004 -- are you well?
            self._answer(b"\x1b[0n")
        elif what == 6:  # noqa: PLR2004 -- where is the cursor?
            row, column = self.cursor
            self._answer(f"\x1b[{row - self._top + 1};{column + 1}R".encode())


Handler = Callable[[Screen, list[int]], None]


def _count(numbers: list[int]) -> int:
    return max(1, numbers[0])


def _at(numbers: list[int], index: int) -> int:
    return max(1, numbers[index]) - 1 if index < len(numbers) else 0


def _next_line(screen: Screen, numbers: list[int]) -> None:
    screen._move_rows(_count(numbers))  # noqa: SLF001
    screen._column = 0  # noqa: SLF001


def _previous_line(screen: Screen, numbers: list[int]) -> None:
    screen._move_rows(-_count(numbers))  # noqa: SLF001
    screen._column = 0  # noqa: SLF001


def _column_at(screen: Screen, numbers: list[int]) -> None:
    screen._column = min(_at(numbers, 0), screen.width - 1)  # noqa: SLF001


_HANDLERS: dict[str, Handler] = {
    "A": lambda screen, numbers: screen._move_rows(-_count(numbers)),  # noqa: SLF001
    "B": lambda screen, numbers: screen._move_rows(_count(numbers)),  # noqa: SLF001
    "C": lambda screen, numbers: screen._move_columns(_count(numbers)),  # noqa: SLF001
    "D": lambda screen, numbers: screen._move_columns(-_count(numbers)),  # noqa: SLF001
    "E": _next_line,
    "F": _previous_line,
    "G": _column_at,
    "`": _column_at,
    "H": lambda screen, numbers: screen._go(_at(numbers, 0), _at(numbers, 1)),  # noqa: SLF001
    "f": lambda screen, numbers: screen._go(_at(numbers, 0), _at(numbers, 1)),  # noqa: SLF001
    "d": lambda screen, numbers: screen._go(_at(numbers, 0), screen._column),  # noqa: SLF001
    "J": lambda screen, numbers: screen._erase_in_display(numbers[0]),  # noqa: SLF001
    "K": lambda screen, numbers: screen._erase_in_line(numbers[0]),  # noqa: SLF001
    "P": lambda screen, numbers: screen._delete_characters(_count(numbers)),  # noqa: SLF001
    "@": lambda screen, numbers: screen._insert_characters(_count(numbers)),  # noqa: SLF001
    "X": lambda screen, numbers: screen._erase_characters(_count(numbers)),  # noqa: SLF001
    "n": lambda screen, numbers: screen._report(numbers[0]),  # noqa: SLF001
    "s": lambda screen, numbers: screen._escape("7"),  # noqa: SLF001, ARG005
    "u": lambda screen, numbers: screen._escape("8"),  # noqa: SLF001, ARG005
}


def _fitting(cells: list[str], room: int) -> list[str]:
    """Return the cells that fit into the rest of a row; a wide character stays whole."""
    split = room < len(cells) and cells[room] == ""
    return cells[: room - 1 if split else room]


def _cells(text: str) -> list[str]:
    """Return one entry a cell; marks that combine go with the character before them."""
    cells: list[str] = []
    for character in text:
        width = cell_len(character)
        if width == 0 and cells:
            at = -1 if cells[-1] or len(cells) == 1 else -2
            cells[at] += character
        elif width > 1:
            cells += [character, ""]
        elif width == 1:
            cells.append(character)
    return cells


def to_ansi(lines: list[Line], *, color: bool) -> str:
    """Return lines as text for a terminal; a wrapped one goes on in the same line."""
    parts: list[str] = []
    for line in lines:
        for text, style in line.runs():
            parts.append(f"{sgr(style)}{text}\x1b[0m" if color and style != PLAIN else text)
        if not line.wrapped:
            parts.append("\n")
    return "".join(parts)
