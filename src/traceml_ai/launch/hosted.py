"""The training process on a terminal of its own, as the launcher sees it, and the view in front of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from traceml_ai.launch import host
from traceml_ai.live import wire
from traceml_ai.live.output import OutputReader
from traceml_ai.live.wire import Channel, Message
from traceml_ai.schema import env

_CLOSING_S = 5.0
"""How long a view may take to leave the terminal."""
_DEAD_S = 5.0
_TAIL_BYTES = 256 << 10
_TAIL_LINES = 500
_LONGEST_LINE = 4096

_LEAVE_ALL_MODES = (
    # The alternate screen; 1049 would also move the cursor to where it was before the last one.
    "\x1b[?47l"
    "\x1b[?25h"  # the cursor hidden
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # the mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # focus, pasting, size
    "\x1b[<u\x1b[0m"  # key protocol, colours
    "\x1b[9999;1H\r\n"
)
"""What a view that was killed may have left switched on."""


class Terminal(NamedTuple):
    """The user's terminal."""

    path: str
    settings: list[int | list[bytes | int]]

    @classmethod
    def of_streams(cls) -> Terminal | None:
        """Return the terminal that all three standard streams are; ``None``: they are not one."""
        try:
            names = {os.ttyname(descriptor) for descriptor in (0, 1, 2)}
            return cls(names.pop(), termios.tcgetattr(0)) if len(names) == 1 else None
        except (OSError, termios.error):
            return None

    def restore(self) -> None:
        """Set it as it was."""
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, self.settings)


class HostedChild:
    """A started process behind a view. It has the interface of `launch.child.Child`.

    Args:
        command: The words of the command.
        environ: Its environment.
        wake: A descriptor that ends a wait when it becomes readable.
        spool: The run's spool folder.
        terminal: The user's terminal.
        view_command: How the view is started; ``None``: the terminal shows the program's output.

    Raises:
        OSError: The command can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        wake: int,
        spool: Path,
        terminal: Terminal,
        view_command: Sequence[str] | None,
    ) -> None:
        self._wake, self._spool, self._terminal = wake, spool, terminal
        self._ended: int | None = None
        self._view: subprocess.Popen[bytes] | None = None
        self._shown_to = 0
        self._view_open = False
        self._host, self._view_end = self._fork_host(command, environ)
        self.pid = self._await_start()
        self._view_command = view_command

    def send(self, number: int) -> None:
        """Send it a signal; too late is no error."""
        if self._ended is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def start_view(self) -> None:
        """Start the view; until it is there the output goes to the terminal."""
        if self._view_command is None:
            self._view_end.close()
            self._host.send(wire.FOLLOW, b"-1")
            return
        descriptor = self._view_end.fileno()
        environ = {**os.environ, env.VIEW_CHANNEL: str(descriptor)}
        self._view = subprocess.Popen(self._view_command, env=environ, pass_fds=[descriptor])
        self._view_end.close()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end, at most so long, and not beyond a signal to the launcher.

        Returns:
            The return code, ``-n`` after signal ``n``; ``None`` while it runs.
        """
        poll = select.poll()
        poll.register(self._host.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        poll.poll(max(0, round(timeout_s * 1000)))
        with contextlib.suppress(OSError):
            os.read(self._wake, 4096)
        for message in self._host.receive():
            self._take(message)
        if self._host.closed and self._ended is None:
            self._ended = self._without_host()
        return self._ended

    def close_view(self) -> None:
        """Give the terminal back, and repeat there what the view showed of the program's output."""
        if self._view is not None and not _ends(self._view, _CLOSING_S):
            self._view.kill()
            self._view.wait()
            _write_terminal(_LEAVE_ALL_MODES)
        self._terminal.restore()
        if self._view_open:
            self._view_open = False
            self._repeat(None)

    def _fork_host(self, command: Sequence[str], environ: Mapping[str, str]) -> tuple[Channel, socket.socket]:
        ours, hosts = socket.socketpair()
        view, hosts_view = socket.socketpair()
        self._host_pid = os.fork()
        if self._host_pid == 0:
            try:
                ours.close()
                view.close()
                _serve(command, environ, self._spool, self._terminal.path, hosts, hosts_view)
            finally:
                os._exit(0)
        hosts.close()
        hosts_view.close()
        return Channel(ours), view

    def _await_start(self) -> int:
        while not self._host.closed:
            select.select([self._host.fileno()], [], [])
            for message in self._host.receive():
                if message.kind == wire.STARTED:
                    return int(message.body)
                number, _, reason = message.body.decode().partition(" ")
                raise OSError(int(number), reason)
        raise OSError(0, "the process that keeps its terminal could not be started")

    def _take(self, message: Message) -> None:
        if message.kind == wire.ENDED:
            code, _ = message.body.split()
            self._ended = int(code)
        elif message.kind == wire.VIEW_CAME:
            self._view_open, self._shown_to = True, int(message.body)
        elif message.kind == wire.VIEW_LEFT:
            self._go_on_without_view(int(message.body.split()[0]))
        elif message.kind == wire.STOPPED:
            self._stop_too()

    def _go_on_without_view(self, offset: int) -> None:
        """Show the output on the terminal from now on."""
        if self._view is not None and not _ends(self._view, _CLOSING_S):
            self._view.kill()
            self._view.wait()
        if self._view is not None and self._view.returncode != 0:
            _write_terminal(_LEAVE_ALL_MODES)
        self._terminal.restore()
        if self._view_open:
            self._view_open = False
            self._repeat(offset)
        self._host.send(wire.FOLLOW, str(offset).encode())

    def _stop_too(self) -> None:
        """Stop as the program did (Ctrl-Z), and go on with it."""
        self._host.send(wire.HOLD)
        self._terminal.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._host.send(wire.GO_ON)
        self._host.send(wire.FOLLOW, str(self._end_of_output()).encode())

    def _end_of_output(self) -> int:
        reader = OutputReader(self._spool)
        reader.skip_to_last(0)
        return reader.offset

    def _repeat(self, to: int | None) -> None:
        """Write to the terminal what was printed while a view covered it."""
        from traceml_ai.live.screen import Screen, to_ansi

        reader = OutputReader(self._spool, _line_start(self._spool, self._shown_to))
        reader.skip_to_last(_TAIL_BYTES)
        try:
            size = os.get_terminal_size(1)
        except OSError:
            size = os.terminal_size((80, 24))
        screen = Screen(max(size.columns, 1), max(size.lines, 1))
        while (to is None or reader.offset < to) and (data := reader.read()):
            screen.feed(data)
        lines = list(screen.lines)[-_TAIL_LINES:]
        while lines and not lines[-1].cells:
            lines.pop()
        color = not os.environ.get("NO_COLOR")
        text = to_ansi(lines, color=color)
        _write_terminal("\r\x1b[K" + (text if to is None else text.removesuffix("\n")))

    def _without_host(self) -> int:
        """Return how the program ended whose terminal was taken away: by the hang-up, as a rule."""
        until = time.monotonic() + _DEAD_S
        while time.monotonic() < until:
            try:
                os.kill(self.pid, 0)
            except OSError:
                break
            time.sleep(0.02)
        return -signal.SIGHUP


def _serve(
    command: Sequence[str],
    environ: Mapping[str, str],
    spool: Path,
    terminal: str,
    launcher: socket.socket,
    view: socket.socket,
) -> None:
    """Be the host; its own streams are nobody's, so that it keeps no terminal or pipe open."""
    keeper = host.Host(
        command,
        environ,
        folder=spool,
        launcher=Channel(launcher),
        view=Channel(view),
        terminal=terminal,
    )
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    keeper.serve()


def _line_start(spool: Path, offset: int) -> int:
    """Return where the line begins that an offset lies in; lines of a screen's width and more are cut."""
    begin = max(0, offset - _LONGEST_LINE)
    before = OutputReader(spool, begin).read(offset - begin)
    return offset - len(before) + before.rfind(b"\n") + 1


def _ends(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _write_terminal(text: str) -> None:
    data = text.encode(getattr(sys.stdout, "encoding", None) or "ascii", "replace")
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]
