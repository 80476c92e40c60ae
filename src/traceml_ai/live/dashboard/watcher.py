"""Looks at the run once for all browsers."""

from __future__ import annotations

from typing import NamedTuple

from traceml_ai.live.dashboard import texts
from traceml_ai.live.screen import Screen
from traceml_ai.live.snapshot import Snapshot
from traceml_ai.live.source import Reader, Source

_OUTPUT_COLUMNS = 200
_OUTPUT_LINES = 200
_MOST_AT_ONCE = 256 << 10


class Seen(NamedTuple):
    """What was seen at one look."""

    snapshot: Snapshot | None
    output: str  # as HTML
    remark: str = ""


class Watcher:
    """Follows one run.

    Args:
        source: The run.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.manifest.name
        self._screen = Screen(_OUTPUT_COLUMNS, 50, max_lines=_OUTPUT_LINES)
        self._reader: Reader | None = None
        self._shown_output = ""
        self.seen = Seen(None, "")
        self.look()

    def look(self) -> None:
        """Take a look; `seen` is another object afterwards if anything changed."""
        snapshot = self._source.snapshot()
        remark = ""
        if snapshot is not None and self._source.is_stale(snapshot):
            remark = "the collector is gone: these figures are old"
        seen = Seen(snapshot, self._output(), remark)
        if seen.snapshot is not self.seen.snapshot or seen[1:] != self.seen[1:]:
            self.seen = seen

    def _output(self) -> str:
        if self._reader is None:
            found = self._source.output()
            self._reader = found.reader
            if self._reader is None:
                return f"<p class='soft'>{found.why_not}</p>"
        self._reader.skip_to_last(_MOST_AT_ONCE)
        changed = False
        while data := self._reader.read(_MOST_AT_ONCE):
            self._screen.feed(data)
            changed = True
        if changed or not self._shown_output:
            self._shown_output = texts.output(list(self._screen.lines))
        return self._shown_output
