"""The terminal view as a textual application."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from traceml_ai.live import wire
from traceml_ai.live.screen import Screen
from traceml_ai.live.snapshot import Snapshot
from traceml_ai.live.source import Reader, Source
from traceml_ai.live.terminal import pages, panels
from traceml_ai.live.terminal.keys import to_bytes
from traceml_ai.live.terminal.log_view import LogView
from traceml_ai.live.terminal.look import Look
from traceml_ai.live.wire import Channel
from traceml_ai.report.text import fit

REFRESH_S = 0.5
OUTPUT_S = 0.1
_ECHO_S = 0.02
_MOST_AT_ONCE = 256 << 10
"""More output than this between two looks is shown from its end: nobody reads that fast."""

_TO_VIEW = frozenset({"ctrl+right_square_bracket", "f2"})
_OVERVIEW_LOG_ROWS = 4
_BARS = 3  # head, tabs and keys


class LiveView(App[None]):
    """Draws a run.

    Args:
        source: The run.
        look: What the terminal can show.
        channel: To whoever keeps the program's terminal; ``None``: the view only watches.
        reader: The program's output; found by itself when not given.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #head { height: 1; text-style: bold; }
    #tabs { height: 1; }
    #page { height: auto; }
    #rule { height: 1; }
    #log { height: 1fr; }
    #keys { height: 1; dock: bottom; }
    #search { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    #help { display: none; layer: above; height: auto; width: 100%; padding: 1 2; background: ansi_default;
            color: ansi_default; }
    Screen { layers: base above; }
    .hidden { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at + 1), f"tab('{name}')", name) for at, name in enumerate(pages.TABS)),
        Binding("tab", "next_tab(1)", "next tab", priority=True),
        Binding("shift+tab", "next_tab(-1)", "previous tab", priority=True),
        Binding("p,space", "pause", "pause"),
        Binding("c", "copy", "copy the card"),
        Binding("q", "close", "close"),
        Binding("question_mark,f1,h", "help", "help"),
        Binding("slash", "search", "search"),
        Binding("n", "again(False)", "next match"),
        Binding("N", "again(True)", "previous match"),
        Binding("i,enter", "type", "type to the program"),
        Binding("escape", "leave", "back"),
    ]

    def __init__(
        self,
        source: Source,
        *,
        look: Look | None = None,
        channel: Channel | None = None,
        reader: Reader | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self._source = source
        self._look = look or Look.of_process()
        self._channel = channel
        self._reader = reader
        self._why_not = ""
        self._snapshot: Snapshot | None = None
        self._rows = Screen(answer=self._answer)
        self._lost = 0
        self._tab = "overview"
        self._paused = False
        self._asking = False
        self._typing = False
        self._remark = ""
        self._wanted = ""

    # -- parts ---------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Lay out the view."""
        yield Static(id="head")
        yield Static(id="tabs")
        yield Static(id="page")
        yield Static(id="rule")
        yield LogView(self._rows, self._look, id="log")
        yield Static(id="keys")
        search = Input(id="search", placeholder="search the output", compact=True)
        search.add_class("hidden")
        yield search
        yield Vertical(Static(pages.HELP if self._channel else pages.HELP_ATTACHED), id="help")

    def on_mount(self) -> None:
        """Begin to look."""
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel.fileno(), self._hear)
        self.log_view.focus()
        self._look_again()
        self._read_output()
        self.set_interval(REFRESH_S, self._look_again)
        self.set_interval(OUTPUT_S, self._read_output)

    @property
    def log_view(self) -> LogView:
        """The pane with the output."""
        return self.query_one("#log", LogView)

    def _part(self, name: str) -> Static:
        return self.query_one(f"#{name}", Static)

    # -- drawing -------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        if self._paused:
            return
        snapshot = self._source.snapshot()
        if snapshot is not None and snapshot is self._snapshot and not self._source.is_stale(snapshot):
            return
        self._snapshot = snapshot
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        self._part("head").update(self._fit(self._head(), width))
        self._part("tabs").update(self._fit(self._tabs(), width))
        self._part("page").update(Text("\n").join(self._page(width, height)))
        self._part("rule").update(self._fit(Text(self._rule(width), "dim"), width))
        self._part("keys").update(self._fit(self._keys(), width))

    @staticmethod
    def _fit(text: Text, width: int) -> Text:
        text.truncate(width)
        return text

    def _head(self) -> Text:
        stale = self._snapshot is not None and self._source.is_stale(self._snapshot)
        remark = "the collector is gone: these figures are old" if stale else ""
        return panels.head(
            self._snapshot,
            self._look,
            name=self._source.manifest.name,
            remark="paused" if self._paused else remark,
        )

    def _tabs(self) -> Text:
        text = Text()
        for at, name in enumerate(pages.TABS):
            text.append(f" {at + 1} {name} ", "reverse" if name == self._tab else "dim")
        return text

    def _page(self, width: int, height: int) -> list[Text]:
        room = height - _BARS - 1
        if self._tab == "overview":
            lines = pages.overview(self._snapshot, width, max(3, room - _OVERVIEW_LOG_ROWS), self._look)
        elif self._tab == "log":
            return []
        else:
            lines = pages.PAGES[self._tab](self._snapshot, width, room, self._look)
        return [self._fit(line, width) for line in lines]

    def _rule(self, width: int) -> str:
        if self._remark:
            said = f" {self._remark} "
        elif self._why_not:
            said = f" output: {self._why_not} "
        elif self._lost:
            said = f" output ({self._lost:,} bytes came too fast to be shown) "
        elif not self.log_view.follows:
            said = " output, scrolled up (End: newest) "
        else:
            said = " output "
        rule = self._look.rule
        return fit(rule * 2 + said + rule * max(0, width - len(said) - 2), width)

    def _keys(self) -> Text:
        if self._typing:
            return Text(" what you type goes to the program    Ctrl-] or F2: back to the view ", "reverse")
        keys = ["? help", "1-5 tabs", "p pause", "c copy card", "/ search"]
        if self._channel is not None:
            keys += ["i type", "q close view", "^C interrupt"]
        else:
            keys.append("q close")
        return Text("  ".join(keys), "dim")

    # -- output --------------------------------------------------------------------------------------

    def _read_output(self) -> None:
        if self._paused:
            return
        if self._reader is None:
            self._find_output()
        if self._reader is None:
            return
        self._reader.skip_to_last(_MOST_AT_ONCE)
        fed = False
        while data := self._reader.read(_MOST_AT_ONCE):
            self._rows.feed(data)
            fed = True
        if self._reader.lost != self._lost:
            self._lost = self._reader.lost
        if fed:
            self.log_view.refresh_rows()

    def _find_output(self) -> None:
        found = self._source.output()
        self._reader = found.reader
        if self._why_not != found.why_not:
            self._why_not = found.why_not
            self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Fit everything to the terminal, the program's own terminal too."""
        width, height = event.size
        rows = max(2, height - _BARS)
        self._rows.resize(width, rows)
        if self._channel is not None:
            self._channel.send(wire.SIZE, struct.pack("!HH", rows, width))
        self._draw()
        self.call_after_refresh(self.log_view.refresh_rows)

    # -- the program ---------------------------------------------------------------------------------

    def _hear(self) -> None:
        assert self._channel is not None
        for message in self._channel.receive():
            if message.kind == wire.CLOSE:
                self.exit()
            elif message.kind == wire.ASKING:
                self._program_asks(asks=message.body == b"1")
        if self._channel.closed:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self.exit()

    def _program_asks(self, *, asks: bool) -> None:
        self._asking = asks
        if asks != self._typing:
            self._set_typing(typing=asks)

    def _set_typing(self, *, typing: bool) -> None:
        self._typing = typing and self._channel is not None
        self.log_view.shows_cursor = self._typing
        if self._typing:
            self.query_one("#search").add_class("hidden")
            self.log_view.action_scroll_end()
        self.log_view.refresh()
        self._draw()

    def _answer(self, data: bytes) -> None:
        if self._channel is not None:
            self._channel.send(wire.TYPED, data)

    def _type(self, data: bytes) -> None:
        if self._channel is not None and data:
            self._channel.send(wire.TYPED, data)
            self.set_timer(_ECHO_S, self._read_output)

    async def on_event(self, event: events.Event) -> None:
        """Hand keys to the program while it is typed to; Ctrl-C always."""
        if isinstance(event, events.Key) and self._take_key(event):
            return
        if isinstance(event, events.Paste) and self._typing:
            self._type(event.text.encode())
            return
        await super().on_event(event)

    def _take_key(self, event: events.Key) -> bool:
        if event.key in _TO_VIEW:
            self._set_typing(typing=False)
        elif self._typing or (event.key in {"ctrl+c", "ctrl+backslash"} and self._channel is not None):
            self._type(to_bytes(event.key, event.character))
        elif event.key in {"ctrl+c", "ctrl+q"}:
            self.exit()
        elif event.key == "ctrl+z" and self._channel is not None:
            self._type(b"\x1a")
            self.exit()
        else:
            return False
        return True

    # -- keys ----------------------------------------------------------------------------------------

    def action_tab(self, name: str) -> None:
        """Show a tab."""
        self._tab = name
        self.log_view.set_class(name not in {"overview", "log"}, "hidden")
        self._part("rule").set_class(name not in {"overview", "log"}, "hidden")
        self._part("page").set_class(name == "log", "hidden")
        self._draw()
        self.call_after_refresh(self.log_view.refresh_rows)

    def action_next_tab(self, by: int) -> None:
        """Show the next tab, or the one before."""
        self.action_tab(pages.TABS[(pages.TABS.index(self._tab) + by) % len(pages.TABS)])

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._paused = not self._paused
        if not self._paused:
            self._read_output()
            self._look_again()
        self._draw()

    def action_copy(self) -> None:
        """Copy the card to the clipboard."""
        from traceml_ai.report.card import render_card

        if self._snapshot is None or self._snapshot.summary is None:
            self._say("there is no card yet")
            return
        self.copy_to_clipboard(render_card(self._snapshot.summary, ascii_only=not self._look.unicode))
        self._say("the card was sent to the clipboard")

    def action_close(self) -> None:
        """Close the view; the training goes on."""
        self.exit()

    def action_help(self) -> None:
        """Show or hide the help."""
        box = self.query_one("#help")
        box.styles.display = "none" if box.display else "block"

    def action_leave(self) -> None:
        """Leave the help, the search, and what was searched for."""
        self.query_one("#help").styles.display = "none"
        self.query_one("#search").add_class("hidden")
        self.log_view.found, self.log_view.at_match = "", None
        self.log_view.focus()
        self.log_view.refresh()

    def action_type(self) -> None:
        """Type to the program."""
        if self._channel is not None:
            if self._tab not in {"overview", "log"}:
                self.action_tab("log")
            self._set_typing(typing=True)

    def action_search(self) -> None:
        """Ask what to search for."""
        if self._tab not in {"overview", "log"}:
            self.action_tab("log")
        box = self.query_one("#search", Input)
        box.remove_class("hidden")
        box.value = self._wanted
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search."""
        self._wanted = event.value
        event.input.add_class("hidden")
        self.log_view.focus()
        self.log_view.at_match = None
        self.action_again(backwards=True)

    def action_again(self, backwards: bool) -> None:
        """Go to the next match, or the one before."""
        if not self._wanted:
            return
        found = self.log_view.search(self._wanted, backwards=backwards)
        count = len(self.log_view.matches(self._wanted)) if found else 0
        self._say(f"{count:,} lines with {self._wanted!r}" if found else f"no {self._wanted!r} in the output")

    def on_log_view_scrolled(self) -> None:
        """Say whether the end of the output is in sight."""
        self.call_after_refresh(self._draw)

    def _say(self, remark: str) -> None:
        self._remark = remark
        self._draw()
        self.set_timer(3.0, self._forget_remark)

    def _forget_remark(self) -> None:
        self._remark = ""
        with contextlib.suppress(Exception):  # the view may be closing
            self._draw()
