"""The step log: what was written is read, once, whatever happens to writer, reader or file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traceml_ai.errors import TraceMLError
from traceml_ai.schema.step import HOT_COLUMNS, INDEX, N_COLUMNS, RAW, RECORD_BYTES, Flags
from traceml_ai.spool import layout, place
from traceml_ai.spool import writer as writing
from traceml_ai.spool.reader import LogReader, open_spool
from traceml_ai.spool.recording import remove
from traceml_ai.spool.writer import Identity, StepLogWriter

WHO = Identity(41, 0, 0, 1, 10, 20)
CLOSE = INDEX["close_ns"]


def record(close_ns: int) -> list[int]:
    values = [0] * N_COLUMNS
    values[CLOSE] = close_ns
    return values


@pytest.fixture
def log(tmp_path: Path) -> StepLogWriter:
    return StepLogWriter(str(tmp_path), WHO, capacity=8)


def closes(block: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[int]:
    return [int(value) for value in block[:, CLOSE]]


def test_records_come_back_in_order_over_many_segments(log: StepLogWriter, tmp_path: Path) -> None:
    for i in range(100):
        log.append(record(i))
    block = LogReader(tmp_path, 41).read_rest()
    assert closes(block) == list(range(100))
    assert [int(step) for step in block[:, INDEX["step"]]] == list(range(100))


def test_the_newest_record_is_not_read_while_it_may_change(log: StepLogWriter, tmp_path: Path) -> None:
    reader = LogReader(tmp_path, 41)
    log.append(record(1))
    assert closes(reader.read_new()) == []
    log.amend(record(2))
    log.append(record(3))
    assert closes(reader.read_new()) == [2]
    log.close()
    assert closes(reader.read_new()) == [3]
    assert closes(reader.read_new()) == []


def test_a_follower_sees_every_record_once(log: StepLogWriter, tmp_path: Path) -> None:
    reader = LogReader(tmp_path, 41)
    seen: list[int] = []
    for i in range(77):
        log.append(record(i))
        if i % 5 == 0:
            seen += closes(reader.read_new())
    seen += closes(reader.read_rest())
    assert seen == list(range(77))


def test_a_short_record_leaves_the_other_columns_zero(log: StepLogWriter, tmp_path: Path) -> None:
    for i in range(20):
        log.append([i + 1, *[0] * (HOT_COLUMNS - 1)])
    block = LogReader(tmp_path, 41).read_rest()
    assert closes(block) == list(range(1, 21))
    assert not block[:, INDEX["user_0_ns"]].any()


def test_time_stamps_are_read_as_durations(log: StepLogWriter, tmp_path: Path) -> None:
    stamps = [0] * HOT_COLUMNS
    times = {
        "begin": 1000,
        "fetch_begin": 1001,
        "fetch_end": 1011,
        "open": 1012,
        "forward_begin": 1013,
        "forward_end": 1033,
        "backward_begin": 1034,
        "backward_end": 1074,
        "optimizer_begin": 1075,
        "optimizer_end": 1080,
        "close": 1082,
        "own": 7,
        "samples": 4,
        "flags": int(Flags.RAW | Flags.MARKED),
    }
    for name, value in times.items():
        stamps[RAW[name]] = value
    log.append(stamps)
    (row,) = LogReader(tmp_path, 41).read_rest()
    expected = {
        "input_wait_ns": 10,
        "forward_ns": 20,
        "backward_ns": 40,
        "optimizer_ns": 5,
        "residual_other_ns": 1 + 1 + 1 + 2,
        "between_other_ns": 1 + 1,
        "own_ns": 7,
        "close_ns": 1082,
        "begin_ns": 1000 - 7,
        "samples": 4,
        "flags": int(Flags.MARKED),
    }
    assert {name: int(row[INDEX[name]]) for name in expected} == expected


def test_the_calibrated_cost_moves_from_the_residual_to_our_own(log: StepLogWriter, tmp_path: Path) -> None:
    values = record(10_000)
    values[INDEX["residual_other_ns"]] = 1500
    values[INDEX["between_other_ns"]] = 300
    values[INDEX["boundaries"]] = 4
    log.put(layout.OWN_PAIR_NS, 400)
    log.append(values)
    (row,) = LogReader(tmp_path, 41).read_rest()
    assert row[INDEX["residual_other_ns"]] == 0
    assert row[INDEX["between_other_ns"]] == 200
    assert row[INDEX["own_ns"]] == 1600


def test_files_are_private(log: StepLogWriter, tmp_path: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_disk_without_room_is_an_error_when_the_log_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_reserve", _no_space)
    with pytest.raises(OSError, match="No space"):
        StepLogWriter(str(tmp_path), WHO)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_drops_steps_and_counts_them(
    log: StepLogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(8):
        log.append(record(i))
    monkeypatch.setattr(writing, "_reserve", _no_space)
    for i in range(8, 13):
        log.append([i, *[0] * (HOT_COLUMNS - 1)])
    monkeypatch.undo()
    log.append(record(99))
    reader = LogReader(tmp_path, 41)
    assert closes(reader.read_rest()) == [*range(8), 99]
    assert reader.header.dropped == 5


def test_a_log_whose_place_has_filled_up_goes_on_elsewhere(
    log: StepLogWriter,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path_factory.mktemp("other")
    reserve = writing._reserve

    def only_there(fd: int, size: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().parent == tmp_path:
            _no_space(fd, size)
        reserve(fd, size)

    monkeypatch.setattr(writing, "_reserve", only_there)
    monkeypatch.setattr(place, "candidates", lambda: iter([tmp_path.parent, other]))
    for i in range(20):
        log.append(record(i))
    reader = LogReader(tmp_path, 41)
    assert closes(reader.read_rest()) == list(range(20))
    assert reader.header.dropped == 0
    assert len(list(other.iterdir())) == 2
    reader.discard_consumed()
    assert len(list(other.iterdir())) == 1
    remove(tmp_path)
    assert list(other.iterdir()) == []


def _no_space(_fd: int, _size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_nobody_reading_bounds_the_disk(
    log: StepLogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MAX_SEGMENTS", 3)
    early = LogReader(tmp_path, 41)
    for i in range(8 * 10):
        log.append(record(i))
    assert len(list(tmp_path.iterdir())) == 3
    assert closes(early.read_rest()) == [*range(8), *range(56, 80)]
    assert [int(s) for s in LogReader(tmp_path, 41).read_rest()[:, INDEX["step"]]] == list(range(56, 80))


def test_read_segments_can_be_deleted_while_the_writer_goes_on(log: StepLogWriter, tmp_path: Path) -> None:
    reader = LogReader(tmp_path, 41)
    for i in range(30):
        log.append(record(i))
    first = closes(reader.read_new())
    assert reader.consumed_bytes() == 3 * (layout.HEADER_BYTES + 8 * RECORD_BYTES)
    reader.discard_consumed()
    for i in range(30, 40):
        log.append(record(i))
    assert first + closes(reader.read_rest()) == list(range(40))


def test_a_log_that_is_removed_is_read_to_the_end_of_its_segment(log: StepLogWriter, tmp_path: Path) -> None:
    log.append(record(0))
    reader = LogReader(tmp_path, 41)
    assert closes(reader.read_new()) == []
    for path in tmp_path.iterdir():
        path.unlink()
    for i in range(1, 8):
        log.append(record(i))
    assert closes(reader.read_rest()) == list(range(8))


def test_a_log_of_another_version_is_refused_in_one_line(log: StepLogWriter, tmp_path: Path) -> None:
    path = tmp_path / layout.segment_name(41, 0)
    content = bytearray(path.read_bytes())
    content[layout.RECORD_SIZE : layout.RECORD_SIZE + 8] = (512).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(TraceMLError, match="another TraceML version"):
        LogReader(tmp_path, 41)
    assert open_spool(tmp_path) == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_gives_an_error_or_what_is_whole(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / str(data.draw(st.integers(0, 1 << 40)))
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    log = StepLogWriter(str(folder), WHO, capacity=8)
    for i in range(12):
        log.append(record(i))
    path = folder / layout.segment_name(41, data.draw(st.integers(0, 1)))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        block = LogReader(folder, 41).read_rest()
    except TraceMLError:
        return
    assert block.shape[1] == N_COLUMNS
    assert len(block) <= 16
