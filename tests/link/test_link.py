"""The link between nodes: every record once, whatever happens to either end, and nobody else gets in."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import zmq

from link.peers import KEYS, log, node, owner, steps_of, turn_until, write
from traceml_ai.link import frames
from traceml_ai.link.frames import Part, Report
from traceml_ai.link.keys import derive, new_secret
from traceml_ai.link.sockets import NO_KEY


def report(**changed: object) -> Report:
    fields = {"node": 1, "session": 7, "number": 0, "host": "host1", "clock_ns": 0, "parts": []}
    return Report(**{**fields, **changed})  # type: ignore[arg-type]


def part(**changed: object) -> Part:
    fields = {
        "pid": 100,
        "origin_ns": 1,
        "rank": 1,
        "local_rank": 0,
        "world_size": 4,
        "aborted": 0,
        "dropped": 0,
    }
    more = {"first": 0, "skipped": False, "records": b"\0\0\0\0\0"}
    return Part(**{**fields, **more, **changed})  # type: ignore[arg-type]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def test_records_arrive_once_while_the_log_grows(spool: Path) -> None:
    writer = log(spool, 100)
    with owner() as own, node(own.end.port, spool) as far:
        turn_until(lambda: steps_of(own.incoming) == [99], own.end, far.end)  # the newest may still change
        write(writer, 100)
        writer.close()
        far.outgoing.end(0)
        turn_until(lambda: own.incoming.is_complete, own.end, far.end)
        assert steps_of(own.incoming) == [200]
        assert own.incoming.remarks() == []
        turn_until(lambda: far.outgoing.is_done, own.end, far.end)


def test_an_owner_that_is_started_again_gets_every_record_once(spool: Path) -> None:
    writer = log(spool, 300)
    log(spool, 20, pid=200, rank=2).close()  # nothing new will come of it
    with owner() as first, node(first.end.port, spool) as far:
        turn_until(lambda: steps_of(first.incoming) == [299, 20], first.end, far.end)
        port = first.end.port
        first.end.close()
        write(writer, 50)
        far.end.turn()
        time.sleep(0.1)
        with owner(port, session=2) as second:
            far.outgoing.end(0)
            turn_until(lambda: second.incoming.is_complete, second.end, far.end)
            assert sorted(steps_of(second.incoming)) == [20, 350]


def test_what_is_no_longer_in_the_log_is_said_to_be_lost(spool: Path) -> None:
    log(spool, 200).close()
    for segment in sorted(spool.glob("*.tlog"))[:2]:
        segment.unlink()
    with owner() as own, node(own.end.port, spool) as far:
        far.outgoing.end(0)
        turn_until(lambda: own.incoming.is_complete, own.end, far.end)
        assert steps_of(own.incoming) == [200 - 128]
        assert "records 0 to 128" in own.notes.messages()[0]


def test_a_node_without_an_owner_loses_no_time(spool: Path) -> None:
    log(spool, 10)
    with node(1, spool) as far:
        begin = time.perf_counter()
        for _ in range(20):
            far.end.turn()
        assert time.perf_counter() - begin < 0.5
        assert not far.end.finish(0, 0.3)


def test_a_node_that_never_comes_is_named(spool: Path) -> None:
    log(spool, 5)
    with owner(nodes=3) as own, node(own.end.port, spool) as far:
        far.outgoing.end(1)
        turn_until(lambda: far.outgoing.is_done, own.end, far.end)
        assert not own.incoming.is_complete
        assert own.incoming.remarks() == [
            "Node 2 never came: its ranks are in no figure.",
            "Node 1 (host1): its program ended with exit code 1.",
        ]


def test_a_link_that_was_cut_is_said_with_when_the_node_was_last_heard(spool: Path) -> None:
    log(spool, 5)
    with owner() as own, node(own.end.port, spool) as far:
        turn_until(lambda: steps_of(own.incoming) == [4], own.end, far.end)
        assert "Node 1 (host1) was last heard" in own.incoming.remarks()[0]


def test_a_wrong_key_has_no_effect_and_is_counted(spool: Path) -> None:
    log(spool, 5)
    with owner() as own, node(own.end.port, spool, keys=derive(new_secret())) as far:
        turn_until(lambda: NO_KEY in own.incoming.refused, own.end, far.end)
        assert steps_of(own.incoming) == []


def test_the_right_owners_key_is_not_enough(spool: Path) -> None:
    log(spool, 5)
    half = derive(new_secret())._replace(owner=KEYS.owner)
    with owner() as own, node(own.end.port, spool, keys=half) as far:
        turn_until(lambda: NO_KEY in own.incoming.refused, own.end, far.end)
        assert steps_of(own.incoming) == []


def test_garbage_half_open_connections_and_strangers_do_not_keep_a_node_out(spool: Path) -> None:
    log(spool, 5)
    with owner() as own, node(own.end.port, spool) as far:
        raw = [socket.create_connection(("127.0.0.1", own.end.port)) for _ in range(50)]
        for each in raw[:25]:
            each.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        plain = zmq.Context()
        stranger = plain.socket(zmq.DEALER)
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(f"tcp://127.0.0.1:{own.end.port}")
        stranger.send(b"hello", zmq.NOBLOCK)
        far.outgoing.end(0)
        turn_until(lambda: own.incoming.is_complete, own.end, far.end)
        assert steps_of(own.incoming) == [5]
        turn_until(lambda: own.incoming.refused.get(NO_KEY, 0) >= 1, own.end, far.end)
        plain.destroy(0)
        for each in raw:
            each.close()


def test_a_flood_under_the_key_takes_the_owner_a_bounded_time_a_turn(spool: Path) -> None:
    log(spool, 5)
    with owner() as own, node(own.end.port, spool) as far, node(own.end.port, spool, number=9) as bad:
        frame = frames.encode(KEYS.run, report(node=9))
        turn_until(lambda: own.incoming.refused != {}, own.end, bad.end)
        for _ in range(2000):
            try:
                bad.end._socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                break
        begin = time.perf_counter()
        own.end.turn()
        assert time.perf_counter() - begin < 1.0
        far.outgoing.end(0)
        turn_until(lambda: own.incoming.is_complete, own.end, far.end)
        assert steps_of(own.incoming) == [5]


def test_a_replayed_report_counts_once() -> None:
    with owner() as own:
        first = own.incoming.take(report(parts=[part(records=one_record())]))
        again = own.incoming.take(report(parts=[part(records=one_record())]))
        assert first == again
        assert steps_of(own.incoming) == [1]


def test_records_sent_again_under_a_new_number_count_once() -> None:
    with owner() as own:
        for number in range(3):
            own.incoming.take(report(number=number, parts=[part(records=one_record())]))
        assert steps_of(own.incoming) == [1]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (report(node=0), "a node that this run does not have"),
        (report(node=2, parts=[part(pid=5)]), "a rank of another node"),
        (report(session=8, host="other"), "a node that is there already"),
        (report(session=8), "a node that is there already"),
        (report(number=1, parts=[part(rank=2)]), "another rank than it had"),
        (
            report(number=1, parts=[part(origin_ns=n, rank=-1) for n in range(2, 99)]),
            "more processes than it may have",
        ),
        (report(number=1, parts=[part(pid=1 << 22)]), "a process id that can't be"),
        (report(number=1, parts=[part(records=b"\xff" * 40)]), "a block claims"),
    ],
)
def test_a_peer_that_claims_what_is_not_its_own_changes_nothing(bad: Report, why: str) -> None:
    with owner(nodes=3) as own:
        own.incoming.take(report(parts=[part(records=one_record())]))
        taken = own.incoming.take(bad)
        assert steps_of(own.incoming)[0] == 1
        assert taken is None
        assert [
            each for each in own.incoming.remarks() if f"refused once: a peer {why}" in each or why in each
        ]


def one_record() -> bytes:
    import numpy as np

    from traceml_ai.link.blocks import encode_block
    from traceml_ai.schema.step import INDEX, N_COLUMNS

    block = np.zeros((1, N_COLUMNS), np.int64)
    block[0, INDEX["close_ns"]] = 5
    return encode_block(block)
