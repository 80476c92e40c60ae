"""The ``traceml`` command: finds the verb, and turns a user's mistakes into one line."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import traceml_ai
from traceml_ai.errors import TraceMLError, UsageError

VERBS = ("run", "serve", "attach", "view", "export", "compare", "runs", "history", "key", "doctor")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Verb(Protocol):
    """What a verb's module offers; its docstring is its help."""

    __doc__: str | None

    @staticmethod
    def prepare_parser(parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments."""

    @staticmethod
    def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
        """Read its words."""

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        raise UsageError(f"{message} ({self.prog} --help shows how)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The words behind ``traceml``; those of this process when not given.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by the caller: what is said goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except TraceMLError as error:
        print(f"traceml: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # view | head
        sys.stderr.close()
        return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
    except OSError as error:  # a verb's own files are its own business: this is the output
        if error.errno not in _FULL or error.filename is not None:
            raise
        return _unwritten(error)
    except KeyboardInterrupt:  # before anything was started; afterwards it is noted, not raised
        return 128 + signal.SIGINT


def _unwritten(error: OSError) -> int:
    """Say that standard output takes nothing more; what is still buffered must not fail again at the exit."""
    print(f"traceml: can't write the output ({error.strerror})", file=sys.stderr)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return UsageError.exit_code


def _dispatch(words: list[str]) -> int:
    if words and words[0] in VERBS:
        verb = load(words[0])
        parser = parser_of(words[0], verb)
        return verb.run(verb.parse(parser, words[1:]))
    _overview().parse_args(words or ["--help"])
    return 0


def load(name: str) -> Verb:
    """Import a verb's module."""
    return cast(Verb, importlib.import_module(f"traceml_ai.cli.{name}"))


def parser_of(name: str, verb: Verb) -> Parser:
    """Return the parser of a verb."""
    parser = Parser(
        prog=f"traceml {name}",
        description=verb.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.prepare_parser(parser)
    return parser


def _overview() -> Parser:
    parser = Parser(prog="traceml", description=traceml_ai.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"traceml {traceml_ai.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name in VERBS:
        verbs.add_parser(name, help=(load(name).__doc__ or "").partition("\n")[0])
    return parser
