"""The exception tree.

    TraceMLError        something TraceML was asked for can't be done; one line says what, where, what to do
    └── UsageError      the request itself was wrong (arguments, names, paths); the command line exits with 2

Anything else that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

__all__ = ["TraceMLError", "UsageError"]


class TraceMLError(Exception):
    """Something TraceML was asked for can't be done.

    Args:
        message: One line: what was found, where, and what to do next.
        exit_code: What the command line exits with.
    """

    exit_code = 1

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(TraceMLError):
    """The request itself was wrong: arguments, names or paths."""

    exit_code = 2
