"""List the runs of a log folder: when, script, verdict, step time, change from the last one.

The change is that from the last run of the same script on the same host with the same
settings (world size, batch size, accumulation, device, precision, threads).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceml_ai.index.listing import Filter


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml runs``."""
    parser.add_argument("--script", help="only runs of this script: train.py, train, or a pattern like 'tr*'")
    add_filters(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add what ``runs`` and ``history`` share."""
    parser.add_argument(
        "--logs-dir", type=Path, default=Path("logs"), metavar="DIR", help="the log folder (logs)"
    )
    parser.add_argument("--status", help="only runs that ended so: completed, failed, interrupted, ...")
    parser.add_argument(
        "--verdict", metavar="KIND", type=str.upper, help="only runs with this primary finding"
    )
    parser.add_argument(
        "--since", metavar="DATE", help="only runs started at this date and time (UTC) or later"
    )
    parser.add_argument("--last", type=count, metavar="N", help="only the last N")
    parser.add_argument("--json", action="store_true", help="as JSON")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Print the list to standard output."""
    from traceml_ai.cli.lookup import write_text
    from traceml_ai.index.cache import read_runs
    from traceml_ai.index.listing import listed
    from traceml_ai.report.runs_text import render_runs
    from traceml_ai.schema.history import RunList, encode

    rows = read_runs(args.logs_dir)
    found = RunList(logs_dir=str(args.logs_dir), runs=listed(rows, wanted(args, args.script)))
    if args.json:
        sys.stdout.write(encode(found).decode())
    else:
        write_text(lambda ascii_only: render_runs(found, ascii_only=ascii_only))
    return 0


def wanted(args: argparse.Namespace, script: str | None) -> Filter:
    """Return the filter of the words."""
    from traceml_ai.index.listing import Filter

    return Filter(script, args.status, args.verdict, args.since, args.last)


def count(text: str) -> int:
    """Read a number of runs."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of runs above 0")
    return value


count.__name__ = "whole number"  # argparse names the type in its errors
