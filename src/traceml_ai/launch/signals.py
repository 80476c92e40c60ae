"""The launcher outlives the signals that end training, and passes on those that reached only itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from traceml_ai.launch.witness import Witness

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGBREAK")

_GRACE_S = 0.05
"""A sender that signals one process after the other needs a moment to get round."""


def relayed() -> list[signal.Signals]:
    """Return the signals to relay; one that is ignored here (``nohup``) is ignored by the child as well."""
    return [number for number in _known() if signal.getsignal(number) is not signal.SIG_IGN]


def _known() -> list[signal.Signals]:
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let the signals that are relayed wait, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, relayed())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Relay:
    """Notes the signals sent to the launcher, for the training process.

    Create it before the training process, so that no signal is lost in between. A handler of our own
    becomes the default again in the child.

    Args:
        shared: The training process is in the launcher's process group, and may get a signal that
            reaches the launcher by itself. In a session of its own it never does.
    """

    def __init__(self, *, shared: bool = True) -> None:
        self._received: list[int] = []
        self._shared = shared
        self._signals = relayed()
        self._witness = self._call_witness() if shared else None
        self.wake, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self.wake, False)
        for number in self._signals:
            signal.signal(number, self._note)

    def pass_on(self, send: Callable[[int], None]) -> None:
        """Hand the received signals on, each once, but not those that everyone was sent.

        Args:
            send: Sends a signal to the training process.
        """
        if not self._received:
            return
        time.sleep(_GRACE_S)
        reached = self._witness.ask() if self._witness else None
        for number in self._take():
            if not self._shared or self._reached_launcher_only(number, reached):
                send(number)

    def pass_on_all(self, send: Callable[[int], None]) -> None:
        """Hand on everything received before the training process was there to receive it.

        What was ignored then is from now on noted as well: the training process ignores it too, unless
        it has set a handler of its own.
        """
        for ignored in set(_known()) - set(self._signals):
            signal.signal(ignored, self._note)
        if self._received and self._witness:
            self._witness.ask()
        for number in self._take():
            send(number)

    def training_is_over(self) -> None:
        """End the witness, and let SIGQUIT end what the launcher still does."""
        if self._witness:
            self._witness.dismiss()
        if hasattr(signal, "SIGQUIT") and signal.SIGQUIT in self._signals:
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)

    def _call_witness(self) -> Witness | None:
        if not (hasattr(os, "fork") and hasattr(signal, "pthread_sigmask")):
            return None
        try:
            return Witness(_known())
        except OSError:
            return None

    def _take(self) -> list[int]:
        """Empty the list of received signals, while a handler may add to it."""
        taken: list[int] = []
        while self._received:
            number = self._received.pop(0)
            if number not in taken:
                taken.append(number)
        return taken

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
        with contextlib.suppress(OSError):  # full: somebody is about to look anyway
            os.write(self._bell, b"!")

    @staticmethod
    def _reached_launcher_only(number: int, reached: frozenset[int] | None) -> bool:
        # Without a witness: Ctrl-C goes to the whole group, the others are mostly sent to one process.
        return number != signal.SIGINT if reached is None else number not in reached
