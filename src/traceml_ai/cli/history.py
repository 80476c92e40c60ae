"""Show a script's step time over its runs, and where it changed and stayed so.

  traceml history train.py
  traceml history train --logs-dir logs --last 50 --json

Runs on another host or with other settings (world size, batch size, accumulation, device,
precision, threads) are a series of their own: their step times do not mean the same.
"""

from __future__ import annotations

import argparse
import sys

from traceml_ai.cli.runs import add_filters, wanted
from traceml_ai.errors import TraceMLError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml history``."""
    parser.add_argument("script", metavar="SCRIPT", help="train.py, train, or a pattern like 'tr*'")
    add_filters(parser)


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Print the history to standard output."""
    from traceml_ai.cli.lookup import write_text
    from traceml_ai.compare.wording import as_text
    from traceml_ai.index.cache import read_runs
    from traceml_ai.index.listing import series
    from traceml_ai.report.runs_text import render_history
    from traceml_ai.schema.history import History, encode

    rows = read_runs(args.logs_dir)
    found = History(
        logs_dir=as_text(args.logs_dir),
        script=as_text(args.script),
        series=series(rows, wanted(args, args.script)),
    )
    if not found.series:
        known = sorted({row.script for row in rows if row.script})[:5]
        named = f"there are runs of {', '.join(known)}" if known else "traceml runs lists what is there"
        raise TraceMLError(f"no run of {args.script} with a step time in {args.logs_dir}: {named}")
    if args.json:
        sys.stdout.write(encode(found).decode())
    else:
        write_text(lambda ascii_only: render_history(found, ascii_only=ascii_only))
    return 0
