"""Write the kept steps of a run for other tools.

  traceml export logs/base --parquet steps.parquet     pandas, polars, DuckDB
  traceml export base --csv steps.csv                  anything (a run name under --logs-dir)
  traceml export logs/base --perfetto trace.json       ui.perfetto.dev, chrome://tracing

A run keeps its first steps, its most recent ones and its slowest: all of them up to 8,192 a rank.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from traceml_ai.errors import TraceMLError, UsageError

if TYPE_CHECKING:
    from traceml_ai.export.steps import KeptSteps

FORMATS = ("parquet", "csv", "perfetto")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml export``."""
    parser.add_argument("run", help="a run folder, its summary file, or a run name under --logs-dir")
    parser.add_argument("--logs-dir", type=Path, default="logs", metavar="DIR", help="where run names are "
                        "looked up (logs)")  # fmt: skip
    parser.add_argument("--parquet", type=Path, metavar="OUT", help="a row a step, as Parquet")
    parser.add_argument("--csv", type=Path, metavar="OUT", help="a row a step, as CSV")
    parser.add_argument("--perfetto", type=Path, metavar="OUT", help="a trace; OUT may end with .json.gz")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    args = parser.parse_args(words)
    if not any(getattr(args, name) for name in FORMATS):
        raise UsageError("nothing to write: name --parquet, --csv or --perfetto and a file")
    return args


def run(args: argparse.Namespace) -> int:
    """Write what was asked for."""
    from traceml_ai.cli.lookup import find_run
    from traceml_ai.cli.summaries import find_summary
    from traceml_ai.compare.wording import as_text
    from traceml_ai.export.perfetto import write_perfetto
    from traceml_ai.export.steps import STEPS_FILE, read_steps
    from traceml_ai.export.table import write_csv, write_parquet

    found = find_run(args.run, args.logs_dir)
    folder = found if found.is_dir() else found.parent
    summary = find_summary(found)
    if not summary.run.steps and not (folder / STEPS_FILE).exists():
        raise TraceMLError(f"{args.run} has no step to export (traceml view says why)")
    _make_folders(args)
    steps = read_steps(folder / STEPS_FILE)
    if args.parquet:
        write_parquet(steps, args.parquet)
    if args.csv:
        write_csv(steps, args.csv)
    if args.perfetto:
        write_perfetto(steps, summary, args.perfetto)
    for name in FORMATS:
        if getattr(args, name):
            print(f"{as_text(getattr(args, name))}: {_said(steps)}")
    return 0


def _make_folders(args: argparse.Namespace) -> None:
    for path in filter(None, (getattr(args, name) for name in FORMATS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TraceMLError(f"can't write {path} ({error.strerror})") from None


def _said(steps: KeptSteps) -> str:
    closed = sum(steps.closed.values())
    if steps.complete:
        return f"all {closed:,} steps"
    return f"{len(steps.rows):,} of {closed:,} steps: the first, the most recent and the slowest"
