"""What went wrong while collecting: each thing said once, the run going on."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Notes:
    """A list of remarks for the summary's ``warnings``, by topic.

    Args:
        say: Tells the user a remark at once; nothing is told when not given.
    """

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say
        self._by_topic: dict[str, str] = {}

    def add(self, topic: str, message: str, *, aloud: bool = False) -> None:
        """Keep a remark, unless there is one on this topic already.

        Args:
            topic: What it is about.
            message: One sentence for the user.
            aloud: Tell it to the user now, besides keeping it.
        """
        if topic in self._by_topic:
            return
        self._by_topic[topic] = message
        if aloud and self._say:
            self._say(message)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def messages(self) -> list[str]:
        """Return the remarks in the order they came."""
        return list(self._by_topic.values())


class Guard:
    """Runs the parts of the collector so that an error in one costs that part and nothing else.

    Args:
        notes: Where an error is remarked.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def __call__(self, part: str, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Do the work of a part; after an error once and never again.

        Returns:
            What the work returned; ``None`` after an error.
        """
        topic = f"part {part}"
        if topic in self._notes:
            return None
        try:
            return work(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- the rest of the collector goes on
            reason = f"{type(error).__name__}: {error}".splitlines()[0] + _where(error)
            self._notes.add(topic, f"{part} stopped on an error of TraceML's own ({reason})", aloud=True)
            return None


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f", {trace.tb_frame.f_globals.get('__name__', '?')} line {trace.tb_lineno}"
