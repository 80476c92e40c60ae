"""Keep our frames out of the traceback that ends a program.

A timed call that raises has a frame of ours in the exception's traceback. When nobody catches the
exception, ``sys.excepthook`` prints it; ours takes those frames out first and calls the one that
was there, so that the program ends with the text it would have had.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def strip(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of this package; links are changed in place."""
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    kept = trace
    while kept is not None:
        following = kept.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        if following is not kept.tb_next:
            kept.tb_next = following
        kept = following
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)


def strip_chain(error: BaseException | None) -> None:
    """Strip an exception, its causes and its contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = strip(error.__traceback__)
        if error.__cause__ is not None and error.__context__ is not error.__cause__:
            strip_chain(error.__context__)
        error = error.__cause__ or error.__context__


def install() -> Callable[[], None]:
    """Put our hook in front of ``sys.excepthook``; returns what takes it away again."""
    before: Hook = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            strip_chain(error)
            trace = strip(trace)
        except Exception:  # noqa: BLE001 - the user's exception must be shown whatever happens
            return before(kind, error, trace)
        return before(kind, error, trace)

    sys.excepthook = excepthook

    def restore() -> None:
        if sys.excepthook is excepthook:
            sys.excepthook = before

    return restore
