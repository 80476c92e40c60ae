"""One pass over one loader."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable

from traceml_ai.probe.columns import UNKNOWN
from traceml_ai.probe.plain import gone


class Iteration:
    """One pass over one loader: its role, and how many batches it gave."""

    __slots__ = ("fetches", "iterator", "loader", "role")

    def __init__(self, loader: object = None, iterator: object = None) -> None:
        self.role = UNKNOWN
        self.fetches = 0
        self.loader = loader  # only until its role is known
        self.iterator: Callable[[], object] = gone  # it, weakly
        with contextlib.suppress(TypeError):  # not every iterator can be referred to so
            self.iterator = weakref.ref(iterator)

    def is_over(self) -> bool:
        """Whether nobody holds the iterator any more: no further batch will come of it."""
        return self.iterator is not gone and self.iterator() is None
