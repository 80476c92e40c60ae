"""The dashboard's server beside a run: a process of its own that outlives the training if it may."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

from traceml_ai.launch.say import STDERR, say
from traceml_ai.schema import env

_CLOSING_S = 5.0
_LOOK_S = 1.0


class Page:
    """Starts and ends the server.

    Args:
        folder: The run folder.
        port: Of the loopback address; 0: any that is free.
        open_browser: Open the page in a browser, where there is a screen.
    """

    def __init__(self, folder: Path, *, port: int, open_browser: bool) -> None:
        # The server ends when nobody holds the other end any more: it does not outlive the launcher.
        ours, self._open = os.pipe()
        command = [sys.executable, "-m", "traceml_ai", "attach", "--dashboard", f"--dashboard-port={port}"]
        command += [] if open_browser else ["--no-dashboard-auto-open"]
        self._server = subprocess.Popen(
            [*command, str(folder)],
            env={**os.environ, env.VIEW_CHANNEL: str(ours)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[ours],
            start_new_session=True,  # Ctrl-C is for the training
        )
        os.close(ours)

    def stay(self, wake: int) -> None:
        """Keep the finished run readable until somebody says stop, if there is anybody to say it.

        Args:
            wake: A descriptor that becomes readable when a signal came.
        """
        if self._server.poll() is None and os.isatty(0) and os.isatty(STDERR):
            say("the dashboard stays open: Ctrl-C stops it")
            with contextlib.suppress(OSError):
                os.read(wake, 4096)  # what came while the training ran
            while self._server.poll() is None and not select.select([wake], [], [], _LOOK_S)[0]:
                pass
        self.close()

    def close(self) -> None:
        """End the server."""
        os.close(self._open)
        try:
            self._server.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
