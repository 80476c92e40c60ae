"""The processes that came to a collector by themselves: who is there, and whether the run is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from traceml_ai.spool.meeting import Joined, forget_joined, read_joined
from traceml_ai.spool.runfolder import is_alive

PATIENCE_S = 10.0
"""For ranks that are still to come when those that came are gone already."""


class Party:
    """Who joined a run.

    Args:
        spool: Where they leave word.
        expected: How many ranks are waited for.
        clock: Seconds.
    """

    def __init__(self, spool: Path, expected: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spool = spool
        self._expected = expected
        self._clock = clock
        self._alone_since: float | None = None
        self.joined: dict[int, Joined] = {}
        self.start_ns: int | None = None
        self.parents: set[int] = set()

    def look(self) -> None:
        """See who has come."""
        for joined in read_joined(self._spool):
            if joined.pid not in self.joined:
                self.joined[joined.pid] = joined
                self.parents.add(joined.parent)
                began = time.perf_counter_ns() - round((joined.age_s or 0.0) * 1e9)
                self.start_ns = began if self.start_ns is None else min(began, self.start_ns)

    def is_alive(self) -> bool:
        """Whether any of them lives."""
        return any(is_alive(joined.pid, joined.birth) for joined in self.joined.values())

    def is_complete(self, training: Iterable[int]) -> bool:
        """Whether as many processes as were waited for train or have trained."""
        return len(set(training)) >= self._expected

    def is_over(self, training: list[int]) -> bool:
        """Whether nobody is there any more, nor likely to come.

        Args:
            training: The processes that have recorded steps.
        """
        if self.is_alive() or self._may_be_restarted():
            self._alone_since = None
            return False
        if self.is_complete(training) or not training:
            return True
        now = self._clock()
        self._alone_since = now if self._alone_since is None else self._alone_since
        return now - self._alone_since >= PATIENCE_S

    def forget(self) -> None:
        """Forget those that came and went without a step: the script failed, and will be started again."""
        for pid in self.joined:
            forget_joined(self._spool, pid)
        self.joined.clear()
        self.parents.clear()
        self.start_ns = self._alone_since = None

    def _may_be_restarted(self) -> bool:
        """Whether an elastic launcher that started them still runs."""
        launchers = {joined.parent for joined in self.joined.values() if joined.elastic}
        return any(Path(f"/proc/{pid}").exists() for pid in launchers)
