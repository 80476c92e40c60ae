"""Short messages over a local socket that never blocks whoever sends them. Standard library only."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

# From the process that keeps the program's terminal to the launcher.
STARTED, REFUSED, ENDED, STOPPED, VIEW_CAME, VIEW_LEFT = b"s", b"x", b"e", b"z", b"c", b"l"
# From the launcher to it.
FOLLOW, HOLD, GO_ON = b"f", b"h", b"g"
# From the view to it.
HELLO, TYPED, SIZE, LEAVE = b"h", b"t", b"w", b"q"
# From it to the view.
OPEN, CLOSE, ASKING = b"o", b"c", b"a"

_HEAD = struct.Struct("!cI")
_MOST_UNSENT = 1 << 20
_MOST_READ = 1 << 16


class Message(NamedTuple):
    """A kind, one byte, and what belongs to it."""

    kind: bytes
    body: bytes = b""


class Channel:
    """One end of a socket.

    Args:
        end: The socket; closed with the channel.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._received = b""
        self._unsent = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the socket takes it."""
        return bool(self._unsent)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a message, now or when `flush` finds room; one too many for a stuck reader is dropped."""
        if len(self._unsent) < _MOST_UNSENT:
            self._unsent += _HEAD.pack(kind, len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes."""
        try:
            while self._unsent and not self.closed:
                self._unsent = self._unsent[self._end.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def receive(self) -> list[Message]:
        """Return the messages that are there; `closed` is set when the other end is gone."""
        try:
            while data := self._end.recv(_MOST_READ):
                self._received += data
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        return list(self._messages())

    def _messages(self) -> list[Message]:
        found = []
        while len(self._received) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._received)
            end = _HEAD.size + length
            if len(self._received) < end:
                break
            found.append(Message(kind, self._received[_HEAD.size : end]))
            self._received = self._received[end:]
        return found

    def close(self) -> None:
        """Close the socket."""
        self.closed = True
        self._end.close()
