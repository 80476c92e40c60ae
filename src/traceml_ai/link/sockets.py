"""The two ends of the link, over ZeroMQ with CURVE: who lacks the run's key gets no byte through.

Neither end blocks or starts a thread of Python's: `turn` does what there is to do and returns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.link.frames import LARGEST, Answer, Pulse, Report, decode, encode
from traceml_ai.link.incoming import Incoming
from traceml_ai.link.keys import Keys
from traceml_ai.link.outgoing import Outgoing

SEND_EVERY_S = 1.0
RANKS_A_SECOND = 1000
"""Whose news the owner takes a second: the nodes of a larger job tell theirs more rarely."""

PULSE_EVERY_S = 0.9
"""Between two such reports a node says how far it is, for live views; its launcher looks once a second."""

AGAIN_S = 5.0
_TURN_S = 0.2
"""The owner does not listen longer in one turn, whoever floods it: its own ranks come first."""

_HANDSHAKE_MS = 5_000
_HEARTBEAT_MS = 5_000
_QUEUED = 4  # frames of one peer
_WAITING = 4096  # connections that the system holds for us
_ZAP = "inproc://zeromq.zap.01"
_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
NO_KEY = "a peer without the run's key"


def _prepare(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, LARGEST)
    socket.setsockopt(zmq.RCVHWM, _QUEUED)
    socket.setsockopt(zmq.SNDHWM, _QUEUED)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
    socket.setsockopt(zmq.IPV6, 1)


class OwnerEnd:
    """Listens, and takes what comes under the run's key.

    Args:
        address: ``host:port``; port 0 takes any.
        keys: The run's.
        incoming: Takes the reports.

    Raises:
        UsageError: The address can't be listened on.
    """

    def __init__(self, address: str, keys: Keys, incoming: Incoming) -> None:
        self._keys = keys
        self._incoming = incoming
        self._known = z85.decode(keys.node.public)
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(_ZAP)
        self._socket = self._context.socket(zmq.ROUTER)
        _prepare(self._socket)
        self._socket.setsockopt(zmq.BACKLOG, _WAITING)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.owner
        self._socket.zap_domain = b"traceml"
        self._monitor = self._socket.get_monitor_socket(_FAILED)
        try:
            self._socket.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self.close()
            raise UsageError(f"can't listen on {address} ({error.strerror}): name another --link") from None
        bound = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self.port = int(bound.rpartition(b":")[2])

    def turn(self) -> None:
        """Do what there is to do."""
        until = time.monotonic() + _TURN_S
        while time.monotonic() < until:
            busy = self._admit() | self._listen() | self._count_failures()
            if not busy:
                return

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to do."""
        poller = zmq.Poller()
        for socket in (self._zap, self._socket, self._monitor):
            poller.register(socket, zmq.POLLIN)
        poller.poll(round(timeout_s * 1000))

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._socket.close(0)
        self._zap.close(0)
        self._context.destroy(0)

    def _listen(self) -> bool:
        try:
            peer, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            if len(frames) != 1:
                raise TraceMLError("a message is not one frame")  # noqa: TRY301 - counted like the others
            message = decode(self._keys.run, frames[0])
            if isinstance(message, Pulse):
                self._incoming.take_pulse(message)
                return True
            if not isinstance(message, Report):
                raise TraceMLError("a peer speaks as if it were the owner")  # noqa: TRY301 - the same
        except TraceMLError as error:
            self._incoming.refuse(str(error))
            return True
        answer = self._incoming.take(message)
        if answer is not None:
            with contextlib.suppress(zmq.ZMQError):  # gone, or it does not read: it will ask again
                self._socket.send_multipart([peer, encode(self._keys.run, answer)], zmq.NOBLOCK)
        return True

    def _admit(self) -> bool:
        """Answer ZeroMQ's question whether a peer may come in (ZAP, RFC 27)."""
        try:
            asked = self._zap.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        is_known = len(asked) == 7 and asked[5] == b"CURVE" and asked[6] == self._known  # noqa: PLR2004
        code, text = (b"200", b"OK") if is_known else (b"400", b"no")
        request = asked[1] if len(asked) > 1 else b""
        self._zap.send_multipart([b"1.0", request, code, text, b"", b""])
        return True

    def _count_failures(self) -> bool:
        try:
            recv_monitor_message(self._monitor, zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._incoming.refuse(NO_KEY)
        return True


class NodeEnd:
    """Sends a node's reports to the owner.

    Args:
        address: The owner's ``host:port``.
        keys: The run's.
        outgoing: What there is to tell.
        every_s: Seconds from an answer to the next report.
    """

    def __init__(
        self, address: str, keys: Keys, outgoing: Outgoing, *, every_s: float = SEND_EVERY_S
    ) -> None:
        self._keys = keys
        self._every_s = every_s
        self._outgoing = outgoing
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        _prepare(self._socket)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 200)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.node
        self._socket.curve_serverkey = keys.owner.public
        self._socket.connect(f"tcp://{address}")
        self._report: Report | None = None
        self._due_s = self._again_s = self._pulse_s = 0.0

    def turn(self) -> None:
        """Do what there is to do."""
        while self._listen():
            pass
        now = time.monotonic()
        if self._report is None and now >= self._due_s:
            self._report = self._outgoing.report()
            self._again_s = now
        if self._report is not None and now >= self._again_s:
            with contextlib.suppress(zmq.Again):  # there is no connection, or the owner does not read
                self._socket.send(encode(self._keys.run, self._report), zmq.NOBLOCK)
                self._again_s = now + AGAIN_S

    @property
    def wants_pulse(self) -> bool:
        """Whether the owner was last told of this node's progress a second ago."""
        now = time.monotonic()
        return self._every_s > SEND_EVERY_S and self._report is None and now >= self._pulse_s + PULSE_EVERY_S

    def send_pulse(self, pulse: Pulse) -> None:
        """Say how far the node's processes are; nobody minds if it does not arrive."""
        self._pulse_s = time.monotonic()
        with contextlib.suppress(zmq.Again):
            self._socket.send(encode(self._keys.run, pulse), zmq.NOBLOCK)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is an answer."""
        self._socket.poll(round(timeout_s * 1000))

    def finish(self, exit_code: int | None, most_s: float, tick: Callable[[], Any] = lambda: None) -> bool:
        """Send what is left; return whether the owner has everything."""
        self._outgoing.end(exit_code)
        until = time.monotonic() + most_s
        while not self._outgoing.is_done and time.monotonic() < until:
            self._due_s = 0.0
            self.turn()
            tick()
            self.wait(0.05)
        return self._outgoing.is_done

    def close(self) -> None:
        """Hang up."""
        self._socket.close(0)
        self._context.destroy(0)

    def _listen(self) -> bool:
        try:
            frame = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        with contextlib.suppress(TraceMLError):  # the owner has the key: a mistake of another version's
            message = decode(self._keys.run, frame)
            if isinstance(message, Answer):
                self._take(message)
        return True

    def _take(self, answer: Answer) -> None:
        report = self._report
        if report is not None and (answer.number, answer.session) == (report.number, report.session):
            self._outgoing.answered(report, answer)
            self._report = None
            self._due_s = time.monotonic() + self._every_s
