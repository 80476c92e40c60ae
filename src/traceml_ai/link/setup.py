"""The link of this launcher: the owner's end or a node's."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from traceml_ai.collect.collector import Collector
from traceml_ai.collect.notes import Notes
from traceml_ai.errors import TraceMLError
from traceml_ai.link.keys import derive
from traceml_ai.link.place import Where

PATIENCE_S = 15.0
"""For the other nodes' ends after the owner's own, and for an owner that can't be reached."""

HURRIED_S = 5.0
"""The same when somebody stopped the run: a batch system kills what has not ended half a minute later."""


class Link:
    """This launcher's end.

    Args:
        where: This node's place.
        collector: Gets what other nodes send, or is asked for what to send.
        spool: Where this node's training processes write.
        notes: For what goes wrong.

    Raises:
        UsageError: The address can't be listened on.
    """

    def __init__(self, where: Where, collector: Collector, spool: Path, notes: Notes) -> None:
        from traceml_ai.link.incoming import Incoming
        from traceml_ai.link.outgoing import Outgoing
        from traceml_ai.link.sockets import RANKS_A_SECOND, SEND_EVERY_S, NodeEnd, OwnerEnd

        self.where = where
        self._collector = collector
        self._notes = notes
        keys, session = derive(where.secret), secrets.randbits(62)
        self._owner: OwnerEnd | None = None
        self._node: NodeEnd | None = None
        if where.node == 0:
            clock_ns = time.time_ns() - time.perf_counter_ns()
            self._incoming = Incoming(
                where.nodes, where.ranks_per_node, session, clock_ns, notes, now_s=time.monotonic
            )
            self._owner = OwnerEnd(where.address, keys, self._incoming)
            collector.elsewhere = self._incoming
        else:
            self._outgoing = Outgoing(spool, where.node, os.uname().nodename, session)
            every_s = max(SEND_EVERY_S, where.nodes * where.ranks_per_node / RANKS_A_SECOND)
            self._node = NodeEnd(where.address, keys, self._outgoing, every_s=every_s)

    @property
    def is_owner(self) -> bool:
        """Whether the run's summary is made here."""
        return self._owner is not None

    @property
    def is_complete(self) -> bool:
        """Whether the owner has all that the other nodes had to say."""
        return self._owner is not None and self._incoming.is_complete

    def turn(self) -> None:
        """Send or take what there is."""
        if self._owner is not None:
            self._owner.turn()
        elif self._node is not None:
            self._tell()
            self._node.turn()
            if self._node.wants_pulse:
                self._collector.refresh()
                self._node.send_pulse(self._outgoing.pulse(self._collector.ranks()))

    def finish(
        self,
        exit_code: int | None,
        stop: Callable[[], bool] = lambda: False,
        *,
        patience_s: float = PATIENCE_S,
    ) -> bool:
        """Wait for what is still to come or to be sent, and hang up.

        Args:
            exit_code: What this node's program ended with.
            stop: Whether somebody wants an end of it.
            patience_s: How long to wait at most.

        Returns:
            Whether all of it was.
        """
        try:
            if self._node is not None:
                self._tell()
                return self._node.finish(exit_code, patience_s)
            return self._wait_for_nodes(stop, patience_s)
        finally:
            self.close()

    def close(self) -> None:
        """Hang up."""
        for end in (self._owner, self._node):
            if end is not None:
                end.close()

    def _wait_for_nodes(self, stop: Callable[[], bool], patience_s: float) -> bool:
        assert self._owner is not None
        until = time.monotonic() + patience_s
        while time.monotonic() < until and not self._incoming.is_complete and not stop():
            self._owner.turn()
            self._owner.wait(0.1)
        until = time.monotonic() + 0.3  # the last answers have to be on their way before we hang up
        while time.monotonic() < until:
            self._owner.turn()
            self._owner.wait(0.1)
        return self._incoming.is_complete

    def _tell(self) -> None:
        self._outgoing.add(self._collector.newest_samples(), self._collector.deaths(), self._notes.messages())


def open_link(where: Where | None, collector: Collector, spool: Path | None, notes: Notes) -> Link | None:
    """Open a launcher's end of the link; an address that can't be had is a remark, the run goes on."""
    if where is None or spool is None:
        return None
    try:
        return Link(where, collector, spool, notes)
    except TraceMLError as error:
        notes.add("link", f"no link between the nodes: {error}", aloud=True)
        return None
