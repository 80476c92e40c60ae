"""The web server of the dashboard: on loopback only, its pages behind a random path."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.live.source import Source

_LOOPBACK = "127.0.0.1"
_LOOK_EVERY_MS = 500
_TOKEN_BYTES = 16
_NICER = 5


def need_libraries() -> None:
    """Make sure that the dashboard can be served, without loading anything.

    Raises:
        UsageError: bokeh is not installed.
    """
    if find_spec("bokeh") is None:
        raise UsageError('the dashboard needs bokeh: pip install "traceml-ai[dashboard]"')


def serve(
    folder: Path,
    *,
    port: int = 0,
    open_browser: bool = True,
    say: Callable[[str], None],
    until_closed: int | None = None,
) -> int:
    """Serve a run's page until interrupted.

    Args:
        folder: The run folder.
        port: Of the loopback address; 0: any that is free.
        open_browser: Open the page, where there is a screen.
        say: Tells the user where the page is.
        until_closed: A descriptor; the server ends with its other end.

    Returns:
        The exit code.

    Raises:
        TraceMLError: The port is taken.
    """
    need_libraries()
    source = Source(folder)
    if hasattr(os, "nice"):
        os.nice(_NICER)
    for name in [name for name in os.environ if name.startswith("BOKEH_")]:
        del os.environ[name]  # they would allow other origins, or ask a CDN for scripts
    dashboard = Dashboard(source, port)
    signal.signal(signal.SIGINT, dashboard.stop)
    signal.signal(signal.SIGTERM, dashboard.stop)
    for line in addresses(dashboard.url, dashboard.port):
        say(line)
    if open_browser and has_screen():
        threading.Thread(target=webbrowser.open, args=(dashboard.url,), daemon=True).start()
    if until_closed is not None:
        dashboard.end_with(until_closed)
    dashboard.run()
    return 0


class Dashboard:
    """A server for one run.

    Args:
        source: The run.
        port: Of the loopback address; 0: any that is free.

    Raises:
        TraceMLError: The port is taken.
    """

    def __init__(self, source: Source, port: int = 0) -> None:
        import logging

        from bokeh.application import Application
        from bokeh.application.handlers.function import FunctionHandler
        from bokeh.server.server import Server
        from tornado.ioloop import IOLoop, PeriodicCallback

        from traceml_ai.live.dashboard.template import dress
        from traceml_ai.live.dashboard.watcher import Watcher

        for name in ("bokeh", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # refused visitors are not the user's news
        self._watcher = Watcher(source)
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.port = free_port(port)
        self._loop = IOLoop.current()
        application = Application(FunctionHandler(lambda document: dress(document, self._watcher)))
        try:
            self._server = Server(
                {f"/{self.token}": application},
                io_loop=self._loop,
                address=_LOOPBACK,
                port=self.port,
                allow_websocket_origin=[f"{host}:{self.port}" for host in (_LOOPBACK, "localhost")],
                use_index=False,
                redirect_root=False,
                check_unused_sessions_milliseconds=5_000,
                unused_session_lifetime_milliseconds=15_000,
            )
        except OSError as error:
            raise TraceMLError(f"can't listen on {_LOOPBACK}:{self.port} ({error.strerror}): "
                               "choose another --dashboard-port") from None  # fmt: skip
        self._server.start()
        self._looks = PeriodicCallback(self._watcher.look, _LOOK_EVERY_MS)
        self._looks.start()

    @property
    def url(self) -> str:
        """The page's address, with its token."""
        return f"http://{_LOOPBACK}:{self.port}/{self.token}"

    def run(self) -> None:
        """Serve until stopped."""
        self._loop.start()
        self._looks.stop()
        self._server.stop()

    def stop(self, *_: int | FrameType | None) -> None:
        """Stop serving; callable as a signal handler."""
        self._loop.add_callback_from_signal(self._loop.stop)

    def end_with(self, descriptor: int) -> None:
        """Stop when the other end of a pipe is closed."""
        self._loop.add_handler(descriptor, lambda *_: self._loop.stop(), self._loop.READ)


def free_port(wanted: int) -> int:
    """Return a port that nobody listens on.

    Raises:
        TraceMLError: The wanted one is taken, or no port of ours to take.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, wanted))
        except OSError as error:
            raise TraceMLError(f"can't listen on {_LOOPBACK}:{wanted} ({error.strerror}): "
                               "choose another --dashboard-port") from None  # fmt: skip
        return int(probe.getsockname()[1])


def addresses(url: str, port: int) -> list[str]:
    """Return what the user needs to know to reach the page."""
    host = socket.gethostname()
    return [
        f"dashboard at {url}",
        f"from another machine: ssh -N -L {port}:{_LOOPBACK}:{port} {host}, then the same address there",
    ]


def has_screen() -> bool:
    """Whether a browser would open in front of the user."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
