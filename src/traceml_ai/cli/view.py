"""Show a run's card again: from its final_summary.json, its run folder, or its step log.

When the collector was killed and left no final summary, it is rebuilt from the step log,
and written to the run folder once the training process is gone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from traceml_ai.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml view``."""
    parser.add_argument("path", type=Path, help="a final_summary.json or a run folder")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Print the card, or the JSON, of a run to standard output."""
    from traceml_ai.cli.summaries import find_summary
    from traceml_ai.launch.tell import wants_color
    from traceml_ai.report.card import MAX_WIDTH, render_card
    from traceml_ai.schema.summary import encode

    if not args.path.exists():
        raise UsageError(f"there is no {args.path}: name a final_summary.json or a run folder")
    summary = find_summary(args.path)
    if args.json:
        sys.stdout.write(encode(summary).decode())
        return 0
    width = shutil.get_terminal_size((MAX_WIDTH, 0)).columns
    color = wants_color(os.environ, sys.stdout.fileno())
    card = render_card(summary, width=width, color=color)
    if not _can_show(card):
        card = render_card(summary, width=width, color=color, ascii_only=True)
    sys.stdout.write(card)
    sys.stdout.flush()
    return 0


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
