"""The training process: started as the shell would, and waited for without getting in its way."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

_SLICE_S = 0.02
"""Where the kernel can't wake us at the child's death, we look this often."""


class Child:
    """A started process.

    Streams, working directory, process group, signal mask and inherited descriptors are the
    launcher's own: no pipe, no terminal of ours in between.

    Args:
        command: The words of the command.
        environ: Its environment.
        wake: A descriptor that ends a wait when it becomes readable.

    Raises:
        OSError: The command can't be started.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], *, wake: int) -> None:
        # Descriptors the user's shell opened for the program must reach it; ours close on exec.
        self._process = subprocess.Popen(list(command), env=dict(environ), close_fds=False)
        _keep_exit_codes()
        self._wake = wake
        self._pidfd = _open_pidfd(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, number: int) -> None:
        """Send it a signal; too late is no error."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end, at most so long, and not beyond a signal to the launcher.

        Returns:
            The return code, ``-n`` after signal ``n``; ``None`` while it runs.
        """
        if self._pidfd is None:
            return self._wait_in_slices(timeout_s)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0, round(timeout_s * 1000)))}
        _drain(self._wake)
        return self._process.wait() if self._pidfd in ready else None

    def start_view(self) -> None:
        """Do nothing: it has the terminal to itself."""

    def close_view(self) -> None:
        """Do nothing: there is none."""

    def _wait_in_slices(self, timeout_s: float) -> int | None:
        until = time.monotonic() + timeout_s
        while (code := self._process.poll()) is None and time.monotonic() < until:
            if _drain(self._wake):
                break
            time.sleep(min(_SLICE_S, max(0.0, until - time.monotonic())))
        return code


def _keep_exit_codes() -> None:
    """Stop ignoring SIGCHLD, as some callers make us: the kernel would drop the child's exit code.

    Not before it is started: the child goes on ignoring it, as it would have without us.
    """
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _open_pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # before Linux 5.3, or forbidden by a sandbox
        return None


def _drain(descriptor: int) -> bool:
    try:
        return bool(os.read(descriptor, 4096))
    except OSError:
        return False
