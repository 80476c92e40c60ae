"""Compare two runs, or several a side: did it get slower, where did the time move, is that sure?

  traceml compare base new                            run names under --logs-dir
  traceml compare logs/base/final_summary.json new/   files and run folders
  traceml compare --a base1 --a base2 --b new1 --b new2

A is the baseline, B is judged. Exit code: 0 every gate passed (or none was asked for),
1 a gate failed, 2 an input can't be used, 3 the runs can't be compared. What --output
names is written before that.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.spool.runfolder import SUMMARY_FILE

if TYPE_CHECKING:
    from traceml_ai.compare.comparison import Given, Past
    from traceml_ai.compare.gate import Gate
    from traceml_ai.schema.compare import Comparison

_GATE_FAILED, _UNUSABLE, _NOT_COMPARABLE = 1, 2, 3


class _Sides(NamedTuple):
    a: list[Given]
    b: list[Given]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml compare``."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the baseline and the run to judge: summary "
                        "files, run folders, or run names under --logs-dir")  # fmt: skip
    parser.add_argument(
        "--a", action="append", default=[], metavar="RUN", help="a run of the baseline; repeat it"
    )
    parser.add_argument("--b", action="append", default=[], metavar="RUN", help="a run to judge; repeat it")
    parser.add_argument("--logs-dir", type=Path, metavar="DIR", help="where run names and earlier runs are "
                        "looked up (logs; earlier runs: where the runs lie)")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="BASE", help="write BASE.json and BASE.txt")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--markdown", action="store_true", help="as Markdown, for a pull request")
    gate = parser.add_argument_group("gate (exit code 1 when it fails)")
    gate.add_argument("--max-step-time-regression-pct", type=_percentage, metavar="P",
                      help="fail on a REGRESSION of more than P %%")  # fmt: skip
    gate.add_argument("--max-memory-regression-pct", type=_percentage, metavar="P",
                      help="fail when peak host or device memory grew by more than P %%")  # fmt: skip
    gate.add_argument("--fail-on", type=_verdicts, default=(), metavar="VERDICTS",
                      help="fail on these verdicts, as in REGRESSION,UNKNOWN")  # fmt: skip


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words: two runs, or any number of --a and --b."""
    args = parser.parse_args(words)
    if len(args.runs) not in {0, 2}:
        raise UsageError(
            f"two runs are compared, not {len(args.runs)}: traceml compare BASE NEW, or --a and --b"
        )
    args.a = [*args.runs[:1], *args.a]
    args.b = [*args.runs[1:], *args.b]
    if not args.a or not args.b:
        raise UsageError("there is nothing to compare: name two runs, or give both --a and --b")
    return args


def run(args: argparse.Namespace) -> int:
    """Print the comparison to standard output; return the gate's exit code."""
    import traceml_ai
    from traceml_ai.compare.comparison import compare
    from traceml_ai.report.html import need_libraries

    try:
        if args.html is not None:
            need_libraries()
        sides = _read(args)
        past = _past(args, sides)
    except TraceMLError as error:
        raise TraceMLError(str(error), exit_code=_UNUSABLE) from None
    found = compare(*sides, past=past, gate=_gate(args), version=traceml_ai.__version__)
    if args.output is not None:
        _write(args.output, found)
    if args.html is not None:
        _write_html(args.html, found, sides)
    _show(args, found)
    if found.verdict == "NOT_COMPARABLE":
        return _NOT_COMPARABLE
    return _GATE_FAILED if found.passed is False else 0


def _gate(args: argparse.Namespace) -> Gate:
    from traceml_ai.compare.gate import Gate

    return Gate(args.max_step_time_regression_pct, args.max_memory_regression_pct, args.fail_on)


def _read(args: argparse.Namespace) -> _Sides:
    """Read every run.

    Raises:
        TraceMLError: One can't be found, read, or has no step to compare.
    """
    from traceml_ai.cli.lookup import find_run
    from traceml_ai.cli.summaries import find_summary
    from traceml_ai.compare.comparison import Given, empty

    logs = args.logs_dir or Path("logs")
    found = []
    for side in (args.a, args.b):
        paths = [find_run(word, logs) for word in side]
        _refuse_twice(side, paths)
        found.append([Given(str(path), find_summary(path)) for path in paths])
    bad = [path for side in found for path in empty(side)]
    if bad:
        which = " and ".join(bad)
        raise TraceMLError(
            f"{which}: no steady step was measured, nothing to compare (traceml view says why)"
        )
    return _Sides(*found)


def _refuse_twice(words: list[str], paths: list[Path]) -> None:
    """Refuse a run that is named twice on a side: it would look like two runs without noise between them."""
    seen: dict[Path, str] = {}
    for word, path in zip(words, paths, strict=True):
        folder = (path if path.is_dir() or path.name != SUMMARY_FILE else path.parent).resolve()
        if folder in seen:
            raise UsageError(f"{seen[folder]} and {word} are the same run: name each run of a side once")
        seen[folder] = word


def _past(args: argparse.Namespace, sides: _Sides) -> Past | None:
    """Gather earlier runs of the same script; several runs a side need none."""
    from traceml_ai.index.cache import log_folders
    from traceml_ai.index.past import past_runs

    paths = [Path(given.path) for side in sides for given in side]
    folders = [args.logs_dir] if args.logs_dir else list(dict.fromkeys(log_folders(paths)))
    return past_runs(folders, paths, [given.summary for side in sides for given in side])


def _write(base: Path, found: Comparison) -> None:
    """Write the evidence.

    Raises:
        TraceMLError: It can't be written.
    """
    from traceml_ai.report.compare_text import render_text
    from traceml_ai.schema.compare import encode
    from traceml_ai.spool.atomic import write_atomic

    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(base.with_name(base.name + ".json"), encode(found))
        write_atomic(base.with_name(base.name + ".txt"), render_text(found).encode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceMLError(
            f"can't write {base}.json ({reason}): name another --output", exit_code=2
        ) from None


def _write_html(path: Path, found: Comparison, sides: _Sides) -> None:
    """Write the page.

    Raises:
        TraceMLError: It can't be written.
    """
    from traceml_ai.report.compare_html import render_comparison
    from traceml_ai.spool.atomic import write_atomic

    page = render_comparison(found, *([given.summary for given in side] for side in sides))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page.encode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceMLError(f"can't write {path} ({reason}): name another --html", exit_code=2) from None


def _show(args: argparse.Namespace, found: Comparison) -> None:
    from traceml_ai.schema.compare import encode

    if args.json:
        sys.stdout.write(encode(found).decode())
    elif args.markdown:
        from traceml_ai.report.compare_markdown import render_markdown

        sys.stdout.buffer.write(render_markdown(found).encode())
    else:
        _show_text(found)
    sys.stdout.flush()


def _show_text(found: Comparison) -> None:
    from traceml_ai.cli.lookup import write_text
    from traceml_ai.launch.tell import wants_color
    from traceml_ai.report.card import MAX_WIDTH
    from traceml_ai.report.compare_text import render_text

    width = shutil.get_terminal_size((MAX_WIDTH, 0)).columns
    color = wants_color(os.environ, sys.stdout.fileno())
    write_text(lambda ascii_only: render_text(found, width=width, color=color, ascii_only=ascii_only))


def _percentage(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is no percentage of 0 or above")
    return value


def _verdicts(text: str) -> tuple[str, ...]:
    from traceml_ai.schema.compare import Verdict

    known = get_args(Verdict)
    found = tuple(dict.fromkeys(_words(text)))
    wrong = [word for word in found if word not in known]
    if wrong or not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of {', '.join(known)}")
    return found


def _words(text: str) -> Iterator[str]:
    return (word.strip().upper() for word in text.split(",") if word.strip())


_percentage.__name__ = "percentage"  # argparse names the type in its errors
