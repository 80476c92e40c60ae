"""Make the secret that the nodes of one run share: in a file of mode 0600, or on standard output.

traceml key run.key                                   then: traceml run --link ... --link-key run.key
export TRACEML_LINK_SECRET=$(traceml key)             then: traceml run --link ...
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml key``."""
    parser.add_argument(
        "path", type=Path, nargs="?", metavar="FILE", help="a new file on a folder all nodes see"
    )


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Make a secret."""
    from traceml_ai.link.keys import new_secret, write_secret

    if args.path is None:
        sys.stdout.write(new_secret() + "\n")
    else:
        write_secret(args.path)
    return 0
