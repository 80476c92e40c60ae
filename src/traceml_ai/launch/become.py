"""Handing this process over to the user's command: nothing of TraceML stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from traceml_ai.launch.say import say

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126


def become(command: Sequence[str]) -> int:
    """Replace this process by a command.

    Returns:
        An exit code, when the command can't be started or the system can't replace processes.
    """
    try:
        if sys.platform == "win32":  # its exec starts a second process and lets the caller go on
            return subprocess.call(list(command))
        _restore_signals()
        os.execvp(command[0], list(command))  # noqa: S606
    except OSError as error:
        return not_started(command[0], error)


def not_started(program: str, error: OSError) -> int:
    """Say why a command can't be started, and return what a shell would exit with."""
    if isinstance(error, FileNotFoundError):
        say(f"{program}: command not found")
        return _NOT_FOUND
    say(f"{program}: {error.strerror or error}")
    return _NOT_EXECUTABLE


def _restore_signals() -> None:
    """Undo what Python's own start changed; handlers reset themselves, ignored signals do not."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
