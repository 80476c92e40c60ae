"""Sources of batches that are no PyTorch ``DataLoader``, wrapped by their user so that fetches are timed."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from traceml_ai.probe import session as sessions
from traceml_ai.probe.patches import timed_next

Item = TypeVar("Item")


class _TimedIterator(Generic[Item]):
    """An iterator whose ``__next__`` is input wait.

    Args:
        inner: The iterator itself.
        take: Takes one item for the iterator it is called with, timed if this process is measured.
    """

    def __init__(self, inner: Iterator[Item], take: Callable[[_TimedIterator[Item]], Item]) -> None:
        self._inner = inner
        self._take = take

    def __iter__(self) -> _TimedIterator[Item]:
        return self

    def __next__(self) -> Item:
        return self._take(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _take(iterator: _TimedIterator[Item]) -> Item:
    return next(iterator._inner)  # noqa: SLF001 - our own


class TimedIterable(Generic[Item]):
    """An iterable whose iterators are timed; everything else is the wrapped object's."""

    def __init__(self, inner: Iterable[Item]) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[Item]:
        session = sessions.current
        if session is None:
            return iter(self._inner)
        st = session.st
        iterator = _TimedIterator(iter(self._inner), timed_next(st, _take, get_ident))
        if get_ident() != st.ident:
            return iterator
        try:
            st.new_iteration(iterator)
        except Exception as error:  # noqa: BLE001
            st.fail("input", error)
        return iterator

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
