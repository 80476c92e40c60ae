"""What the final summary of a very large job takes: 8,192 ranks of 100,000 steps, judged and encoded.

    python benchmarks/many_ranks.py [--ranks N] [--steps N] [--json]

Synthetic and in lockstep: one rank is 50 % slower in forward, the rest differs by noise. Records are made in
blocks and go through the aggregation of a real run; what is timed is what happens when a run is over.
Targets: 10 s and 1 MB of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import BRIEF, FULL, RankAggregate
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.run import RunInfo
from traceml_ai.schema.step import COMM_PLACES, INDEX, N_COLUMNS, Observed, pack_comm_split
from traceml_ai.schema.summary import Summary, encode

MOST_S, MOST_MB = 10.0, 1.0
SLOW, SLOWER = 4711, 1.5
START_NS = 10**12
WARM_UP = 3
_SEEN = (
    Observed.INPUT
    | Observed.FORWARD
    | Observed.BACKWARD
    | Observed.OPTIMIZER
    | Observed.SAMPLES
    | Observed.COMM
)
_MS = 1_000_000
_OWN_MS = {"input_wait": 0.4, "forward": 60.0, "backward": 110.0, "optimizer": 8.0, "residual_other": 1.0}
_TRANSFER_NS = 5 * _MS


class Header:
    """What of a step log's header is needed."""

    def __init__(self, rank: int) -> None:
        self.pid, self.rank, self.aborted, self.dropped = 10_000 + rank, rank, 0, 0


def step_blocks(steps: int, block: int, slow: float) -> Iterator[NDArray[np.int64]]:
    """Yield the records of one rank; ``slow``: how much longer its forward takes.

    The others wait for the slow rank, whose step is known, so each rank can be made by itself.
    """
    rng = np.random.default_rng(0)
    split = [0] * len(COMM_PLACES)
    split[COMM_PLACES.index("backward")] = 1
    packed = pack_comm_split(split, 1)
    longest = sum(_OWN_MS.values()) * _MS + (SLOWER - 1) * _OWN_MS["forward"] * _MS + _TRANSFER_NS
    now = START_NS
    for first in range(0, steps, block):
        n = min(block, steps - first)
        records = np.zeros((n, N_COLUMNS), dtype=np.int64)
        for name, ms in _OWN_MS.items():
            took = ms * _MS * (slow if name == "forward" else 1.0) * rng.normal(1.0, 0.01, n)
            records[:, INDEX[f"{name}_ns"]] = took
        if first == 0:
            records[:WARM_UP] *= 5
        own = records.sum(axis=1)
        stood = np.maximum(_TRANSFER_NS, longest - own).astype(np.int64)
        records[:, INDEX["backward_ns"]] += stood
        records[:, INDEX["comm_ns"]], records[:, INDEX["comm_split"]] = stood, packed
        lengths = own + stood
        records[:, INDEX["close_ns"]] = now + np.cumsum(lengths)
        records[:, INDEX["begin_ns"]] = records[:, INDEX["close_ns"]] - lengths
        records[:, INDEX["open_ns"]] = records[:, INDEX["begin_ns"]] + records[:, INDEX["input_wait_ns"]]
        records[:, INDEX["arrival_ns"]] = records[:, INDEX["close_ns"]] - stood
        records[:, INDEX["step"]] = np.arange(first, first + n)
        for name, value in {
            "microbatches": 1,
            "updates": 1,
            "samples": 8,
            "fetches": 1,
            "observed": int(_SEEN),
        }.items():
            records[:, INDEX[name]] = value
        now = int(records[-1, INDEX["close_ns"]])
        yield records


def job(ranks: int, steps: int) -> list[RankInput]:
    """Aggregate a job's ranks: the first in full, the others in brief."""
    slow = min(SLOW, ranks - 1)
    made = {kind: list(step_blocks(steps, 20_000, kind)) for kind in (1.0, SLOWER)}
    found = []
    for rank in range(ranks):
        aggregate = RankAggregate(BRIEF if rank else FULL)
        for records in made[SLOWER if rank == slow else 1.0]:
            aggregate.add(records)
        facts = {
            "rank": rank,
            "world_size": ranks,
            "node": f"node{rank // 8}",
            "mode": "inferred",
            "torch_threads": 8,
        }
        found.append(RankInput(aggregate, facts, Header(rank)))  # type: ignore[arg-type]
    return found


def copies(ranks: int, steps: int) -> list[RankInput]:
    """Like `job`, each ordinary rank a copy of one of 32 with noise of their own: aggregating takes hours."""
    import copy

    originals = job(min(ranks, 33), steps)
    slow = originals[-1]
    ordinary = originals[1:-1]
    found = [originals[0]]
    for rank in range(1, ranks):
        template = slow if rank == min(SLOW, ranks - 1) else ordinary[rank % len(ordinary)]
        facts = {**template.facts, "rank": rank, "world_size": ranks, "node": f"node{rank // 8}"}
        found.append(RankInput(copy.deepcopy(template.aggregate), facts, Header(rank)))  # type: ignore[arg-type]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    inputs = copies(args.ranks, args.steps)
    held_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run = RunInfo(
        name="many", status="completed", exit_code=0, started_at="", start_ns=START_NS - 10**9,
        end_ns=inputs[0].aggregate.last_close_ns or 0, command=["train.py"], traceml_version="0",
    )  # fmt: skip
    begin, begin_cpu = time.perf_counter(), time.process_time()
    summary = summarize(run, inputs, [])
    encoded = encode(summary)
    took_s = time.perf_counter() - begin
    cpu_s = time.process_time() - begin_cpu
    found = check(summary, args.ranks)
    row = {"ranks": args.ranks, "steps": args.steps, "seconds": round(took_s, 2), "cpu_s": round(cpu_s, 2),
           "json_mb": len(encoded) / 1e6, "held_mb": round(held_mb), "named": found}  # fmt: skip
    print(json.dumps(row) if args.json else "\n".join(f"{name:8} {value}" for name, value in row.items()))
    return 0 if took_s <= MOST_S and len(encoded) <= MOST_MB * 1e6 and found else 1


def check(summary: Summary, ranks: int) -> bool:
    """Whether the slow rank was named, and every rank is in the figures."""
    across = summary.step_time.across_ranks
    named = summary.diagnosis.scope.ranks == [min(SLOW, ranks - 1)]
    return named and across is not None and across.compared == ranks


if __name__ == "__main__":
    sys.exit(main())
