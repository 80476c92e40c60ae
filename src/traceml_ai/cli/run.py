"""Run a training command and tell where its time went.

  traceml run train.py                       any script, no code changes
  traceml run train.py --args --epochs 3     its arguments, verbatim behind --args
  traceml run -m package.train --args ...    the module form
  traceml run -- python -u train.py --lr 1   any command line

TraceML's options stand before the script or right behind it, up to --args or the first
word that is not one of them; everything from there on is the script's. Exit code,
signals, streams and working directory are those of plain python. The card is written to
standard error at the end, the summary to LOGS/RUN-NAME/final_summary.json and .txt.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from traceml_ai.cli.attach import add_dashboard_options
from traceml_ai.errors import UsageError
from traceml_ai.launch.command import Torchrun, split
from traceml_ai.launch.life import Request
from traceml_ai.launch.life import run as run_request
from traceml_ai.launch.outlets import Wanted, check
from traceml_ai.schema import env

if TYPE_CHECKING:
    from traceml_ai.link.place import Where

MODES = ("auto", "summary", "cli", "dashboard")
_TORCHRUN = {
    "--nproc-per-node": "processes on this node, started by torch.distributed.run",
    "--nnodes": "number of nodes",
    "--node-rank": "this node's rank",
    "--master-addr": "address of the node with rank 0",
    "--master-port": "its port",
    "--rdzv-backend": "rendezvous backend",
    "--rdzv-endpoint": "rendezvous endpoint, host:port",
    "--rdzv-id": "rendezvous id",
    "--rdzv-conf": "further rendezvous settings, key=value,...",
}
_FLAGS = (
    "-h",
    "--help",
    "--disable-traceml",
    "--no-save-training-output",
    "--no-dashboard-auto-open",
    "--json",
    "--html-report",
    "--no-keep-steps",
)
_VALUED = (
    "--mode",
    "--dashboard-port",
    "--logs-dir",
    "--run-name",
    "--interval",
    "--trace-max-steps",
    "--otlp",
    "--prometheus",
    "--link",
    "--link-key",
    *_TORCHRUN,
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``traceml run``."""
    parser.usage = "traceml run [options] (SCRIPT | -m MODULE) [options] [--args] ...\n" + (
        " " * 7 + "traceml run [options] -- COMMAND ..."
    )
    parser.add_argument("--mode", choices=MODES, default="auto", help="the live view on the terminal "
                        "(cli), a page for the browser (dashboard), or only the card at the end (summary); "
                        "auto: cli on a terminal, else summary")  # fmt: skip
    add_dashboard_options(parser)
    parser.add_argument("--logs-dir", type=Path, default="logs", help="where run folders are kept (logs)")
    parser.add_argument("--run-name", help="the run's folder; default: script, date and time")
    parser.add_argument("--interval", type=seconds_above_0, default=1.0, help="seconds between samples (1)")
    parser.add_argument("--trace-max-steps", type=count_above_0, metavar="N", help="record at most N steps")
    parser.add_argument("--json", action="store_true", help="instead of the card, the summary as one line of "
                        "JSON: the last line of standard error")  # fmt: skip
    parser.add_argument("--disable-traceml", action="store_true", help="run the command, and nothing else")
    parser.add_argument("--no-save-training-output", action="store_true", help="keep no output.log of "
                        "what the program prints behind a live view")  # fmt: skip
    _prepare_outlets(parser)
    group = parser.add_argument_group("several processes")
    for option, text in _TORCHRUN.items():
        group.add_argument(option, help=text, metavar="X")
    add_link_options(parser)


def add_link_options(parser: argparse.ArgumentParser) -> None:
    """Add what `traceml run` and `traceml serve` say alike about several nodes."""
    group = parser.add_argument_group("several nodes")
    group.add_argument("--link", metavar="[ADDRESS:]PORT", help="node 0 listens here and collects for all "
                       "nodes, the others send; no address: the loopback one")  # fmt: skip
    group.add_argument("--link-key", type=Path, metavar="FILE", help="the nodes' secret (traceml key "
                       "makes it); default: TRACEML_LINK_SECRET")  # fmt: skip


def place_of(args: argparse.Namespace) -> Where | None:
    """Return this node's place, if a link between nodes was asked for.

    Raises:
        UsageError: Something is missing or wrong.
    """
    if args.link is None:
        if args.link_key is not None:
            raise UsageError("--link-key is the secret of a link: give --link [ADDRESS:]PORT too")
        return None
    from traceml_ai.link.place import find_place

    given = (args.nnodes, args.node_rank, args.nproc_per_node)
    numbers = tuple(None if each is None else str(each) for each in given)
    return find_place(args.link, args.link_key, (numbers[0], numbers[1], numbers[2]), os.environ)


def _prepare_outlets(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("elsewhere")
    group.add_argument("--html-report", action="store_true", help="write report.html beside the summary")
    group.add_argument("--no-keep-steps", action="store_true", help="keep no steps.npz for traceml export")
    group.add_argument("--otlp", metavar="ENDPOINT", help="send metrics to an OpenTelemetry collector (OTLP "
                       "over HTTP), such as http://localhost:4318")  # fmt: skip
    group.add_argument("--prometheus", metavar="PORT", help="serve metrics to Prometheus on this port of the "
                       "loopback address, or on ADDRESS:PORT")  # fmt: skip


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Tell TraceML's words from the command's, and read the former."""
    ours, target = split(words, _FLAGS, _VALUED)
    args = parser.parse_args(ours)
    if target is None:
        raise UsageError("there is nothing to run: traceml run train.py (traceml run --help shows how)")
    args.target = target
    return args


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if args.mode == "dashboard" and not args.disable_traceml:
        _check_dashboard(args.dashboard_port)
    link = None
    wanted = Wanted(args.html_report, not args.no_keep_steps, args.otlp, args.prometheus)
    if not (args.disable_traceml or env.is_disabled(os.environ.get(env.DISABLED))):
        check(wanted)
        link = place_of(args)
    names = [option[2:].replace("-", "_") for option in _TORCHRUN]
    return run_request(
        Request(
            target=args.target,
            torchrun=Torchrun(**{name: getattr(args, name) for name in names}),
            logs=args.logs_dir,
            run_name=args.run_name,
            interval_s=args.interval,
            trace_max_steps=args.trace_max_steps,
            as_json=args.json,
            disabled=args.disable_traceml,
            outlets=wanted,
            mode=args.mode,
            save_output=not args.no_save_training_output,
            dashboard_port=args.dashboard_port,
            dashboard_opens=not args.no_dashboard_auto_open,
            link=link,
        )
    )


def _check_dashboard(port: int) -> None:
    from traceml_ai.live.dashboard.server import free_port, need_libraries

    need_libraries()
    free_port(port)


def seconds_above_0(text: str) -> float:
    """Read a length of time."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def count_above_0(text: str) -> int:
    """Read a number of things."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value


seconds_above_0.__name__ = "number of seconds"  # argparse names the type in its errors
count_above_0.__name__ = "whole number"
