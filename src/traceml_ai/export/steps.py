"""The steps that a run keeps: written to the run folder at the end, since the step log is gone then.

Bounded whatever the length of the run: the first steps, the most recent ones and the slowest, as the
collector has them in memory. A numpy archive of integers; columns that hold nothing but zeros are left out.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceml_ai.analyze.aggregate import HEAD_RECORDS, RankAggregate
from traceml_ai.analyze.columns import EXT, N_EXT, Rows
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.errors import TraceMLError
from traceml_ai.export.archive import read_archive

STEPS_FILE = "steps.npz"
STEPS_VERSION = 1

MOST_ROWS = 65_536
"""Of all ranks together: at most about 3 MB."""

_OTHERS = 2 * HEAD_RECORDS  # at most so many of the first and of the slowest
_FEWEST_ROWS = 32  # of each rank, however many ranks there are
# Points in time; written relative to the start of the run, which is all that they mean later.
_TIMES = ("begin_ns", "open_ns", "close_ns", "arrival_ns")

_KINDS = {"facts": "u1", "rank": "<i8", "pid": "<i8", **dict.fromkeys(EXT, "<i8")}
_MOST_BYTES, _MOST_READ = 256 << 20, 1 << 20
"""Of all columns, and of rows, in a file that is read: far more than 8,192 ranks keep."""

# What zipfile, zlib and numpy raise over bytes that are not what they look like.
_DAMAGED = (
    ValueError, KeyError, TypeError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError,
)  # fmt: skip


class _Version(msgspec.Struct):
    """Which version wrote a file."""

    version: int


class _Facts(_Version):
    """What a file of kept steps says of itself."""

    user_phases: dict[str, str]
    closed: dict[int, int]


class RankSteps(NamedTuple):
    """What one training process recorded."""

    pid: int
    rank: int
    aggregate: RankAggregate
    user_phases: Sequence[str] = ()


class KeptSteps(NamedTuple):
    """The kept steps of a run.

    Attributes:
        rows: Shape ``(n, N_EXT)``, ordered by rank and time; times are nanoseconds since the run's start.
        ranks: Shape ``(n,)``: the rank of each row, or a number in its place.
        pids: Shape ``(n,)``.
        user_phases: Column name to the name that the user gave it.
        closed: Steps that each rank closed, kept or not.
    """

    rows: Rows
    ranks: Rows
    pids: Rows
    user_phases: dict[str, str]
    closed: dict[int, int]

    @property
    def complete(self) -> bool:
        """Whether every step was kept."""
        return len(self.rows) == sum(self.closed.values())


def rank_steps(inputs: Sequence[RankInput]) -> list[RankSteps]:
    """Return what was read of the processes that made steps, in the order of their ranks and of time.

    A job that was restarted has several processes of a rank; one without ranks has numbers all the same.
    """
    trained = [each for each in inputs if each.aggregate.count]
    ranks = [_rank_of(each) for each in trained]
    free = count(max((rank for rank in ranks if rank is not None), default=-1) + 1)
    found = [
        RankSteps(_pid_of(each), next(free) if rank is None else rank, each.aggregate, _names_of(each))
        for each, rank in zip(trained, ranks, strict=True)
    ]
    return sorted(found, key=lambda steps: (steps.rank, steps.aggregate.first_begin_ns or 0))


def newest_of_each_rank(ranks: Sequence[RankSteps]) -> list[RankSteps]:
    """Leave out the processes of a rank that were followed by others, as figures of a restarted job do."""
    return list({each.rank: each for each in ranks}.values())


def _rank_of(given: RankInput) -> int | None:
    rank = given.facts.get("rank")
    if rank is None and given.header is not None and given.header.rank >= 0:
        return given.header.rank
    return rank


def _pid_of(given: RankInput) -> int:
    return given.header.pid if given.header else given.facts.get("pid", 0)


def _names_of(given: RankInput) -> Sequence[str]:
    return given.facts.get("user_phases", [])


def kept_steps(ranks: Sequence[RankSteps], start_ns: int) -> KeptSteps:
    """Gather the steps that the collector still has in full.

    Args:
        ranks: The training processes, in the order of their ranks.
        start_ns: When the run began, on the clock of the records.
    """
    most = max(_FEWEST_ROWS, MOST_ROWS // max(1, len(ranks)))
    parts = [_rows_of(each.aggregate, most) for each in ranks]
    names = next((each.user_phases for each in ranks if each.user_phases), ())
    closed: Counter[int] = Counter()
    for each in ranks:
        closed[each.rank] += each.aggregate.count
    return KeptSteps(
        _relative(np.concatenate([np.empty((0, N_EXT), dtype=np.int64), *parts]), start_ns),
        np.repeat(np.array([each.rank for each in ranks], dtype=np.int64), [len(part) for part in parts]),
        np.repeat(np.array([each.pid for each in ranks], dtype=np.int64), [len(part) for part in parts]),
        {f"user_{slot}_ns": name for slot, name in enumerate(names)},
        dict(closed),
    )


def _rows_of(aggregate: RankAggregate, most: int) -> Rows:
    """Return all records that fit, or the most recent, the first and the slowest."""
    recent = aggregate.recent()[-most:]
    room = 0 if len(recent) == aggregate.count else min(_OTHERS, most // 4)
    recent = recent[-(most - room) :]
    others = np.concatenate([aggregate.head()[: room // 2], aggregate.slowest()[: room // 2]])
    together = np.concatenate([recent, others])
    _, first = np.unique(together[:, EXT["close_ns"]], return_index=True)
    kept: Rows = together[first]
    return kept


def _relative(rows: Rows, start_ns: int) -> Rows:
    for name in _TIMES:
        column = rows[:, EXT[name]]
        rows[:, EXT[name]] = np.where(column != 0, column - start_ns, 0)
    return rows


def encode_steps(steps: KeptSteps) -> bytes:
    """Write kept steps as a numpy archive."""
    columns = {name: steps.rows[:, at] for name, at in EXT.items() if steps.rows[:, at].any()}
    facts = {
        "version": STEPS_VERSION,
        "user_phases": steps.user_phases,
        "closed": {str(rank): count for rank, count in steps.closed.items()},
    }
    described = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    file = io.BytesIO()
    arrays: dict[str, Any] = {"facts": described, "rank": steps.ranks, "pid": steps.pids, **columns}
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read_steps(path: Path) -> KeptSteps:
    """Read kept steps.

    Raises:
        TraceMLError: There are none, or they can't be read.
    """
    try:
        with path.open("rb") as file:
            return _decoded(read_archive(file, _KINDS, _MOST_BYTES), path)
    except FileNotFoundError:
        raise TraceMLError(
            f"there is no {path}: traceml run writes it when the run ends, unless --no-keep-steps"
        ) from None
    except OSError as error:
        raise TraceMLError(f"can't read {path} ({error.strerror or error})") from None
    except _DAMAGED as error:
        raise TraceMLError(f"{path} is damaged ({error}): run the script again to have its steps") from None


def _decoded(arrays: dict[str, Any], path: Path) -> KeptSteps:
    version = msgspec.json.decode(arrays["facts"].tobytes(), type=_Version).version
    if version > STEPS_VERSION:
        raise TraceMLError(f"{path} was written by a newer TraceML: update traceml to read it")
    facts = msgspec.json.decode(arrays["facts"].tobytes(), type=_Facts)
    ranks, pids = arrays["rank"], arrays["pid"]
    columns = {name: values for name, values in arrays.items() if name in EXT}
    if any(len(values) != len(ranks) for values in (pids, *columns.values())):
        raise ValueError("its columns differ in length")
    if len(ranks) > _MOST_READ:
        raise ValueError("it holds more than a run keeps")
    rows = np.zeros((len(ranks), N_EXT), dtype=np.int64)
    for name, values in columns.items():
        rows[:, EXT[name]] = values
    return KeptSteps(rows, ranks, pids, facts.user_phases, facts.closed)
