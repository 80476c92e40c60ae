"""The wire between two nodes of one machine, which can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Proxy:
    """Passes connections on to a port of the loopback address.

    Args:
        to: That port.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._cut_until = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, long_s: float) -> None:
        """Break every connection, and let none come about for so long."""
        self._cut_until = time.monotonic() + long_s
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut(0)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if time.monotonic() < self._cut_until:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._to), 2)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.close()
