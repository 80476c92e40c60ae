"""The program's terminal: a process that starts the program on a terminal of its own and looks after it.

With a view in front of it the program can't have the user's terminal. It gets a pseudo-terminal, and
this process is to it what a terminal window with a shell is: it leads the session, starts the program
in the foreground, keeps what it prints, hands on what is typed, and tells the launcher how it ended.
It is forked from the launcher before anything heavy is imported, and is a process of its own so that
neither a busy collector nor a slow view holds up the program's output, and so that the program does
not lose its terminal when the launcher is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from traceml_ai.launch.user_terminal import UserTerminal, waits_for_terminal
from traceml_ai.live import wire
from traceml_ai.live.output import OutputWriter
from traceml_ai.live.wire import Channel, Message

GRACE_S = 1.0
"""The view opens this long after the program's start: a short program needs none."""

_READ = 1 << 16
_PATIENCE_S = 0.2
"""Output that stops for this long may be a question."""
_MOST_UNTYPED = 1 << 16
_SETTLE_S = 0.5
"""How long the program's last words are waited for."""
_STUCK_S = 5.0
"""A terminal that takes nothing for this long at the end is given up; a plain program would wait for ever."""
_HUNG_UP_PAUSE_S = 0.05


class Host:
    """Starts a program on a terminal of its own, and serves it until nobody uses that terminal.

    Args:
        command: The words of the program.
        environ: Its environment.
        folder: The spool folder, for its output.
        launcher: To the launcher.
        view: To the view.
        terminal: The user's terminal.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path,
        launcher: Channel,
        view: Channel,
        terminal: str,
    ) -> None:
        self._command, self._environ, self._folder = list(command), dict(environ), folder
        self._launcher, self._view = launcher, view
        self._writer = OutputWriter(folder)
        self._typed = b""
        self._child = 0
        self._ended: int | None = None
        self._nobody_writes = False
        self._begun = time.monotonic()
        self._view_state = "absent"  # then "waiting", "open", "gone"
        self._asked = False
        self._quiet_since = self._begun
        self._user = UserTerminal(terminal, folder)
        self._bell_out, self._bell = os.pipe()
        os.set_blocking(self._bell_out, False)
        os.set_blocking(self._bell, False)

    def serve(self) -> None:
        """Do it all."""
        self._become_session_leader()
        self._copy_terminal()
        try:
            self._start()
        except OSError as error:
            self._launcher.send(wire.REFUSED, f"{error.errno or 0} {error.strerror or error}".encode())
            self._flush_launcher()
            return
        self._launcher.send(wire.STARTED, str(self._child).encode())
        self._user.follow(0, typing=False)
        while not self._is_over():
            self._wait()
        self._user.give_back()

    # -- start ---------------------------------------------------------------------------------------

    def _become_session_leader(self) -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGWINCH"):
            # A handler, not SIG_IGN: the program would inherit the latter.
            if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
                signal.signal(getattr(signal, name), _ignore)
        os.setsid()
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
        self._name = os.ttyname(self._slave)
        signal.signal(signal.SIGCHLD, self._ring)
        self._ttou = signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def _copy_terminal(self) -> None:
        """Make the program's terminal like the user's: size and settings."""
        if self._user.settings is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._slave, termios.TCSANOW, self._user.settings)
        self._resize(*self._user.size())

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            close_fds=False,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            preexec_fn=self._in_foreground,  # noqa: PLW1509 -- this process has one thread
        )
        self._child = self._process.pid
        os.close(self._slave)
        os.set_blocking(self._master, False)

    def _in_foreground(self) -> None:
        os.setpgid(0, 0)
        os.tcsetpgrp(self._slave, os.getpid())
        signal.signal(signal.SIGTTOU, self._ttou)

    # -- the loop ------------------------------------------------------------------------------------

    def _wait(self) -> None:
        poll = select.poll()
        reading = {self._bell_out: select.POLLIN}
        reading[self._master] = select.POLLIN | (select.POLLOUT if self._typed else 0)
        for channel in (self._launcher, self._view):
            if not channel.closed:
                reading[channel.fileno()] = select.POLLIN | (select.POLLOUT if channel.has_unsent else 0)
        reading.update(self._user.waits_for())
        for descriptor, events in reading.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(self._pause_ms()))
        self._drain_bell()
        if self._master in ready:
            self._pump()
        self._serve_channels()
        self._typed = (self._typed + self._user.read_typed())[:_MOST_UNTYPED]
        self._type()
        self._user.write()
        self._open_view()
        self._tell_questions()
        self._reap()

    def _pause_ms(self) -> int:
        if self._view_state == "waiting":
            return max(1, round(1000 * (self._begun + GRACE_S - time.monotonic())))
        return 250 if self._view_state == "open" or self._user.is_following else 1000

    def _pump(self) -> None:
        """Keep what the program printed; in pieces, so that everybody gets a turn."""
        for _ in range(16):
            try:
                data = os.read(self._master, _READ)
            except BlockingIOError:
                return
            except OSError:  # nobody has the terminal open any more
                data = b""
            if not data:
                self._hang_up()
                return
            self._nobody_writes = False
            self._quiet_since = time.monotonic()
            self._writer.write(data)
            self._user.has_more(self._writer.offset)

    def _hang_up(self) -> None:
        """Nobody has the program's terminal open: if the program lives, it may open it again."""
        self._nobody_writes = True
        self._reap()
        if self._ended is None:
            time.sleep(_HUNG_UP_PAUSE_S)

    def _type(self) -> None:
        if self._typed:
            with contextlib.suppress(BlockingIOError, OSError):
                self._typed = self._typed[os.write(self._master, self._typed) :]

    def _drain_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell_out, 64):
                pass

    # -- the program ---------------------------------------------------------------------------------

    def _reap(self) -> None:
        if self._ended is not None:
            return
        try:
            pid, status = os.waitpid(self._child, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            pid, status = self._child, 0
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            self._launcher.send(wire.STOPPED)
            return
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._process.returncode = code
        self._ended = code
        self._last_words()
        self._leave_others_alone()
        self._close_view()
        self._user.finish(_STUCK_S)
        self._launcher.send(wire.ENDED, f"{code} {self._writer.offset}".encode())
        self._flush_launcher()

    def _leave_others_alone(self) -> None:
        """Take the foreground: what the program left running is not hung up when this process ends."""
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._master, os.getpgrp())

    def _last_words(self) -> None:
        """Take what the program wrote before its end: it is all there already."""
        until = time.monotonic() + _SETTLE_S
        while time.monotonic() < until:
            before = self._writer.offset
            with contextlib.suppress(OSError):
                if not select.select([self._master], [], [], 0)[0]:
                    return
                self._writer.write(os.read(self._master, _READ))
            if self._writer.offset == before:
                return

    def _is_over(self) -> bool:
        """Whether the program has ended and left nobody behind who writes to its terminal."""
        return self._ended is not None and self._nobody_writes

    # -- the view and the launcher -------------------------------------------------------------------

    def _serve_channels(self) -> None:
        for message in self._launcher.receive():
            self._from_launcher(message)
        for message in self._view.receive():
            self._from_view(message)
        self._launcher.flush()
        self._view.flush()
        if self._view.closed and self._view_state in {"waiting", "open"}:
            self._view_left()

    def _from_launcher(self, message: Message) -> None:
        if message.kind == wire.FOLLOW:
            offset = int(message.body)
            self._user.follow(self._user.offset if offset < 0 else offset, typing=True)
            self._resize(*self._user.size())
        elif message.kind == wire.HOLD:
            self._user.give_back()
        elif message.kind == wire.GO_ON:
            with contextlib.suppress(OSError):
                os.killpg(self._child, signal.SIGCONT)

    def _from_view(self, message: Message) -> None:
        if message.kind == wire.HELLO and self._view_state == "absent":
            self._view_state = "waiting"
        elif message.kind == wire.TYPED:
            self._typed = (self._typed + message.body)[:_MOST_UNTYPED]
            self._quiet_since = time.monotonic()
        elif message.kind == wire.SIZE:
            rows, columns = struct.unpack("!HH", message.body)
            self._resize(rows, columns)
        elif message.kind == wire.LEAVE:
            self._view_left()

    def _open_view(self) -> None:
        if self._view_state != "waiting" or self._ended is not None:
            return
        if time.monotonic() < self._begun + GRACE_S:
            return
        self._view_state = "open"
        self._user.give_back()
        self._view.send(wire.OPEN)
        self._launcher.send(wire.VIEW_CAME, str(self._user.offset).encode())

    def _view_left(self) -> None:
        was, self._view_state = self._view_state, "gone"
        if self._ended is None:
            self._launcher.send(wire.VIEW_LEFT, f"{self._writer.offset} {was}".encode())
            if self._launcher.closed:
                self._user.follow(self._writer.offset, typing=True)

    def _close_view(self) -> None:
        if self._view_state != "gone":
            self._view.send(wire.CLOSE)

    def _tell_questions(self) -> None:
        """Tell the view whether the program waits for somebody to type."""
        if self._view_state != "open" or time.monotonic() - self._quiet_since < _PATIENCE_S:
            return
        asking = self._is_asking()
        if asking != self._asked:
            self._asked = asking
            self._view.send(wire.ASKING, b"1" if asking else b"0")

    def _is_asking(self) -> bool:
        try:
            if not termios.tcgetattr(self._master)[3] & termios.ICANON:
                return True  # it reads key by key: an editor of lines, a debugger
            reader = os.tcgetpgrp(self._master)
        except (OSError, termios.error):
            return False
        return waits_for_terminal(reader, self._name)

    def _resize(self, rows: int, columns: int) -> None:
        if rows and columns:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _flush_launcher(self) -> None:
        until = time.monotonic() + 1.0
        while self._launcher.has_unsent and not self._launcher.closed and time.monotonic() < until:
            time.sleep(0.005)
            self._launcher.flush()

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.write(self._bell, b"!")


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Let a signal pass."""
