"""The user's terminal while no view has it, and whether a program waits for somebody to type."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import time
import tty
from pathlib import Path

from traceml_ai.live.output import OutputReader

_READ = 1 << 16
_MOST_BEHIND = 1 << 20
"""A user's terminal that lags further behind than this misses what lies between."""


class UserTerminal:
    """The user's terminal, while it shows the program's output without a view.

    Args:
        path: Its device; opened anew, so that what is set on it reaches no other process's descriptor.
        folder: Where the output is kept.
    """

    def __init__(self, path: str, folder: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._reader = OutputReader(folder)
        self._unwritten = b""
        self._end = 0
        self._typing = False
        self.is_following = False
        self.settings = self._settings()

    @property
    def offset(self) -> int:
        """How far the output was shown."""
        return self._reader.offset - len(self._unwritten)

    def size(self) -> tuple[int, int]:
        """Return rows and columns; 0 when unknown."""
        try:
            packed = fcntl.ioctl(self._descriptor, termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return 0, 0
        rows, columns, _, _ = struct.unpack("HHHH", packed)
        return rows, columns

    def follow(self, offset: int, *, typing: bool) -> None:
        """Show the output from an offset on, and take what is typed."""
        self._reader.offset, self._unwritten = offset, b""
        self.is_following, self._typing = True, typing
        if typing:
            self._make_raw()

    def give_back(self) -> None:
        """Leave the terminal to others, set as it was found."""
        self.is_following = self._typing = False
        if self.settings is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self.settings)

    def finish(self, patience_s: float) -> None:
        """Show the rest of the output as long as the terminal takes any of it, and give it back."""
        shown, since = self.offset, time.monotonic()
        while self.is_following and time.monotonic() - since < patience_s:
            self.write()
            if self.offset >= self._end:
                break
            if self.offset > shown:
                shown, since = self.offset, time.monotonic()
            time.sleep(0.005)
        self.give_back()

    def has_more(self, end: int) -> None:
        """Take note of how much output there is."""
        self._end = end

    def waits_for(self) -> dict[int, int]:
        """Return what to wait for on the terminal."""
        events = (select.POLLIN if self._typing else 0) | (select.POLLOUT if self._unwritten else 0)
        return {self._descriptor: events} if events else {}

    def read_typed(self) -> bytes:
        """Return what was typed."""
        if not self._typing:
            return b""
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._typing = False
        return data

    def write(self) -> None:
        """Show what there is to show, as far as the terminal takes it now."""
        if not self.is_following:
            return
        if self._end - self.offset > _MOST_BEHIND:
            self._unwritten = b"\r\n"
            self._reader.skip_to_last(_MOST_BEHIND // 2)
        try:
            while self._unwritten or self._reader.offset < self._end:
                self._unwritten = self._unwritten or self._reader.read(_READ)
                if not self._unwritten:
                    return
                self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten) :]
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            self.is_following = self._typing = False

    def _make_raw(self) -> None:
        if self.settings is None:
            return
        with contextlib.suppress(termios.error):
            tty.setraw(self._descriptor, termios.TCSADRAIN)
            raw = termios.tcgetattr(self._descriptor)
            raw[1] |= termios.OPOST | termios.ONLCR  # the launcher's own lines end in a line feed
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, raw)

    def _settings(self) -> list[int | list[bytes | int]] | None:
        try:
            return termios.tcgetattr(self._descriptor)
        except termios.error:
            return None


def waits_for_terminal(pid: int, terminal: str, *, proc: Path = Path("/proc")) -> bool:
    """Whether a process's main thread is blocked in reading from a terminal; False where unknown.

    Source: proc_pid_syscall(5); ``read`` is number 0 on x86-64, 63 on AArch64 and RISC-V.
    """
    try:
        words = (proc / str(pid) / "syscall").read_text().split()
        if len(words) < 2 or words[0] != ("0" if os.uname().machine == "x86_64" else "63"):  # noqa: PLR2004
            return False
        opened = str((proc / str(pid) / "fd" / str(int(words[1], 16))).readlink())
        return opened in {terminal, "/dev/tty"}
    except (OSError, ValueError):
        return False
