"""Whatever bytes come, over the link or from a file: a clear error or nothing, in bounded memory."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from link.peers import KEYS, log
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.link import frames
from traceml_ai.link.blocks import MOST_RECORDS, decode_block, encode_block
from traceml_ai.link.frames import Part, Report
from traceml_ai.link.incoming import Incoming
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.step import N_COLUMNS
from traceml_ai.schema.summary import decode as decode_summary
from traceml_ai.spool import layout
from traceml_ai.spool.reader import read_facts
from traceml_ai.spool.runfolder import MANIFEST_FILE, Manifest, read_manifest

BLOCKS = hnp.arrays(np.int64, st.tuples(st.integers(0, 20), st.just(N_COLUMNS)), fill=st.just(0))


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Return this, cut short, with bits turned, with hostile numbers, or grown."""
    places = st.integers(0, max(0, len(data) - 1))

    def turn(at: int, bit: int) -> bytes:
        return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]

    def put(at: int, number: int) -> bytes:
        return (data[:at] + struct.pack("<q", number) + data[at + 8 :])[: len(data)]

    hostile = st.sampled_from([-1, 0, 1 << 31, (1 << 63) - 1, -(1 << 63)])
    return st.one_of(
        places.map(lambda at: data[:at]),
        st.builds(turn, places, st.integers(0, 7)),
        st.builds(put, places, hostile),
        st.binary(max_size=40).map(lambda more: data + more),
    )


@given(BLOCKS)
def test_a_block_comes_back_as_it_was(block: np.ndarray) -> None:
    assert np.array_equal(decode_block(encode_block(block)), block)


@given(st.data())
def test_a_damaged_block_is_a_clear_error_or_a_block_of_bounded_size(data: st.DataObject) -> None:
    whole = encode_block(np.arange(5 * N_COLUMNS).reshape(5, N_COLUMNS))
    try:
        block = decode_block(data.draw(damaged(whole) | st.binary(max_size=200)))
    except TraceMLError:
        return
    assert len(block) <= MOST_RECORDS


FRAME = frames.encode(
    KEYS.run,
    Report(
        node=1, session=7, number=0, host="h", clock_ns=0,
        parts=[Part(100, 1, 1, 0, 4, 0, 0, 0, False, encode_block(np.ones((2, N_COLUMNS), np.int64)))],
    ),
)  # fmt: skip


@settings(max_examples=300)
@given(damaged(FRAME) | st.binary(max_size=100).map(lambda body: frames.MAGIC + KEYS.run + body))
def test_a_damaged_frame_never_breaks_the_owner(frame: bytes) -> None:
    incoming = Incoming(2, 2, 1, 0, Notes(), now_s=lambda: 0.0)
    try:
        message = frames.decode(KEYS.run, frame)
    except TraceMLError:
        return
    if isinstance(message, Report):
        incoming.take(message)
        incoming.remarks()
        assert sum(aggregate.count for _, _, aggregate in incoming.ranks()) <= MOST_RECORDS


@settings(max_examples=80, deadline=None)
@given(BLOCKS)
def test_a_summary_comes_of_whatever_numbers_a_peer_sends(block: np.ndarray) -> None:
    incoming = Incoming(2, 2, 1, 0, Notes(), now_s=lambda: 0.0)
    part = Part(100, 1, 1, 0, 4, 0, 0, 0, False, encode_block(block))
    incoming.take(Report(node=1, session=7, number=0, host="h", clock_ns=0, parts=[part]))
    run = RunInfo(
        name="r", status="completed", exit_code=0, started_at="", start_ns=0, end_ns=10**9, command=[],
        traceml_version="0", warnings=incoming.remarks(),
    )  # fmt: skip
    summary = summarize(run, incoming.inputs(), [])
    assert incoming.refused == {} or incoming.inputs() == []
    assert summary.run.name == "r"


def test_frames_of_another_version_run_and_size_are_told_apart() -> None:
    for frame, why in [
        (b"TML\x02" + FRAME[4:], "another version"),
        (frames.MAGIC + b"otherrun" + FRAME[12:], "another run"),
        (b"GET / HTTP/1.1\r\n", "no frame"),
        (bytes(frames.LARGEST + 1), "too large"),
    ]:
        with pytest.raises(TraceMLError, match=why):
            frames.decode(KEYS.run, frame)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_step_log_costs_its_records_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    log(spool, 6, capacity=8).close()
    (path,) = spool.glob("*.tlog")
    whole = path.read_bytes()
    head = data.draw(damaged(whole[: layout.LAYOUT_OFFSET]))
    path.write_bytes(head + whole[layout.LAYOUT_OFFSET :] if len(head) >= layout.LAYOUT_OFFSET else head)
    tail = Tail(spool, Notes())
    tail.poll()
    tail.finish()
    assert sum(rank.aggregate.count for rank in tail.inputs()) <= 8


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["rank", "loaders", "warnings", "model", "node", "attempt"]), JSON))
def test_facts_of_the_wrong_type_count_as_not_known(
    tmp_path_factory: pytest.TempPathFactory, found: object
) -> None:
    folder = tmp_path_factory.mktemp("facts")
    (folder / layout.facts_name(1)).write_text(json.dumps(found))
    facts = read_facts(folder, 1)
    assert isinstance(facts.get("loaders", []), list)
    assert isinstance(facts.get("rank", 0), int | None)


@given(st.binary(max_size=60) | st.dictionaries(st.sampled_from(Manifest._fields), JSON).map(json.dumps))
def test_a_damaged_manifest_is_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, found: bytes | str
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / MANIFEST_FILE).write_bytes(
        found.encode("utf-8", "replace") if isinstance(found, str) else found
    )
    with pytest.raises(TraceMLError, match=str(folder)):
        read_manifest(folder)


PARTS = st.dictionaries(st.sampled_from(["schema_version", "run", "findings"]), JSON)


@given(st.binary(max_size=60) | PARTS.map(lambda value: json.dumps(value).encode()))
def test_a_damaged_summary_is_a_clear_error(found: bytes) -> None:
    with pytest.raises(TraceMLError):
        decode_summary(found)
