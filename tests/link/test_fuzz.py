"""Whatever bytes come, over the link or from a file: a clear error or nothing, in bounded memory."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from link.peers import KEYS, log
from ranks_sim import simulate
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.tail import Tail
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.errors import TraceMLError
from traceml_ai.export.steps import encode_steps, kept_steps, rank_steps, read_steps
from traceml_ai.link import frames
from traceml_ai.link.blocks import MOST_RECORDS, decode_block, encode_block
from traceml_ai.link.frames import Part, Report
from traceml_ai.link.incoming import Incoming
from traceml_ai.live.snapshot import (
    SNAPSHOT_VERSION,
    Now,
    RankNow,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
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


STEPS = encode_steps(kept_steps(rank_steps(simulate(2, 12).inputs()), 0))
MEMBERS = zipfile.ZipFile(io.BytesIO(STEPS)).namelist()


def recompressed(archive: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return the archive with one member changed, its check sum right."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(changed, "w") as new:
        for each in old.namelist():
            data = old.read(each)
            new.writestr(each, change(data) if each == name else data)
    return changed.getvalue()


def read(folder: Path, data: bytes) -> int:
    """Read a file of kept steps; return the bytes its figures take, and 0 where there is a clear error."""
    path = folder / "steps.npz"
    path.write_bytes(data)
    try:
        return read_steps(path).rows.nbytes
    except TraceMLError as error:
        assert str(path) in str(error)  # noqa: PT017 - either is right
        return 0


@settings(max_examples=150, deadline=None)
@given(damaged(STEPS))
def test_a_damaged_file_of_kept_steps_is_a_clear_error_or_steps(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    assert read(tmp_path_factory.mktemp("steps"), data) <= 1 << 20


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MEMBERS), st.data())
def test_a_column_that_is_not_what_it_says_is_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    def change(member: bytes) -> bytes:
        return data.draw(damaged(member))

    assert read(tmp_path_factory.mktemp("steps"), recompressed(STEPS, name, change)) <= 1 << 20


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (-1,), (True,)])
def test_a_column_that_claims_to_be_enormous_takes_no_memory(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": shape})
    tracemalloc.start()
    try:
        assert read(tmp_path, recompressed(STEPS, "rank.npy", lambda _: header.getvalue())) == 0
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_column_that_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path: Path) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("rank.npy", "w") as member:
        for _ in range(300):
            member.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        assert read(tmp_path, bomb.getvalue()) == 0
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


SNAPSHOT = encode_snapshot(
    Snapshot(
        taken_at=1.0,
        name="r",
        now=Now(elapsed_s=2.0, ranks=[RankNow(rank=0, pid=7, steps=3)], phases_ms={"forward": 1.0}),
        summary=simulate(2, 30).summary(),
    )
)
HOSTILE = [
    b"\x81\xa3now\x81\xa5ranks\xdd\xff\xff\xff\xff",  # a list of four thousand million ranks
    b"\x81\xa4name\xdb\xff\xff\xff\xff",  # a name of four gigabytes
    b"\x81\xa3odd" + b"\x91" * 100_000,  # as many lists in one another
    msgspec.msgpack.encode({"version": SNAPSHOT_VERSION + 1, "taken_at": 1.0, "name": "r"}),
]


@settings(max_examples=300)
@given(damaged(SNAPSHOT) | st.binary(max_size=80))
def test_a_damaged_snapshot_is_no_snapshot_or_one(data: bytes) -> None:
    found = decode_snapshot(data)
    assert found is None or found.version == SNAPSHOT_VERSION


@pytest.mark.parametrize("data", HOSTILE)
def test_a_hostile_snapshot_or_one_of_another_version_is_none(data: bytes) -> None:
    assert decode_snapshot(data) is None
