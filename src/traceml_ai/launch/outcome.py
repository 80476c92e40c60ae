"""How the training process ended, and how to end the same way."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from traceml_ai.schema.run import Status  # needs msgspec, which is not loaded before the child started

_SIGNALLED = 128
_KILLED = ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")
_BY_SIGNAL: dict[str, Status] = {
    "SIGINT": "interrupted",
    "SIGQUIT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "terminated",
    "SIGUSR1": "terminated",
    "SIGUSR2": "terminated",
    "SIGXCPU": "terminated",
    "SIGALRM": "terminated",
}


class Outcome(NamedTuple):
    """The end of a process as the shell sees it."""

    exit_code: int  # 128 + n after signal n
    signal: int | None = None

    @classmethod
    def of(cls, returncode: int) -> Outcome:
        """Return the outcome for a return code of ``subprocess``: ``-n`` after signal ``n``."""
        return cls(_SIGNALLED - returncode, -returncode) if returncode < 0 else cls(returncode)

    @property
    def status(self) -> Status:
        """``run.status``.

        A wrapper (a shell, ``srun``) and a clean-up handler report a signal as exit code 128 + n.
        """
        if self.exit_code == 0:
            return "completed"
        if self.signal is not None:
            return _BY_SIGNAL.get(_name(self.signal), "killed")
        return _BY_SIGNAL.get(_name(self.exit_code - _SIGNALLED), _killed_or_failed(self.exit_code))


def end_like(outcome: Outcome) -> int:
    """End this process by the signal that ended the child, so that the caller's shell sees the same.

    Returns:
        The exit code to leave with, when there was no signal or it does not end this process (as
        process 1 of a container).
    """
    if outcome.signal is not None and sys.platform != "win32":
        _forbid_core_dump()
        with contextlib.suppress(OSError, ValueError):  # KILL and STOP have no handler
            signal.signal(outcome.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {outcome.signal})
        os.kill(os.getpid(), outcome.signal)
    return outcome.exit_code


def _forbid_core_dump() -> None:
    """One core is enough. A core pattern that pipes ignores the limit, but not the dumpable flag."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        import ctypes

        pr_set_dumpable = 4  # prctl(2)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(pr_set_dumpable, 0, 0, 0, 0)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _killed_or_failed(exit_code: int) -> Status:
    return "killed" if _name(exit_code - _SIGNALLED) in _KILLED else "failed"
