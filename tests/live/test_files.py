"""The files between a run and whoever looks: output, snapshots, messages."""

from __future__ import annotations

import resource
import signal
import socket
from pathlib import Path

import pytest

from live.runs import LiveRun, long_ago
from traceml_ai.errors import UsageError
from traceml_ai.live.feed import WATCHED_FILE
from traceml_ai.live.output import PREFIX, SEGMENTS, FileReader, OutputReader, OutputWriter
from traceml_ai.live.saved import Saver
from traceml_ai.live.snapshot import SNAPSHOT_FILE, decode_snapshot
from traceml_ai.live.source import Source
from traceml_ai.live.wire import Channel, Message


def test_a_reader_gets_what_was_written_whoever_reads_when(tmp_path: Path) -> None:
    writer, early = OutputWriter(tmp_path, segment_bytes=10), OutputReader(tmp_path)
    got = b""
    for piece in (b"hello ", b"world, ", b"", b"this ", b"is a longer one ", b"."):
        writer.write(piece)
        got += early.read()
    late = OutputReader(tmp_path)

    assert got == b"hello world, this is a longer one ."
    assert b"".join(iter(late.read, b"")) == got
    assert early.lost == late.lost == 0


def test_output_takes_a_bounded_place_and_a_late_reader_knows_what_it_missed(tmp_path: Path) -> None:
    writer = OutputWriter(tmp_path, segment_bytes=100)
    for number in range(1000):
        writer.write(b"%09d\n" % number)
    reader = OutputReader(tmp_path)
    got = b"".join(iter(reader.read, b""))

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100 * (SEGMENTS + 1)
    assert reader.lost == 10_000 - len(got)
    assert got.endswith(b"%09d\n" % 999)


def test_a_reader_that_is_far_behind_can_skip_to_the_end(tmp_path: Path) -> None:
    OutputWriter(tmp_path).write(b"a" * 1000 + b"end")
    reader = OutputReader(tmp_path)
    reader.skip_to_last(3)

    assert reader.read() == b"end"
    assert reader.lost == 1000


def test_output_that_the_disk_refuses_is_lost_and_nothing_else(tmp_path: Path) -> None:
    writer, reader = OutputWriter(tmp_path), OutputReader(tmp_path)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(b"before"), usual[1]))
        writer.write(b"before")
        writer.write(b" lost ")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    writer.write(b"after")

    assert b"".join(iter(reader.read, b"")) == b"beforeafter"
    assert reader.lost == len(b" lost ")


def test_a_plain_file_is_shown_as_a_terminal_would(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\n")

    assert FileReader(tmp_path / "log").read() == b"one\r\ntwo\r\n"


def test_the_output_is_saved_byte_by_byte_up_to_a_limit(tmp_path: Path) -> None:
    spool, folder = tmp_path / "spool", tmp_path / "run"
    spool.mkdir()
    folder.mkdir()
    writer, saver = OutputWriter(spool), Saver(spool, folder, most=2000)
    writer.write(bytes(range(256)))
    saver.copy()
    assert (folder / "output.log").read_bytes() == bytes(range(256))
    for _ in range(20):
        writer.write(b"x" * 200)
        saver.copy()

    saved = (folder / "output.log").read_bytes()
    assert saved.endswith(b"the rest is left out: 0 MiB are reached]\n")
    assert len(saved) < 2300


def test_messages_arrive_whole_and_in_order_and_never_block_the_sender() -> None:
    left, right = (Channel(end) for end in socket.socketpair())
    for number in range(3000):
        left.send(b"t", b"%d" % number * 100)
    got: list[Message] = []
    while left.has_unsent:
        got += right.receive()
        left.flush()
    got += right.receive()

    assert [message.body for message in got[:2]] == [b"0" * 100, b"1" * 100]
    assert all(message == (b"t", b"%d" % number * 100) for number, message in enumerate(got))
    left.close()
    assert right.receive() == []
    assert right.closed
    right.close()


def test_nothing_is_written_while_nobody_looks(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    run.train(100)
    run.feed.publish(run.state())
    assert not (run.spool / SNAPSHOT_FILE).exists()

    source = Source(run.folder)
    assert source.snapshot() is None
    run.feed.publish(run.state())
    seen = source.snapshot()
    assert seen is not None
    assert seen.now is not None
    assert seen.now.steps == 100

    long_ago(run.spool / WATCHED_FILE)
    assert run.feed.pause_s() is None


def test_snapshots_come_twice_a_second_and_no_more_often(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    run.train(100)
    first = run.publish()
    (run.spool / SNAPSHOT_FILE).unlink()
    run.clock.now_ns += 400_000_000
    assert 0 < (run.feed.pause_s() or 0) <= 0.1
    run.feed.publish(run.state())
    assert not (run.spool / SNAPSHOT_FILE).exists()
    run.clock.now_ns += 100_000_001
    run.feed.publish(run.state())

    later = Source(run.folder).snapshot()
    assert later is not None
    assert later.now is not None
    assert first.now is not None
    assert later.now.elapsed_s > first.now.elapsed_s


def test_the_window_holds_the_last_seconds_and_the_curve_the_whole_run(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    run.train(1000)
    run.publish()
    run.train(1000, slower=2.0)
    now = run.publish().now

    assert now is not None
    assert now.window_steps == 1000
    assert now.step_ms == pytest.approx(8 + 6 + 10 + 1.5 + 0.3, rel=0.02)
    assert now.phases_ms["input_wait"] == pytest.approx(8.0, rel=0.02)
    assert now.phases_ms["h2d"] is None
    assert (now.curve.first_step[0], now.steps) == (0, 2000)
    assert now.curve.mean_ms[-1] / now.curve.mean_ms[0] == pytest.approx(2.0, rel=0.15)


def test_a_run_without_a_step_has_no_figures_rather_than_zeros(tmp_path: Path) -> None:
    now = LiveRun(tmp_path).publish().now

    assert now is not None
    assert (now.step_ms, now.phases_ms, now.samples_per_sec, now.curve.mean_ms) == (None, {}, None, [])


def test_a_finished_run_is_its_final_summary(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    run.train(300)
    run.publish()
    run.analyse("completed")
    seen = Source(run.folder).snapshot()

    assert seen is not None
    assert (seen.status, seen.now) == ("completed", None)


def test_a_half_written_or_newer_snapshot_is_not_shown() -> None:
    assert decode_snapshot(b"") is None
    assert decode_snapshot(b"\x83\xa7version\xcd\x03\xe8") is None


def test_output_that_goes_to_a_file_is_followed_there(tmp_path: Path) -> None:
    run = LiveRun(tmp_path)
    found = Source(run.folder).output()
    stdout = Path("/proc/self/fd/1").readlink() if Path("/proc/self/fd/1").exists() else Path()

    # This process is the run's program: its standard output is whatever the tests were started with.
    assert (found.reader is not None) == stdout.is_file()
    assert found.reader is not None or "can't be followed" in found.why_not


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no run folder \(no run.json in it\)"):
        Source(tmp_path)


def test_files_of_the_output_are_private(tmp_path: Path) -> None:
    OutputWriter(tmp_path).write(b"secret")

    (path,) = tmp_path.glob(f"{PREFIX}*")
    assert path.stat().st_mode & 0o777 == 0o600
