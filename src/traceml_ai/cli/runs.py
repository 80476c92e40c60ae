"""List the runs of a log folder: when, script, verdict, step time, change from the last one.

The change is that from the last run of the same script on the same host with the same
settings (world size, batch size, accumulation, device, precision, threads).
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceml_ai.index.listing import Filter

STATUSES = ("running", "completed", "failed", "interrupted", "terminated", "killed", "unknown")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml runs``."""
    parser.add_argument("--script", help="only runs of this script: train.py, train, or a pattern like 'tr*'")
    add_filters(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add what ``runs`` and ``history`` share."""
    parser.add_argument(
        "--logs-dir", type=Path, default=Path("logs"), metavar="DIR", help="the log folder (logs)"
    )
    parser.add_argument(
        "--status", choices=STATUSES, help="only runs that ended so (unknown: no summary yet)"
    )
    parser.add_argument("--verdict", metavar="KIND", type=_kind, help="only runs with this primary finding")
    parser.add_argument("--since", metavar="DATE", type=_moment, help="only runs started then or later: "
                        "2030-01-31 or 2030-01-31T18:00, local time unless it says otherwise")  # fmt: skip
    parser.add_argument("--last", type=count, metavar="N", help="only the last N")
    parser.add_argument("--json", action="store_true", help="as JSON")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Print the list to standard output."""
    from traceml_ai.cli.lookup import write_text
    from traceml_ai.compare.wording import as_text
    from traceml_ai.index.cache import read_runs
    from traceml_ai.index.listing import listed
    from traceml_ai.report.runs_text import render_runs
    from traceml_ai.schema.history import RunList, encode

    rows = read_runs(args.logs_dir)
    found = RunList(logs_dir=as_text(args.logs_dir), runs=listed(rows, wanted(args, args.script)))
    if args.json:
        sys.stdout.write(encode(found).decode())
    else:
        write_text(lambda ascii_only: render_runs(found, ascii_only=ascii_only))
    return 0


def wanted(args: argparse.Namespace, script: str | None) -> Filter:
    """Return the filter of the words."""
    from traceml_ai.index.listing import Filter

    return Filter(script, args.status, args.verdict, args.since, args.last)


def _kind(text: str) -> str:
    from traceml_ai.schema.kinds import KINDS

    if text.upper() not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{text} is no finding: INPUT_BOUND is one, the page Findings has all"
        )
    return text.upper()


def _moment(text: str) -> str:
    """Return a date and time as summaries hold it: ISO 8601, UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no date: 2030-01-31, or 2030-01-31T18:00") from None
    return found.astimezone(timezone.utc).isoformat()


def count(text: str) -> int:
    """Read a number of runs."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of runs above 0")
    return value


count.__name__ = "whole number"  # argparse names the type in its errors
