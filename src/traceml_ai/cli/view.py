"""Show a run's card again: from its final_summary.json, its run folder, or its step log.

  traceml view logs/base            the card (base, under --logs-dir, does too)
  traceml view logs/base --html     a page with charts, which opens from disk

When the collector was killed and left no final summary, it is rebuilt from the step log,
and written to the run folder once the training process is gone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from traceml_ai.errors import TraceMLError, UsageError

if TYPE_CHECKING:
    from traceml_ai.schema.summary import Summary


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml view``."""
    parser.add_argument("run", metavar="RUN", help="a final_summary.json, a run folder, or a run name under "
                        "--logs-dir")  # fmt: skip
    parser.add_argument("--logs-dir", type=Path, default="logs", metavar="DIR", help="where run names are "
                        "looked up (logs)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    parser.add_argument("--html", action="store_true", help="write the report, report.html in the run folder")
    parser.add_argument("--output", type=Path, metavar="FILE", help="with --html: write it there instead")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    args = parser.parse_args(words)
    if args.output and not args.html:
        raise UsageError("--output is where --html writes to: give both")
    return args


def run(args: argparse.Namespace) -> int:
    """Print the card, or the JSON, of a run to standard output."""
    from traceml_ai.cli.lookup import find_run
    from traceml_ai.cli.summaries import find_summary
    from traceml_ai.launch.tell import wants_color
    from traceml_ai.report.card import MAX_WIDTH, render_card
    from traceml_ai.schema.summary import encode

    path = find_run(args.run, args.logs_dir)
    summary = find_summary(path)
    if args.html:
        return _write_html(summary, args.output or _beside(path))
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


def _write_html(summary: Summary, path: Path) -> int:
    from traceml_ai.compare.wording import as_text
    from traceml_ai.report.html import render_html
    from traceml_ai.spool.atomic import write_atomic

    page = render_html(summary).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page)
    except OSError as error:
        raise TraceMLError(f"can't write {path} ({error.strerror}): name another with --output") from None
    print(as_text(path))
    return 0


def _beside(path: Path) -> Path:
    """Return where the report of a run folder or of a summary file goes."""
    from traceml_ai.report.html import HTML_FILE
    from traceml_ai.spool.runfolder import SUMMARY_FILE

    if path.is_dir():
        return path / HTML_FILE
    return path.with_name(HTML_FILE) if path.name == SUMMARY_FILE else path.with_suffix(".html")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
