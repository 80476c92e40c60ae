"""What the owner of a very large run takes: 1,024 nodes of 8 ranks at 5 steps a second, into one process.

    python benchmarks/link.py [--nodes N] [--ranks N] [--peers N] [--rounds N] [--json]

Real encoded blocks. As many peers as asked for are real sockets under CURVE, in a process of their own; the
reports of the other nodes go through the same decoding and taking in. A round is what the nodes send in the
time between two of their reports; what is measured is the owner's processor time, ZeroMQ's thread included,
a second of the run, and its memory. Targets: one core, 1 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from typing import Any

import numpy as np
import zmq

from traceml_ai.collect.notes import Notes
from traceml_ai.link import frames
from traceml_ai.link.blocks import encode_block
from traceml_ai.link.frames import Part, Report
from traceml_ai.link.incoming import Incoming
from traceml_ai.link.keys import Keys, derive, new_secret
from traceml_ai.link.sockets import RANKS_A_SECOND, OwnerEnd
from traceml_ai.schema.step import INDEX, N_COLUMNS

STEPS_A_SECOND = 5
MOST_CORES, MOST_MB = 1.0, 1000.0
_MS = 1_000_000
_MEAN_MS = {"input_wait": 2, "forward": 60, "backward": 110, "optimizer": 8, "residual_other": 1}


def report(node: int, number: int, ranks: int, steps: int) -> Report:
    """Return what a node tells in one round."""
    first = number * steps
    parts = []
    for local in range(ranks):
        rank = node * ranks + local
        parts.append(Part(local + 1, 1, rank, local, 0, 0, 0, first, False, block(rank, first, steps)))
    return Report(node=node, session=node, number=number, host=f"node{node}", clock_ns=0, parts=parts)


def block(seed: int, first: int, steps: int) -> bytes:
    """Return encoded records of one rank."""
    rng = np.random.default_rng((seed, first))
    records = np.zeros((steps, N_COLUMNS), dtype=np.int64)
    for name, ms in _MEAN_MS.items():
        records[:, INDEX[f"{name}_ns"]] = ms * _MS * rng.normal(1, 0.02, steps)
    step = np.arange(first, first + steps)
    records[:, INDEX["step"]] = step
    records[:, INDEX["close_ns"]] = (step + 1) * (1_000_000_000 // STEPS_A_SECOND)
    records[:, INDEX["begin_ns"]] = records[:, INDEX["close_ns"]] - records.sum(axis=1) % _MS
    for name in ("microbatches", "updates", "fetches", "samples", "observed"):
        records[:, INDEX[name]] = 31
    return encode_block(records)


def send(port: int, keys: Keys, peers: int, rounds: int, ranks: int, steps: int) -> None:
    """Be so many nodes; each sends its next report when the last was answered."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, peers + 10)
    sockets: dict[zmq.Socket[bytes], tuple[int, int]] = {}
    poller = zmq.Poller()
    for node in range(1, peers + 1):
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.curve_publickey, socket.curve_secretkey = keys.node
        socket.curve_serverkey = keys.owner.public
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.send(frames.encode(keys.run, report(node, 0, ranks, steps)))
        sockets[socket] = node, 0
        poller.register(socket, zmq.POLLIN)
    while sockets:
        for socket, _ in poller.poll():
            socket.recv()
            node, number = sockets.pop(socket)
            if number + 1 < rounds:
                socket.send(frames.encode(keys.run, report(node, number + 1, ranks, steps)))
                sockets[socket] = node, number + 1
            else:
                poller.unregister(socket)
    context.destroy(0)


def measure(nodes: int, ranks: int, peers: int, rounds: int) -> dict[str, Any]:
    every_s = max(1.0, nodes * ranks / RANKS_A_SECOND)
    steps = round(every_s * STEPS_A_SECOND)
    keys = derive(new_secret())
    incoming = Incoming(nodes + 1, ranks, 1, 0, Notes(), now_s=time.monotonic)
    owner = OwnerEnd("127.0.0.1:0", keys, incoming)
    sender = multiprocessing.get_context("spawn").Process(
        target=send, args=(owner.port, keys, peers, rounds, ranks, steps)
    )
    spent = -time.process_time()
    sender.start()
    goal = peers * ranks * rounds * steps
    taken = size = 0
    due = 0.0
    while taken < goal and sender.exitcode in {None, 0}:
        owner.wait(0.05)
        owner.turn()
        if time.monotonic() > due:  # counting is no part of the owner's work
            spent += time.process_time()
            taken = sum(aggregate.count for _, _, aggregate in incoming.ranks())
            due = time.monotonic() + 0.5
            spent -= time.process_time()
    spent += time.process_time()
    sender.join()
    for number in range(rounds):
        for node in range(peers + 1, nodes + 1):
            frame = frames.encode(keys.run, report(node, number, ranks, steps))
            size = len(frame)
            spent -= time.process_time()
            message = frames.decode(keys.run, frame)
            assert isinstance(message, Report)
            answer = incoming.take(message)
            assert answer is not None
            frames.encode(keys.run, answer)
            spent += time.process_time()
    owner.close()
    counts = {aggregate.count for _, _, aggregate in incoming.ranks()}
    return {
        "nodes": nodes,
        "ranks": nodes * ranks,
        "real_peers": peers,
        "steps_each": rounds * steps,
        "cores": round(spent / (rounds * every_s), 3),
        "bytes_a_step": round(size / ranks / steps, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "every_record_once": counts == {rounds * steps} and len(incoming.ranks()) == nodes * ranks,
        "refused": sum(incoming.refused.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--peers", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    row = measure(args.nodes, args.ranks, min(args.peers, args.nodes), args.rounds)
    print(json.dumps(row) if args.json else "\n".join(f"{name:18} {value}" for name, value in row.items()))
    good = row["cores"] <= MOST_CORES and row["peak_mb"] <= MOST_MB and row["every_record_once"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
