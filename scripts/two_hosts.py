"""Two hosts on this machine: network namespaces with a wire between them. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

SKIPPED = 77  # the exit code of a script that can't have them
_PREFIX = f"tml{os.getpid()}"
HOSTS, _WIRES = [f"{_PREFIX}n{i}" for i in (0, 1)], [f"{_PREFIX}w{i}" for i in (0, 1)]
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


class NotAllowedError(Exception):
    """There can be no network namespaces here."""


@contextmanager
def two_hosts() -> Iterator[None]:
    """Make the hosts, and remove them afterwards.

    Raises:
        NotAllowedError: The kernel, or who runs this, doesn't let them be made.
    """
    try:
        try:
            _build()
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotAllowedError(f"network namespaces are not allowed here ({error})") from error
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


def _build() -> None:
    for host in HOSTS:
        _ip("netns", "add", host)
        _ip("-n", host, "link", "set", "lo", "up")
    _ip("link", "add", _WIRES[0], "type", "veth", "peer", "name", _WIRES[1])
    for host, wire, address in zip(HOSTS, _WIRES, ADDRESSES, strict=True):
        _ip("link", "set", wire, "netns", host)
        _ip("-n", host, "address", "add", f"{address}/24", "dev", wire)
        _ip("-n", host, "link", "set", wire, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def cut_the_wire() -> None:
    """Nothing passes between the hosts from here on."""
    _ip("-n", HOSTS[1], "link", "set", _WIRES[1], "down")


def mend_the_wire() -> None:
    """What is sent arrives again."""
    _ip("-n", HOSTS[1], "link", "set", _WIRES[1], "up")


def on_host(number: int, *command: str) -> list[str]:
    """Return the command that runs this on one of the hosts."""
    return ["ip", "netns", "exec", HOSTS[number], *command]
