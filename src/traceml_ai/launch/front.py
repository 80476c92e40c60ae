"""Whether the training runs behind a view, and starting it that way or the plain way."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from traceml_ai.launch.child import Child
from traceml_ai.spool.recording import Recording

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
    if sys.platform == "win32" or not _wants_terminal(mode, environ):
        return None
    if not all(os.isatty(descriptor) for descriptor in (0, 1, 2)):
        return None
    from traceml_ai.launch.hosted import Terminal

    return Terminal.of_streams()


def _wants_terminal(mode: str, environ: Mapping[str, str]) -> bool:
    """Whether there may be a view: a dumb terminal, a notebook and a build server can't show one."""
    if mode == "dashboard":  # it shows the output as well; the terminal needs no control codes for that
        return True
    if mode not in {"auto", "cli"} or environ.get("TERM", "dumb") == "dumb":
        return False
    return mode == "cli" or not any(environ.get(name) for name in ("CI", "JPY_PARENT_PID"))


def start(
    command: Sequence[str],
    environ: Mapping[str, str],
    wake: int,
    recording: Recording,
    terminal: Terminal | None,
    *,
    with_view: bool = True,
) -> Program:
    """Start the command, on a terminal of its own where its output is to be shown elsewhere as well.

    Args:
        command: The words of the command.
        environ: Its environment.
        wake: A descriptor that ends a wait.
        recording: Where the run is recorded.
        terminal: The user's terminal; ``None``: the command has its streams to itself.
        with_view: Open the live view on that terminal.

    Raises:
        OSError: The command can't be started.
    """
    if terminal is None or recording.spool is None:
        return Child(command, environ, wake=wake)
    from traceml_ai.launch.hosted import HostedChild

    view = [sys.executable, "-m", "traceml_ai", "attach", str(recording.folder)] if with_view else None
    return HostedChild(
        command, environ, wake=wake, spool=recording.spool, terminal=terminal, view_command=view
    )
