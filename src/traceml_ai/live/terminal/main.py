"""Starting the terminal view: as part of ``traceml run``, or by itself."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from pathlib import Path

from traceml_ai.live import wire
from traceml_ai.live.output import OutputReader
from traceml_ai.live.source import Source
from traceml_ai.live.wire import Channel

_NICER = 5


def watch(folder: Path) -> int:
    """Show a run until the view is closed."""
    from traceml_ai.live.terminal.app import LiveView

    LiveView(Source(folder)).run()
    return 0


def serve(folder: Path, descriptor: int) -> int:
    """Be the view of ``traceml run``: come when called, leave when sent away.

    Args:
        folder: The run folder.
        descriptor: The socket to the process that keeps the program's terminal.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # typed, it is a key; sent, it is for the program
    with contextlib.suppress(OSError):
        os.nice(_NICER)
    from traceml_ai.live.terminal.app import LiveView

    channel = Channel(socket.socket(fileno=descriptor))
    if not _wait_for_turn(channel):
        return 0
    source = Source(folder)
    reader = None if source.spool is None else OutputReader(source.spool)
    LiveView(source, channel=channel, reader=reader).run()
    channel.send(wire.LEAVE)
    return 0


def _wait_for_turn(channel: Channel) -> bool:
    """Wait until the terminal is free for the view; False: the program ended first."""
    channel.send(wire.HELLO)
    while not channel.closed:
        select.select([channel.fileno()], [], [])
        for message in channel.receive():
            if message.kind == wire.OPEN:
                return True
            if message.kind == wire.CLOSE:
                return False
    return False
