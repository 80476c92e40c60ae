"""Open the live view of a run that is going on, or of one that is over.

Works from another shell on the same machine, as after a dropped connection. It only watches: closing
it, Ctrl-C included, does not touch the run. With --dashboard the view is a page for the browser.
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


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Open the view; return when it was closed."""
    if not args.path.is_dir():
        raise UsageError(f"there is no run folder {args.path}: name one, as logs/<run-name>")
    channel = os.environ.pop(VIEW_CHANNEL, None)
    if channel is not None:
        from traceml_ai.live.terminal.main import serve

        return serve(args.path, int(channel))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise TraceMLError(f"the view needs a terminal: use traceml view {args.path} for the card")
    from traceml_ai.live.terminal.main import watch

    return watch(args.path)
