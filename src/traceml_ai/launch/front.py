"""Whether the training runs behind a view, and starting it that way or the plain way."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from traceml_ai.launch.child import Child
from traceml_ai.launch.recording import Recording

if TYPE_CHECKING:
    from traceml_ai.launch.hosted import Terminal


class Program(Protocol):
    """A started program as the launcher deals with it; see `Child`."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def send(self, number: int) -> None:
        """Send it a signal."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end."""

    def start_view(self) -> None:
        """Open the view in front of it, if it was started behind one."""

    def close_view(self) -> None:
        """Close that view."""


def terminal_for_view(mode: str, environ: Mapping[str, str]) -> Terminal | None:
    """Return the terminal that a view can have; ``None``: there will be none.

    Args:
        mode: ``auto``, ``cli``, ``dashboard`` or ``summary``.
        environ: ``TERM`` tells what the terminal can do.
    """
    if mode != "cli" or sys.platform == "win32" or environ.get("TERM", "dumb") == "dumb":
        return None
    if not all(os.isatty(descriptor) for descriptor in (0, 1, 2)):
        return None
    from traceml_ai.launch.hosted import Terminal

    return Terminal.of_streams()


def start(
    command: Sequence[str],
    environ: Mapping[str, str],
    wake: int,
    recording: Recording,
    terminal: Terminal | None,
) -> Program:
    """Start the command, behind a view where there is a terminal for one.

    Raises:
        OSError: The command can't be started.
    """
    if terminal is None or recording.spool is None:
        return Child(command, environ, wake=wake)
    from traceml_ai.launch.hosted import HostedChild

    view = [sys.executable, "-m", "traceml_ai", "attach", str(recording.folder)]
    return HostedChild(
        command, environ, wake=wake, spool=recording.spool, terminal=terminal, view_command=view
    )
