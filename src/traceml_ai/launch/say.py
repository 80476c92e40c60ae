"""Writing to standard error, which belongs to the user's program as well."""

from __future__ import annotations

import os
import sys
import time

STDERR = 2
_PATIENCE_S = 1.0
_PAUSE_S = 0.01


def say(message: str) -> None:
    """Write one line to standard error, marked as ours; a closed or full stream is not our business."""
    write_stderr(f"traceml: {message}\n")


def write_stderr(text: str) -> None:
    """Write to standard error, past Python's buffers.

    What stays in a buffer after a failed write would be flushed at exit, and change the exit code.
    """
    data = text.encode(stderr_encoding(), "replace")
    give_up = time.monotonic() + _PATIENCE_S
    while data:
        try:
            data = data[os.write(STDERR, data) :]
        except BlockingIOError:  # the program made the shared stream non-blocking
            if time.monotonic() > give_up:
                return
            time.sleep(_PAUSE_S)
        except OSError:
            return


def occupy_standard_descriptors() -> None:
    """Open the null device where a standard stream is closed.

    A file of ours would get its number, and what is meant for the stream would be written into it.
    The number is closed again in the child, as the caller wanted.
    """
    for descriptor in (0, 1, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def stderr_encoding() -> str:
    """Return the encoding of standard error; ASCII when it is closed."""
    return getattr(sys.stderr, "encoding", None) or "ascii"


def can_show(text: str) -> bool:
    """Whether standard error can encode a text."""
    try:
        text.encode(stderr_encoding())
    except UnicodeEncodeError:
        return False
    return True


def stderr_width(default: int) -> int:
    """Columns of the terminal that standard error is, ``default`` when it is none."""
    try:
        return os.get_terminal_size(STDERR).columns or default
    except OSError:
        return default
