"""Collect a run that is started by itself: python train.py or torchrun, with init() in the script.

  traceml serve                         wait for a script, then in another shell:  python train.py
  traceml serve --nproc-per-node=4      wait for four ranks:  torchrun --nproc-per-node=4 train.py
  traceml serve --nnodes=2 --node-rank=0 --link=node0:29400 --link-key=run.key     on each of two nodes

The two meet through a private folder of this user on this machine; no port is opened. The collector
ends, with the card and final_summary.json, when the training has ended. Ctrl-C ends it earlier; the
training goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from traceml_ai.cli.run import add_link_options, count_above_0, place_of, seconds_above_0
from traceml_ai.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``traceml serve``."""
    parser.add_argument("--nproc-per-node", type=count_above_0, default=1, metavar="N",
                        help="ranks to wait for on this node (1)")  # fmt: skip
    parser.add_argument("--nnodes", type=count_above_0, default=1, metavar="N", help="nodes to wait for (1)")
    parser.add_argument("--node-rank", metavar="N", help="this node's number, from 0; node 0 collects")
    parser.add_argument("--logs-dir", type=Path, default="logs", help="where run folders are kept (logs)")
    parser.add_argument("--run-name", help="the run's folder; default: serve, date and time")
    parser.add_argument("--interval", type=seconds_above_0, default=1.0, help="seconds between samples (1)")
    parser.add_argument("--json", action="store_true", help="instead of the card, the summary as one line of "
                        "JSON: the last line of standard error")  # fmt: skip
    parser.add_argument("--html-report", action="store_true", help="write report.html beside the summary")
    add_link_options(parser)


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    args = parser.parse_args(words)
    if args.nnodes > 1 and args.link is None:
        raise UsageError("--nnodes needs a link between the nodes: --link [ADDRESS:]PORT, on every node")
    return args


def run(args: argparse.Namespace) -> int:
    """Wait for a run and collect it."""
    from traceml_ai.launch.outlets import Wanted, check
    from traceml_ai.launch.serving import ServeRequest, serve

    wanted = Wanted(html_report=args.html_report)
    check(wanted)
    return serve(
        ServeRequest(
            logs=args.logs_dir,
            run_name=args.run_name,
            interval_s=args.interval,
            nproc_per_node=args.nproc_per_node,
            as_json=args.json,
            outlets=wanted,
            link=place_of(args),
        )
    )
