"""When the collector works while a run may be looked at: its own ticks, and snapshots in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from traceml_ai.collect.collector import Collector
from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.live.feed import Feed, state_of
from traceml_ai.live.saved import Saver
from traceml_ai.spool.runfolder import Manifest


class Rounds:
    """The launcher's work beside the training, cut into turns.

    Args:
        collector: Ticks when it is due.
        manifest: What was started.
        notes: For errors.
        saved_to: The folder for the program's output, where it goes through the launcher; ``None``:
            it is not kept.
        clock: Seconds.
    """

    def __init__(
        self,
        collector: Collector,
        manifest: Manifest,
        notes: Notes,
        *,
        saved_to: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collector = collector
        self._manifest = manifest
        self._guard = Guard(notes)
        self._clock = clock
        spool = None if manifest.spool is None else Path(manifest.spool)
        self._feed = None if spool is None else Feed(spool)
        self._saver = None if spool is None or saved_to is None else Saver(spool, saved_to)
        self._tick_due = clock() + collector.pause_s()

    def pause_s(self) -> float:
        """Return how long until there is something to do, in seconds."""
        until_tick = max(0.0, self._tick_due - self._clock())
        until_look = self._feed.pause_s() if self._feed else None
        return until_tick if until_look is None else min(until_tick, until_look)

    def go(self) -> None:
        """Do what is due."""
        if self._clock() >= self._tick_due:
            self._collector.tick()
            self._tick_due = self._clock() + self._collector.pause_s()
            if self._saver is not None:
                self._guard("keeping the output", self._saver.copy)
        if self._feed is not None and self._feed.pause_s() == 0.0:
            self._collector.refresh()
            self._guard("the live view", self._publish, self._feed)

    def finish(self) -> None:
        """Keep what was printed last."""
        if self._saver is not None:
            self._guard("keeping the output", self._saver.copy)

    def _publish(self, feed: Feed) -> None:
        feed.publish(state_of(self._collector, self._manifest.name, self._manifest.start_ns))
