"""Open the live view of a run that is going on, or of one that is over.

Works from another shell on the same machine, as after a dropped connection. It only watches: closing
it, Ctrl-C included, does not touch the run. With --dashboard the view is a page for the browser, and
Ctrl-C stops its server.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.schema.env import VIEW_CHANNEL


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml attach``."""
    parser.add_argument("path", type=Path, metavar="RUN", help="the run folder, as logs/<run-name>")
    parser.add_argument("--dashboard", action="store_true", help="serve a page for the browser instead")
    add_dashboard_options(parser)


def add_dashboard_options(parser: argparse.ArgumentParser) -> None:
    """Add what `traceml run` and `traceml attach` say alike about the dashboard."""
    parser.add_argument("--dashboard-port", type=_port, metavar="PORT", default=0,
                        help="port of the dashboard on the loopback address (any that is free)")  # fmt: skip
    parser.add_argument("--no-dashboard-auto-open", action="store_true", help="don't open the browser")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Open the view; return when it was closed."""
    if not args.path.is_dir():
        raise UsageError(f"there is no run folder {args.path}: name one, as logs/<run-name>")
    if args.dashboard:
        return _dashboard(args)
    channel = os.environ.pop(VIEW_CHANNEL, None)
    if channel is not None:
        from traceml_ai.live.terminal.main import serve

        return serve(args.path, int(channel))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise TraceMLError(f"the view needs a terminal: use traceml view {args.path} for the card")
    from traceml_ai.live.terminal.main import watch

    return watch(args.path)


def _dashboard(args: argparse.Namespace) -> int:
    from traceml_ai.launch.say import say
    from traceml_ai.live.dashboard.server import serve

    # Started by traceml run, it ends with that one.
    closing = os.environ.pop(VIEW_CHANNEL, None)
    return serve(
        args.path,
        port=args.dashboard_port,
        open_browser=not args.no_dashboard_auto_open,
        say=say,
        until_closed=None if closing is None else int(closing),
    )


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is no port: 1 to 65535, 0 for any")
    return value


_port.__name__ = "port"  # argparse names the type in its errors
