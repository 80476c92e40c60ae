"""How old what a live view shows of a very large job is, and what that costs its owner.

    python benchmarks/live_ranks.py [--nodes N] [--ranks N] [--peers N] [--seconds S] [--json]

1,024 nodes of 8 ranks at 5 steps a second. As many peers as asked for are real sockets under CURVE in a
process of their own, and say once a second how far they are; pulses of the other nodes go through the same
decoding, as do the records of all nodes, as often as they come in such a job. The owner does what a launcher
does while somebody looks. The delay of a snapshot is the time from the end of the first step that it lacks of
any rank to when it is written. Targets: 2 s, one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from link import STEPS_A_SECOND, report
from traceml_ai.analyze.aggregate import RankAggregate
from traceml_ai.analyze.columns import EXT, N_EXT
from traceml_ai.collect.notes import Notes
from traceml_ai.link import frames
from traceml_ai.link.frames import Pulse, Report
from traceml_ai.link.incoming import Incoming
from traceml_ai.link.keys import Keys, derive, new_secret
from traceml_ai.link.pulses import encode_counts
from traceml_ai.link.sockets import RANKS_A_SECOND, OwnerEnd
from traceml_ai.live.feed import WATCHED_FILE, Feed, RankState, State
from traceml_ai.live.snapshot import SNAPSHOT_FILE, decode_snapshot

MOST_S, MOST_CORES = 2.0, 1.0
PULSE_S = 1.0  # a launcher looks round once a second
_STEP_S = 1 / STEPS_A_SECOND


def pulse(node: int, ranks: int, begin_s: float) -> Pulse:
    """Return what a node says now; its ranks step together, `STEPS_A_SECOND`."""
    made = RankAggregate()
    made.count = int((time.time() - begin_s) / _STEP_S)
    made.sums = np.full(N_EXT, made.count * 1_000_000, dtype=np.int64)
    made.sums[EXT["samples"]] = made.count * 8
    made.observed = dict.fromkeys(made.observed, made.count)
    return Pulse(node, node, list(range(1, ranks + 1)), encode_counts([made] * ranks))


def send(port: int, keys: Keys, peers: int, ranks: int, times: tuple[float, float]) -> None:
    """Be so many nodes: a report each first, then a pulse a second, spread over it."""
    begin_s, until_s = times
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, peers + 10)
    sockets = []
    for node in range(1, peers + 1):
        socket = context.socket(zmq.DEALER)
        socket.curve_publickey, socket.curve_secretkey = keys.node
        socket.curve_serverkey = keys.owner.public
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.send(frames.encode(keys.run, report(node, 0, ranks, 5)))
        sockets.append(socket)
    for socket in sockets:
        socket.recv()
    due = time.time()
    while time.time() < until_s:
        for node, socket in enumerate(sockets, 1):
            time.sleep(max(0.0, due + (node - 1) / peers * PULSE_S - time.time()))
            socket.send(frames.encode(keys.run, pulse(node, ranks, begin_s)))
        due += PULSE_S
    context.destroy(0)


class Replay:
    """The nodes that have no socket: what they send goes through decoding and taking in as well.

    Args:
        incoming: The owner's.
        keys: The run's.
        nodes: The number of all nodes.
        peers: So many have a socket, for their pulses.
        ranks: Of each.
        every_s: Seconds between two reports of one.
    """

    def __init__(
        self, incoming: Incoming, keys: Keys, nodes: int, peers: int, ranks: int, every_s: float
    ) -> None:
        self.incoming, self.keys, self.ranks, self.every_s = incoming, keys, ranks, every_s
        self._peers = peers
        self.spent_s = 0.0  # by this benchmark, for making them
        self._pulse_due = {node: node / nodes * PULSE_S for node in range(peers + 1, nodes + 1)}
        self._report_due = {node: node / nodes * every_s for node in range(1, nodes + 1)}
        self._number = {node: int(node <= peers) for node in self._report_due}
        steps = round(every_s * STEPS_A_SECOND)
        # Making blocks takes longer than reading them: one node's go round, under the numbers of all.
        self._parts = [report(1, number, ranks, steps).parts for number in range(8)]

    def first(self) -> None:
        """The first report of each, which those with a socket send themselves."""
        for node in self._pulse_due:
            self._report(node)

    def go(self, now_s: float, begin_s: float) -> None:
        """Take in what is due."""
        for node in [node for node, due_s in self._report_due.items() if now_s >= due_s]:
            self._report_due[node] += self.every_s
            self._report(node)
        for node in [node for node, due_s in self._pulse_due.items() if now_s >= due_s]:
            self._pulse_due[node] += PULSE_S
            frame = self._made(partial(self._pulse, node, begin_s))
            message = frames.decode(self.keys.run, frame)
            assert isinstance(message, Pulse)
            self.incoming.take_pulse(message)

    def _pulse(self, node: int, begin_s: float) -> bytes:
        return frames.encode(self.keys.run, pulse(node, self.ranks, begin_s))

    def _made(self, make: Callable[[], bytes]) -> bytes:
        begin = time.process_time()
        frame = make()
        self.spent_s += time.process_time() - begin
        return frame

    def _report(self, node: int) -> None:
        number = self._number[node]
        self._number[node] += 1
        frame = self._made(partial(self._frame, node, number))
        message = frames.decode(self.keys.run, frame)
        assert isinstance(message, Report)
        assert self.incoming.take(message) is not None

    def _frame(self, node: int, number: int) -> bytes:
        parts = [
            type(part)(*(part.pid, 1, node * self.ranks + at, at, 0, 0, 0, part.first, False, part.records))
            for at, part in enumerate(self._parts[number % len(self._parts)])
        ]
        made = Report(node=node, session=node, number=number, host="h", clock_ns=0, parts=parts)
        return frames.encode(self.keys.run, made)


def measure(nodes: int, ranks: int, peers: int, seconds: float) -> dict[str, Any]:
    keys = derive(new_secret())
    incoming = Incoming(nodes + 1, ranks, 1, 0, Notes(), now_s=time.monotonic)
    owner = OwnerEnd("127.0.0.1:0", keys, incoming)
    every_s = max(1.0, nodes * ranks / RANKS_A_SECOND)
    replay = Replay(incoming, keys, nodes, peers, ranks, every_s)
    replay.first()
    # Long ago: pulses are ahead of the records throughout, and what is shown.
    times = (time.time() - 1000.0, time.time() + 30 + seconds)
    sender = multiprocessing.get_context("spawn").Process(
        target=send, args=(owner.port, keys, peers, ranks, times)
    )
    sender.start()
    while len(incoming.ranks()) < nodes * ranks:
        owner.wait(0.05)
        owner.turn()
    with tempfile.TemporaryDirectory() as folder:
        found = _follow(Path(folder), owner, incoming, replay, times[0], seconds)
    sender.terminate()
    sender.join()
    owner.close()
    return {
        "nodes": nodes,
        "ranks": nodes * ranks,
        "real_peers": peers,
        **found,
        "refused": len(incoming.refused),
    }


def _follow(
    spool: Path, owner: OwnerEnd, incoming: Incoming, replay: Replay, begin_s: float, seconds: float
) -> dict[str, Any]:
    feed = Feed(spool)
    delays, snapshots = [], 0
    start, spent, made_s, looked = time.monotonic(), time.process_time(), replay.spent_s, 0.0
    while (now := time.monotonic() - start) < seconds:
        (spool / WATCHED_FILE).touch()
        owner.turn()
        replay.go(now, begin_s)
        ranks = [RankState(*each) for each in incoming.ranks()] if feed.pause_s() == 0.0 else []
        if ranks:
            feed.publish(State("job", 0, ranks, [], None, None))
            snapshots += 1
            begin_look = time.process_time()
            if now > 3 * PULSE_S:
                delays.append(_delay_s(spool, begin_s))
            looked += time.process_time() - begin_look
        owner.wait(min(0.02, feed.pause_s() or 0.0))
    spent = time.process_time() - spent - looked - (replay.spent_s - made_s)
    return {
        "snapshots": snapshots,
        "seconds_between": round(seconds / snapshots, 2),
        "worst_delay_s": round(max(delays), 2),
        "mean_delay_s": round(float(np.mean(delays)), 2),
        "cores": round(spent / seconds, 2),
    }


def _delay_s(spool: Path, begin_s: float) -> float:
    snapshot = decode_snapshot((spool / SNAPSHOT_FILE).read_bytes())
    assert snapshot is not None
    assert snapshot.now is not None
    fewest = min(each.steps for each in snapshot.now.ranks)
    # The step after the newest that is shown has not ended for longer than this.
    return time.time() - (begin_s + (fewest + 1) * _STEP_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--peers", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    row = measure(args.nodes, args.ranks, min(args.peers, args.nodes), args.seconds)
    print(json.dumps(row) if args.json else "\n".join(f"{name:18} {value}" for name, value in row.items()))
    return 0 if row["worst_delay_s"] <= MOST_S and row["cores"] <= MOST_CORES and not row["refused"] else 1


if __name__ == "__main__":
    sys.exit(main())
