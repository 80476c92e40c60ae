"""Between the reports of a very large job nodes say how far they are, for whoever looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from link.peers import KEYS, log, node, owner, steps_of, turn_until
from link.test_fuzz import damaged
from ranks_sim import simulate
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT
from traceml_ai.collect.notes import Notes
from traceml_ai.errors import TraceMLError
from traceml_ai.link import frames
from traceml_ai.link.blocks import encode_block
from traceml_ai.link.frames import Part, Pulse, Report
from traceml_ai.link.incoming import Incoming
from traceml_ai.link.pulses import decode_counts, encode_counts
from traceml_ai.live.recent import Recent

RECORDS = simulate(1, 40).records[0]


def aggregate(steps: int) -> RankAggregate:
    made = RankAggregate()
    made.add(RECORDS[:steps])
    return made


def pulse(steps: int, *, pid: int = 100, number: int = 1, session: int = 7) -> Pulse:
    return Pulse(number, session, [pid], encode_counts([aggregate(steps)]))


def incoming(steps: int) -> Incoming:
    """An owner that got so many records of one process."""
    made = Incoming(2, 2, 1, 0, Notes(), now_s=lambda: 0.0)
    part = Part(100, 1, 1, 0, 2, 0, 0, 0, False, encode_block(RECORDS[:steps]))
    made.take(Report(node=1, session=7, number=0, host="h", clock_ns=0, parts=[part]))
    return made


def test_a_pulse_shows_the_steps_whose_records_are_still_to_come() -> None:
    owner_has = incoming(10)
    owner_has.take_pulse(pulse(25))
    ((_, _, running),) = owner_has.ranks()
    true = aggregate(25)
    assert running.count == 25
    for name in ("forward_ns", "step_ns", "samples"):
        assert running.sums[EXT[name]] == true.sums[EXT[name]]
    assert owner_has.inputs()[0].aggregate.count == 10  # no figure of the summary is made of pulses


def test_a_live_view_shows_the_same_window_of_pulses_as_of_records() -> None:
    of_records, of_pulses, owner_has = Recent(), Recent(), incoming(10)
    of_records.look(aggregate(10), 0)
    of_pulses.look(owner_has.ranks()[0][2], 0)
    owner_has.take_pulse(pulse(25))
    window = of_pulses.look(owner_has.ranks()[0][2], 10**9)
    assert window == of_records.look(aggregate(25), 10**9)
    assert window.steps == 15


def test_records_that_are_ahead_of_a_late_pulse_are_shown_instead() -> None:
    owner_has = incoming(30)
    owner_has.take_pulse(pulse(25))
    assert owner_has.ranks()[0][2].count == 30


@pytest.mark.parametrize("stranger", [{"number": 2}, {"session": 8}, {"pid": 101}])
def test_a_pulse_of_nobody_known_changes_nothing(stranger: dict[str, int]) -> None:
    owner_has = incoming(10)
    owner_has.take_pulse(pulse(25, **stranger))
    assert owner_has.ranks()[0][2].count == 10


@given(st.binary(max_size=300), st.integers(0, 3))
def test_bytes_that_are_no_counts_are_a_clear_error(data: bytes, processes: int) -> None:
    try:
        beats = decode_counts(data, processes)
    except TraceMLError as error:
        assert "a pulse" in str(error)  # noqa: PT017 - either is right
        return
    assert len(beats) == processes
    assert all((beat.sums >= 0).all() for beat in beats)


@settings(max_examples=200)
@given(damaged(frames.encode(KEYS.run, pulse(25))))
def test_a_damaged_frame_of_a_pulse_never_breaks_the_owner(frame: bytes) -> None:
    owner_has = incoming(10)
    try:
        message = frames.decode(KEYS.run, frame)
    except TraceMLError:
        return
    if isinstance(message, Pulse):
        owner_has.take_pulse(message)
        assert owner_has.inputs()[0].aggregate.count == 10


def test_numbers_that_cant_be_are_refused_and_counted() -> None:
    owner_has = incoming(10)
    row = np.frombuffer(encode_counts([aggregate(25)]), np.int64).copy()
    row[1] = 26  # observed in more steps than there are
    owner_has.take_pulse(Pulse(1, 7, [100], row.tobytes()))
    assert owner_has.ranks()[0][2].count == 10
    assert owner_has.refused == {"a pulse holds a number that can't be": 1}


def test_a_frame_of_a_pulse_comes_back_as_it_was() -> None:
    assert frames.decode(KEYS.run, frames.encode(KEYS.run, pulse(25))) == pulse(25)


def test_nodes_that_report_rarely_are_followed_all_the_same(tmp_path: Path) -> None:
    log(tmp_path / "spool", 20).close()
    with owner() as own, node(own.end.port, tmp_path / "spool", every_s=60.0) as far:
        turn_until(lambda: steps_of(own.incoming) == [20], own.end, far.end)
        ahead = aggregate(35)
        turn_until(lambda: far.end.wants_pulse, own.end, far.end)
        far.end.send_pulse(far.outgoing.pulse([(100, 1, ahead)]))
        assert not far.end.wants_pulse  # not again within the second
        turn_until(lambda: steps_of(own.incoming) == [35], own.end, far.end)


def test_nodes_that_report_every_second_send_no_pulse(tmp_path: Path) -> None:
    log(tmp_path / "spool", 20).close()
    with owner() as own, node(own.end.port, tmp_path / "spool") as far:
        turn_until(lambda: steps_of(own.incoming) == [20], own.end, far.end)
        assert not far.end.wants_pulse
