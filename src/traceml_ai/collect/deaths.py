"""How the training processes of a run ended, though they are another process's children.

Below a launcher such as torchrun the ranks are not ours to wait for, and what the launcher exits with says
nothing about them. A process descriptor tells the moment at which a process ends. At that moment the kernel
still knows what ended it: from Linux 6.15 on through the descriptor itself, before in ``/proc`` until the
parent has asked. So somebody has to be there at once: a thread that sleeps until a process ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from traceml_ai.schema.run import Death

_GET_INFO = 0xC040FF0B  # PIDFD_GET_INFO of linux/pidfd.h, for a structure of 64 bytes
_INFO = struct.Struct("=QQ11Ii")
_INFO_EXIT = 1 << 3
_EXIT_CODE_FIELD = 52  # of proc_pid_stat(5), counted from one
_FIELDS_BEFORE_NAME = 2
_OPEN: Callable[[int], int] | None = getattr(os, "pidfd_open", None)


class Deaths:
    """Watches processes until they end.

    Args:
        proc: Where ``/proc`` is.
        open_descriptor: ``os.pidfd_open``; without one nothing is watched.
        clock: Nanoseconds, the clock of the step records.
    """

    def __init__(
        self,
        *,
        proc: Path = Path("/proc"),
        open_descriptor: Callable[[int], int] | None = _OPEN,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._proc = proc
        self._open = open_descriptor
        self._clock = clock
        self._known: set[int] = set()
        self._descriptors: dict[int, int] = {}  # descriptor -> process
        self._found: list[Death] = []
        self._poll: select.poll | None = None
        self._bell: int | None = None

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these processes too; one that is gone already is not known to have ended."""
        for pid in pids:
            if pid not in self._known and self._open is not None:
                self._known.add(pid)
                with contextlib.suppress(OSError):  # gone, or before Linux 5.3
                    self._add(self._open(pid), pid)

    def found(self) -> list[Death]:
        """Return the processes that ended so far, in that order."""
        return list(self._found)

    def close(self) -> None:
        """Stop watching."""
        if self._bell is not None:
            os.close(self._bell)
            self._bell = None

    def _add(self, descriptor: int, pid: int) -> None:
        self._descriptors[descriptor] = pid
        poll = self._poll or self._start()
        poll.register(descriptor, select.POLLIN)
        assert self._bell is not None
        os.write(self._bell, b"!")  # a poll under way does not see what is added to it

    def _start(self) -> select.poll:
        listens, self._bell = os.pipe()
        self._poll = poll = select.poll()
        poll.register(listens, select.POLLIN)
        threading.Thread(target=self._wait, args=(poll, listens), name="traceml-deaths", daemon=True).start()
        return poll

    def _wait(self, poll: select.poll, listens: int) -> None:
        while True:
            for descriptor, _ in poll.poll():
                if descriptor != listens:
                    poll.unregister(descriptor)
                    self._note(descriptor)
                elif not os.read(listens, 4096):
                    return

    def _note(self, descriptor: int) -> None:
        pid = self._descriptors.pop(descriptor)
        now = self._clock()
        status = _from_descriptor(descriptor)
        if status is None:
            status = _from_proc(self._proc, pid)
        self._found.append(Death(pid=pid, status=status, t_ns=now))
        os.close(descriptor)


def _from_descriptor(descriptor: int) -> int | None:
    """Return the wait status of an ended process, if this kernel tells it."""
    import fcntl  # not on every system, and only needed where there are process descriptors

    asked = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(asked)
    return int(status) if mask & _INFO_EXIT else None


def _from_proc(proc: Path, pid: int) -> int | None:
    """Return the wait status of an ended process whose parent has not asked for it yet."""
    try:
        _, _, after_name = (proc / str(pid) / "stat").read_text().rpartition(")")
        fields = after_name.split()
        state, status = fields[0], int(fields[_EXIT_CODE_FIELD - _FIELDS_BEFORE_NAME - 1])
    except (OSError, ValueError, IndexError):
        return None
    return status if state in {"Z", "X"} else None
