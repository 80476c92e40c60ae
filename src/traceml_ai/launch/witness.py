"""Whether a signal was sent to everyone or to the launcher alone.

Ctrl-C, a batch system and ``kill -- -group`` signal the launcher and the training process both; a
``kill <launcher>`` must be passed on. Nothing in a received signal tells the two apart, and passing
on what the program already got would interrupt its own clean-up. So a bystander is asked: a forked
process in the same process group which blocks the signals. Those pending there were sent to all.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable

_PATIENCE_MS = 2000
"""On a busy machine it may take a while to be asked; without an answer a Ctrl-C would go to nobody."""


class Witness:
    """A process that only remembers which signals it was sent.

    Args:
        signals: The signals to watch.

    Raises:
        OSError: No process could be made.
    """

    def __init__(self, signals: Iterable[signal.Signals]) -> None:
        watched = set(signals)
        questions_in, self._questions = os.pipe()
        self._answers, answers_out = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._questions)
            _stand_by(questions_in, answers_out, watched)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(questions_in)
        os.close(answers_out)

    def ask(self) -> frozenset[int] | None:
        """Return which signals it was sent since it was last asked; ``None`` when it does not answer."""
        try:
            os.write(self._questions, b"?")
            poll = select.poll()
            poll.register(self._answers, select.POLLIN)
            if not poll.poll(_PATIENCE_MS):
                return None
            answer = os.read(self._answers, 256)
        except OSError:
            return None
        return frozenset(answer[:-1]) if answer else None

    def dismiss(self) -> None:
        """End it."""
        for descriptor in (self._questions, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _stand_by(questions: int, answers: int, watched: set[signal.Signals]) -> None:
    """Answer until the launcher is gone: the pipe's end closes with it, however it ended."""
    try:
        while os.read(questions, 1):
            pending = signal.sigpending() & watched
            for number in pending:
                signal.sigwait({number})
            os.write(answers, bytes(sorted(pending)) + b"\0")
    finally:
        os._exit(0)
