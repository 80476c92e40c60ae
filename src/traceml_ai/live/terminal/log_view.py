"""The pane with the program's output."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from traceml_ai.live.screen import Line, Screen
from traceml_ai.live.styles import PLAIN, Style
from traceml_ai.live.terminal.look import Look

_FOUND = RichStyle(reverse=True, bold=True)
_WHEEL_ROWS = 3
_CURSOR = RichStyle(reverse=True)


@lru_cache(maxsize=1024)
def rich_style(style: Style) -> RichStyle:
    """Return a style as rich has it."""
    return RichStyle(
        color=_color(style.color),
        bgcolor=_color(style.background),
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        reverse=style.reverse,
        strike=style.strike,
    )


def _color(color: int | str | None) -> Color | None:
    if color is None:
        return None
    return Color.from_ansi(color) if isinstance(color, int) else Color.parse(color)


class LogView(ScrollView, can_focus=True):
    """Shows the rows of a `Screen`; stays at its end unless it was scrolled up.

    Args:
        screen: The rows; shared, and fed by somebody else.
        look: What the terminal can show.
        id: The widget's id.
    """

    DEFAULT_CSS = """
    LogView {
        scrollbar-size-vertical: 0;
        scrollbar-size-horizontal: 0;
        background: ansi_default;
        color: ansi_default;
    }
    """

    def __init__(self, screen: Screen, look: Look, *, id: str) -> None:  # noqa: A002 -- textual's name for it
        super().__init__(id=id)
        self._rows = screen
        self._look = look
        self._dropped = screen.dropped
        self.found: str = ""  # what was searched for
        self.at_match: int | None = None  # row of the match that was gone to
        self.shows_cursor = False
        self.follows = True  # the end stays in sight

    def refresh_rows(self) -> None:
        """Show what the screen holds now."""
        gone, self._dropped = self._rows.dropped - self._dropped, self._rows.dropped
        self.virtual_size = Size(self.size.width, len(self._rows.lines))
        if self.follows:
            self.scroll_end(animate=False, force=True, immediate=True)
        elif gone:
            self._go_to(self.scroll_offset.y - gone)
        self.refresh()

    class Scrolled(Message):
        """Somebody scrolled."""

    def scroll_rows(self, by: int) -> None:
        """Scroll by so many rows; at the end, stay there."""
        row = self.scroll_offset.y + by
        self.follows = row >= self.max_scroll_y
        self._go_to(row)
        self.post_message(self.Scrolled())

    def action_scroll_up(self) -> None:
        """Scroll back by a row."""
        self.scroll_rows(-1)

    def action_scroll_down(self) -> None:
        """Scroll on by a row."""
        self.scroll_rows(1)

    def action_page_up(self) -> None:
        """Scroll back by nearly what is in sight."""
        self.scroll_rows(1 - max(2, self.size.height))

    def action_page_down(self) -> None:
        """Scroll on by nearly what is in sight."""
        self.scroll_rows(max(2, self.size.height) - 1)

    def action_scroll_home(self) -> None:
        """Go to the first row that is kept."""
        self.scroll_rows(-len(self._rows.lines))

    def action_scroll_end(self) -> None:
        """Go to the end and stay there."""
        self.scroll_rows(len(self._rows.lines))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll back."""
        event.stop()
        self.scroll_rows(-_WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll on."""
        event.stop()
        self.scroll_rows(_WHEEL_ROWS)

    def _go_to(self, row: int) -> None:
        row = max(0, min(row, self.max_scroll_y))
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def render_line(self, y: int) -> Strip:
        """Return one row for the terminal."""
        width = self.size.width
        row = self.scroll_offset.y + y
        if row >= len(self._rows.lines):
            return Strip.blank(width)
        strip = Strip(self._segments(self._rows.lines[row], row))
        return strip.adjust_cell_length(width)

    def _segments(self, line: Line, row: int) -> list[Segment]:
        segments = [Segment(self._shown(text), rich_style(style)) for text, style in line.runs()]
        if self.found:
            segments = _highlighted(segments, self.found)
        if self.shows_cursor and self._rows.cursor_visible and self._rows.cursor[0] == row:
            segments = _with_cursor(segments, self._rows.cursor[1])
        return segments

    def _shown(self, text: str) -> str:
        return text if self._look.unicode else text.encode("ascii", "replace").decode()

    def search(self, text: str, *, backwards: bool) -> bool:
        """Go to the next row that holds a text; from the last match, else from the end."""
        self.found = text
        self.refresh()
        if not text:
            return False
        rows = self.matches(text)
        if not rows:
            self.at_match = None
            return False
        here = len(self._rows.lines) if self.at_match is None else self.at_match
        before = [row for row in rows if row < here]
        after = [row for row in rows if row > here]
        self.at_match = (
            (before[-1] if before else rows[-1]) if backwards else (after[0] if after else rows[0])
        )
        self.follows = False
        self._go_to(self.at_match - self.size.height // 2)
        return True

    def matches(self, text: str) -> list[int]:
        """Return the rows that hold a text, whatever its case."""
        wanted = text.casefold()
        return [row for row, line in enumerate(self._rows.lines) if wanted in line.text.casefold()]


def _highlighted(segments: list[Segment], wanted: str) -> list[Segment]:
    """Mark every place of a text, which may begin in one segment and end in another."""
    whole = "".join(segment.text for segment in segments)
    lowered, marks, at = whole.casefold(), set[int](), 0
    if len(lowered) != len(whole):
        return segments
    while (at := lowered.find(wanted.casefold(), at)) >= 0:
        marks.update(range(at, at + len(wanted)))
        at += len(wanted)
    return _marked(segments, marks, _FOUND) if marks else segments


def _with_cursor(segments: list[Segment], column: int) -> list[Segment]:
    length = sum(len(segment.text) for segment in segments)
    if column >= length:
        segments = [*segments, Segment(" " * (column + 1 - length))]
    return _marked(segments, {column}, _CURSOR)


def _marked(segments: list[Segment], marks: set[int], style: RichStyle) -> list[Segment]:
    marked, at = [], 0
    for segment in segments:
        for character in segment.text:
            own = segment.style or RichStyle.null()
            marked.append(Segment(character, own + style if at in marks else own))
            at += 1
    return list(Segment.simplify(marked))


__all__ = ["PLAIN", "LogView", "rich_style"]
