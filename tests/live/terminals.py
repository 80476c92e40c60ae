"""A user at a terminal: starts a program on a real one, types, and reads the screen.

The screen is kept by pyte, a terminal emulator that is not ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pyte

PATIENCE_S = 30.0


class User:
    """Somebody at a terminal with one program on it.

    Args:
        command: The program.
        folder: Its working directory.
        columns: Width of the terminal.
        rows: Height of the terminal.
        env: Set in its environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        columns: int = 100,
        rows: int = 40,
        env: Mapping[str, str] | None = None,
    ) -> None:
        environ = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **(env or {})}
        for name in ("CI", "NO_COLOR", "COLUMNS", "LINES"):
            environ.pop(name, None) if name not in (env or {}) else None
        self._told, tell = os.pipe()
        self._shell, self._master = pty.fork()
        if self._shell == 0:
            os.chdir(folder)
            _be_shell(command, environ, tell, columns, rows)
        os.close(tell)
        self.pid = int(os.read(self._told, 20))
        os.set_blocking(self._told, False)
        os.set_blocking(self._master, False)
        self._size = columns, rows
        self._main = self._new_screen()
        self._alternate: pyte.HistoryScreen | None = None
        self.received = b""
        self.status: int | None = None

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._size = columns, rows
        self.screen.resize(rows, columns)

    @property
    def screen(self) -> pyte.HistoryScreen:
        """The screen in front."""
        return self._alternate or self._main

    @property
    def is_full_screen(self) -> bool:
        """Whether a program has the whole screen, as the view does."""
        return self._alternate is not None

    def _new_screen(self) -> pyte.HistoryScreen:
        columns, rows = self._size
        return pyte.HistoryScreen(columns, rows, history=5000)

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._master, text.encode())

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def scrolled(self) -> str:
        """What the screen shows, and before it what has scrolled out at its top."""
        rows = [
            "".join(row[column].data for column in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return "\n".join([*rows, self.text])

    @property
    def settings(self) -> list[object]:
        """The terminal's settings."""
        return list(termios.tcgetattr(self._master))

    def read(self, seconds: float) -> None:
        """Take in what comes for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:
                break
            self.received += data
            self._show(data)

    def _show(self, data: bytes) -> None:
        """Keep the screens up to date; pyte knows nothing of the alternate one."""
        for part in _SWITCH.split(data):
            if _SWITCH.fullmatch(part):
                self._alternate = self._new_screen() if part.endswith(b"h") else None
            else:
                # pyte takes the parameters of some private sequences for colours.
                stream = pyte.ByteStream(self.screen)
                stream.feed(_PRIVATE.sub(b"", part))

    def until(self, what: str | Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait until the screen shows a text, or something holds."""
        seen: Callable[[], bool] = (lambda: str(what) in self.text) if isinstance(what, str) else what
        until = time.monotonic() + patience_s
        while not seen():
            assert time.monotonic() < until, f"not seen: {what!r} on\n{self.scrolled}"
            self.read(0.1)

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the program's end; returns what a shell would say."""
        until = time.monotonic() + patience_s
        while self.status is None:
            assert time.monotonic() < until, f"did not end; on the screen\n{self.scrolled}"
            self.read(0.05)
            status = self._hear()
            if status is not None and not os.WIFSTOPPED(status):
                self.status = status
        self.read(0.3)
        return os.waitstatus_to_exitcode(self.status)

    def until_stopped(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until the program stops, as after Ctrl-Z."""
        until = time.monotonic() + patience_s
        while (status := self._hear()) is None:
            assert time.monotonic() < until, f"did not stop; on the screen\n{self.scrolled}"
            self.read(0.05)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        """Let the stopped program go on in the foreground, as ``fg`` does."""
        os.kill(self._shell, signal.SIGUSR1)

    def _hear(self) -> int | None:
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._told, 20)
            return int(said) if said else None
        return None

    def send(self, number: int) -> None:
        """Send the program a signal."""
        os.kill(self.pid, number)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.status is None:
            with contextlib.suppress(OSError, AssertionError):
                os.kill(self.pid, signal.SIGTERM)
                self.end(10)
        if self.status is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        os.kill(self._shell, signal.SIGKILL)
        os.waitpid(self._shell, 0)
        os.close(self._master)
        os.close(self._told)


def _be_shell(
    command: Sequence[str], environ: Mapping[str, str], tell: int, columns: int, rows: int
) -> NoReturn:
    """Lead the terminal's session and run one job in its foreground, as an interactive shell does."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvpe(command[0], list(command), dict(environ))
    os.set_inheritable(tell, False)

    def foreground(*_: object) -> None:
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)

    signal.signal(signal.SIGUSR1, foreground)
    os.write(tell, b"%20d" % job)
    while True:
        try:
            _, status = os.waitpid(job, os.WUNTRACED)
        except ChildProcessError:
            signal.pause()
            continue
        os.tcsetpgrp(0, os.getpid())
        os.write(tell, b"%20d" % status)


_SWITCH = re.compile(rb"(\x1b\[\?(?:1049|47)[hl])")
_PRIVATE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1bP[^\x1b]*\x1b\\")
