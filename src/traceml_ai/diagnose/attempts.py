"""Which processes belong to the last attempt of a job that torchrun restarted.

A node's torchrun counts only the restarts after failures of its own ranks (``TORCHELASTIC_RESTART_COUNT``):
where another node's rank failed it starts its ranks again under the same count, and a node that is gone for
good has none that is newer. So on one node the count and the order of the processes decide, and between
nodes time does: all ranks of one attempt end before those of the next begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from traceml_ai.diagnose.signals import RankInput

_Node = tuple[str, int]  # the host, and the torchrun on it
_Place = tuple[_Node, int]  # and the rank


class Attempts(NamedTuple):
    """The processes of a job's last attempt that trained, and those of the ones before."""

    last: list[RankInput]
    earlier: list[RankInput]
    attempts: int


def split_attempts(given: Sequence[RankInput]) -> Attempts:
    """Tell the last attempt from those before.

    Args:
        given: All processes of a job, in any order.
    """
    newest = _newest(given)
    over = {id(each) for each in given if _attempt(each) < newest.get(_node(each), 0)} | _replaced(given)
    last = [each for each in given if id(each) not in over and _attempt(each) == newest.get(_node(each), 0)]
    if over:
        restarted = {_node(each) for each in given if id(each) in over}
        begun = [_began(each) for each in last if _node(each) in restarted and each.aggregate.count]
        over |= {id(each) for each in last if each.aggregate.count and _ended(each) < min(begun, default=0)}
    return Attempts(
        [each for each in last if id(each) not in over],
        [each for each in given if id(each) in over],
        max([1 + max(newest.values(), default=0), *_starts(given).values()]),
    )


def _newest(given: Sequence[RankInput]) -> dict[_Node, int]:
    """Return the highest count of restarts on each node, of processes that trained if any did."""
    newest: dict[_Node, int] = {}
    for each in [each for each in given if each.aggregate.count] or given:
        newest[_node(each)] = max(newest.get(_node(each), 0), _attempt(each))
    return newest


def _replaced(given: Sequence[RankInput]) -> set[int]:
    """Return the processes whose torchrun started another one for their rank later."""
    newest: dict[_Place, RankInput] = {}
    replaced = set()
    for each in sorted((each for each in given if each.aggregate.count), key=_began):
        place = _place(each)
        if place is None:
            continue
        if place in newest:
            replaced.add(id(newest[place]))
        newest[place] = each
    return replaced


def _starts(given: Sequence[RankInput]) -> dict[_Place, int]:
    """Return how often each torchrun started each rank that trained."""
    starts: dict[_Place, int] = {}
    for each in given:
        place = _place(each)
        if place is not None and each.aggregate.count:
            starts[place] = starts.get(place, 0) + 1
    return starts


def _place(each: RankInput) -> _Place | None:
    node, rank = _node(each), each.facts.get("rank")
    return None if rank is None or not node[1] else (node, rank)


def _node(each: RankInput) -> _Node:
    return each.facts.get("node", ""), each.facts.get("agent", 0)


def _attempt(each: RankInput) -> int:
    return each.facts.get("attempt", 0)


def _began(each: RankInput) -> int:
    return each.aggregate.first_begin_ns or 0


def _ended(each: RankInput) -> int:
    return each.aggregate.last_close_ns or 0
