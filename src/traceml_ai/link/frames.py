"""What nodes and owner say to one another: one ZeroMQ message each, checked before it is believed.

A frame is ``TML`` and a version, the run's tag, and a message in MessagePack. A tag is no protection, the
key is; it keeps two runs of one user apart that were given the same address.
"""

from __future__ import annotations

from typing import Any

import msgspec

from traceml_ai.errors import TraceMLError
from traceml_ai.schema.samples import HostSample, MachineFacts

MAGIC = b"TML\x01"
TAG_BYTES = 8
LARGEST = 4 << 20
"""Bytes of a frame; ZeroMQ closes the connection of a peer that sends a larger one before it is read."""

MOST_RANKS = 1024
_INT64 = 1 << 63


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some records of one training process, and what is known of it."""

    pid: int
    origin_ns: int  # tells a process from a later one with its id
    rank: int  # -1: not known
    local_rank: int
    world_size: int
    aborted: int
    dropped: int
    first: int  # running number of the first record
    skipped: bool  # the records before it are no longer in the node's log
    records: bytes  # see `traceml_ai.link.blocks`
    facts: dict[str, Any] | None = None  # when they have changed


class End(msgspec.Struct, frozen=True, array_like=True):
    """How one process of a node ended."""

    pid: int
    status: int | None
    t_ns: int


class Report(msgspec.Struct, frozen=True, tag="report", array_like=True):
    """A node tells what is new."""

    node: int
    session: int  # of this sender; a new one starts again with number 0
    number: int  # counts the reports of a session, so that one that is sent again counts once
    host: str
    clock_ns: int  # what to add to its times to get nanoseconds since the epoch
    parts: list[Part]
    samples: list[HostSample] = []
    deaths: list[End] = []
    machine: MachineFacts | None = None
    ended: bool = False  # nothing will follow
    exit_code: int | None = None
    warnings: list[str] = []


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """How many records of a process the owner has."""

    pid: int
    origin_ns: int
    taken: int


class Answer(msgspec.Struct, frozen=True, tag="answer", array_like=True):
    """The owner tells what it has."""

    session: int
    number: int  # the report that this answers
    owner: int  # of this owner; another one has forgotten what the last one knew
    cursors: list[Cursor]


class Pulse(msgspec.Struct, frozen=True, tag="pulse", array_like=True):
    """How far a node's processes are; between two reports, and never answered."""

    node: int
    session: int
    pids: list[int]
    counts: bytes  # see `traceml_ai.link.pulses`


Message = Report | Answer | Pulse
_decoder = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


def encode(tag: bytes, message: Message) -> bytes:
    """Return a message as a frame."""
    return MAGIC + tag + _encoder.encode(message)


def decode(tag: bytes, frame: bytes) -> Message:
    """Return the message of a frame.

    Raises:
        TraceMLError: It is none of this run's, of another version, damaged, or its sizes can't be.
    """
    if len(frame) > LARGEST:
        raise TraceMLError("a frame is too large")
    if frame[:3] != MAGIC[:3]:
        raise TraceMLError("what came is no frame of TraceML's")
    if frame[:4] != MAGIC:
        raise TraceMLError("a frame is of another version of TraceML: use the same one on all nodes")
    if frame[4 : 4 + TAG_BYTES] != tag:
        raise TraceMLError("a frame is of another run")
    try:
        message = _decoder.decode(memoryview(frame)[4 + TAG_BYTES :])
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
        raise TraceMLError("a frame is damaged") from None
    if isinstance(message, Report):
        _check(message)
    if isinstance(message, Pulse) and len(message.pids) > MOST_RANKS:
        raise TraceMLError("a frame tells of more processes than a node has")
    return message


def _check(report: Report) -> None:
    if len(report.parts) > MOST_RANKS or len(report.samples) > MOST_RANKS:
        raise TraceMLError("a frame tells of more processes than a node has")
    numbers = [report.node, report.number, report.clock_ns, report.session]
    for part in report.parts:
        numbers += [part.pid, part.origin_ns, part.rank + 1, part.aborted, part.dropped, part.first]
        numbers += [part.local_rank + 1, part.world_size + 1]
    if not all(0 <= number < _INT64 for number in numbers):
        raise TraceMLError("a frame holds a number that can't be")
