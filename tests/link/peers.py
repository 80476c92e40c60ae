"""Both ends of a link in one process, over real sockets, with real step logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from traceml_ai.collect.notes import Notes
from traceml_ai.link.incoming import Incoming
from traceml_ai.link.keys import Keys, derive, new_secret
from traceml_ai.link.outgoing import Outgoing
from traceml_ai.link.sockets import SEND_EVERY_S, NodeEnd, OwnerEnd
from traceml_ai.schema.step import INDEX, N_COLUMNS
from traceml_ai.spool.writer import Identity, StepLogWriter

KEYS = derive(new_secret())
PATIENCE_S = 20.0


class Owner(NamedTuple):
    end: OwnerEnd
    incoming: Incoming
    notes: Notes


class Node(NamedTuple):
    end: NodeEnd
    outgoing: Outgoing


@contextmanager
def owner(
    port: int = 0, *, nodes: int = 2, session: int = 1, ranks: int = 2, keys: Keys = KEYS
) -> Iterator[Owner]:
    notes = Notes()
    incoming = Incoming(nodes, ranks, session, 0, notes, now_s=time.monotonic)
    end = OwnerEnd(f"127.0.0.1:{port}", keys, incoming)
    try:
        yield Owner(end, incoming, notes)
    finally:
        end.close()


@contextmanager
def node(
    port: int,
    spool: Path,
    *,
    number: int = 1,
    session: int = 7,
    keys: Keys = KEYS,
    every_s: float = SEND_EVERY_S,
) -> Iterator[Node]:
    outgoing = Outgoing(spool, number, f"host{number}", session)
    end = NodeEnd(f"127.0.0.1:{port}", keys, outgoing, every_s=every_s)
    try:
        yield Node(end, outgoing)
    finally:
        end.close()


def log(spool: Path, steps: int, *, pid: int = 100, rank: int = 1, capacity: int = 64) -> StepLogWriter:
    spool.mkdir(mode=0o700, exist_ok=True)
    writer = StepLogWriter(str(spool), Identity(pid, rank, 0, 4, 1, 1), capacity=capacity)
    write(writer, steps)
    return writer


def write(writer: StepLogWriter, steps: int) -> None:
    for _ in range(steps):
        values = [0] * N_COLUMNS
        values[INDEX["close_ns"]] = (writer.count + 1) * 1_000_000
        values[INDEX["forward_ns"]] = 1_000_000
        writer.append(values)


def turn_until(done: Callable[[], bool], *ends: OwnerEnd | NodeEnd, patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        for end in ends:
            end.turn()
        time.sleep(0.01)


def steps_of(incoming: Incoming) -> list[int]:
    return [aggregate.count for _, _, aggregate in incoming.ranks()]
