"""What the owner has of the other nodes: each record once, whatever is sent again, late or by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceml_ai.analyze.aggregate import BRIEF, FULL, LEAST, Detail, RankAggregate, Running
from traceml_ai.collect.notes import Notes
from traceml_ai.collect.series import SampleSeries
from traceml_ai.diagnose.signals import RankInput
from traceml_ai.errors import TraceMLError
from traceml_ai.link.blocks import decode_block
from traceml_ai.link.frames import Answer, Cursor, Part, Pulse, Report
from traceml_ai.link.pulses import Ahead, Beat, decode_counts
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.run import PID_SPACE, Death
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, INDEX
from traceml_ai.spool.reader import clean_facts

_STAMPS = [INDEX[name] for name in ("close_ns", "open_ns", "begin_ns")]
_Records = NDArray[np.int64]
_RESTARTS = 16  # so often may an elastic launcher start a node's processes again
_MOST_DEATHS, _MOST_WARNINGS = 1024, 20
_SILENT_S = 15.0  # a node that was not heard for so long may come back as another sender
_LONG = [INDEX[name] for name in EXCLUSIVE_COLUMNS]
_LONGEST_NS = 1 << 50  # a fortnight in one phase of one step
_LARGEST = 1 << 61
_ARRIVAL = INDEX["arrival_ns"]
IN_FULL, IN_BRIEF = 64, 2048
"""Jobs of so many ranks are kept in full and in brief: some 6 MB, and 200 kB, a rank."""


class Counters(NamedTuple):
    """What the analysis needs of a log's header."""

    pid: int
    rank: int
    aborted: int
    dropped: int


class _Process:
    """One training process on another node."""

    def __init__(self, part: Part, detail: Detail) -> None:
        self.origin_ns = part.origin_ns
        self.taken = 0
        self.rank = part.rank
        self.aggregate = RankAggregate(detail)
        self.facts = ProcessFacts()
        self.counters = Counters(part.pid, part.rank, 0, 0)


class _Node:
    """One other node."""

    def __init__(self, report: Report) -> None:
        self.session = report.session
        self.host = report.host
        self.next_number = 0
        self.processes: dict[tuple[int, int], _Process] = {}
        self.samples: dict[int, SampleSeries] = {}
        self.deaths: list[Death] = []
        self.ended = False
        self.exit_code: int | None = None
        self.heard_s = 0.0
        self.pulse: dict[int, Beat] = {}  # by process id


class Incoming:
    """Takes reports, and refuses what can't be.

    Args:
        nodes: How many nodes the run has, the owner's own included; its number is 0.
        ranks_per_node: How many training processes each of them may have at most.
        owner: Tells this owner from the one before.
        clock_ns: What to add to this node's times to get nanoseconds since the epoch.
        notes: For what was refused or is missing.
        now_s: Seconds.
    """

    def __init__(
        self,
        nodes: int,
        ranks_per_node: int,
        owner: int,
        clock_ns: int,
        notes: Notes,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._expected = nodes
        self._most = ranks_per_node * _RESTARTS
        ranks = nodes * ranks_per_node
        self._detail = FULL if ranks <= IN_FULL else BRIEF if ranks <= IN_BRIEF else LEAST
        self._owner = owner
        self._clock_ns = clock_ns
        self._notes = notes
        self._now_s = now_s
        self._nodes: dict[int, _Node] = {}
        self._rank_of: dict[int, int] = {}  # rank -> the node it is on
        self.refused: dict[str, int] = {}

    def take(self, report: Report) -> Answer | None:
        """Take in a report; return the answer, ``None`` when it was refused."""
        try:
            node = self._node(report)
            if report.number >= node.next_number:
                self._take_once(node, report)
            node.heard_s = self._now_s()
            return Answer(report.session, report.number, self._owner, self._cursors(node, report))
        except TraceMLError as error:
            self.refuse(str(error))
            return None

    def take_pulse(self, pulse: Pulse) -> None:
        """Take note of how far a node's processes are, for live views alone."""
        node = self._nodes.get(pulse.node)
        if node is None or node.session != pulse.session:
            return  # its report comes first
        try:
            beats = decode_counts(pulse.counts, len(pulse.pids))
        except TraceMLError as error:
            self.refuse(str(error))
            return
        node.pulse = dict(zip(pulse.pids, beats, strict=True))

    def refuse(self, why: str) -> None:
        """Count something that had no effect."""
        self.refused[why] = self.refused.get(why, 0) + 1

    @property
    def is_complete(self) -> bool:
        """Whether every other node has said all it has to say."""
        return self._expected - 1 == len(self._nodes) and all(node.ended for node in self._nodes.values())

    def ranks(self) -> list[tuple[int, int | None, Running]]:
        """Return process id, rank and figures of each training process."""
        return [
            (process.counters.pid, None if process.rank < 0 else process.rank, _newest(node, process))
            for node in (node for _, node in sorted(self._nodes.items()))
            for process in node.processes.values()
        ]

    def inputs(self) -> list[RankInput]:
        """Return what the analysis needs of each of them."""
        return [
            RankInput(process.aggregate, process.facts, process.counters) for _, process in self._processes()
        ]

    def samples(self) -> list[HostSample]:
        """Return what the other nodes sampled."""
        return [
            s for node in self._nodes.values() for series in node.samples.values() for s in series.samples()
        ]

    def deaths(self) -> list[Death]:
        """Return the ends that the other nodes saw."""
        return [death for node in self._nodes.values() for death in node.deaths]

    def remarks(self) -> list[str]:
        """Return what is missing, and what was refused."""
        found = [self._missing(number) for number in range(1, self._expected)]
        found += [
            f"Node {number} ({node.host}): its program ended with exit code {node.exit_code}."
            for number, node in sorted(self._nodes.items())
            if node.exit_code
        ]
        refused = [
            f"The link between nodes refused {_times(count)}: {why}." for why, count in self.refused.items()
        ]
        return [each for each in found if each] + refused

    def _missing(self, number: int) -> str | None:
        node = self._nodes.get(number)
        if node is None:
            return f"Node {number} never came: its ranks are in no figure."
        if not node.ended:
            silent = self._now_s() - node.heard_s
            return (
                f"Node {number} ({node.host}) was last heard {silent:.0f} s before the end: "
                "what its ranks did after that is in no figure."
            )
        return None

    def _processes(self) -> Iterable[tuple[int, _Process]]:
        for number, node in sorted(self._nodes.items()):
            for process in node.processes.values():
                yield number, process

    def _node(self, report: Report) -> _Node:
        if not 0 < report.node < self._expected:
            raise TraceMLError("a peer claims to be a node that this run does not have")
        node = self._nodes.get(report.node)
        if node is None:
            node = self._nodes[report.node] = _Node(report)
            node.heard_s = self._now_s()
        if node.session != report.session:
            if node.host != report.host or self._now_s() - node.heard_s < _SILENT_S:
                raise TraceMLError("a peer claims to be a node that is there already")
            node.session, node.next_number = report.session, 0
        return node

    def _take_once(self, node: _Node, report: Report) -> None:
        known = {*node.processes, *((part.pid, part.origin_ns) for part in report.parts)}
        if len(known) > self._most:
            raise TraceMLError("a node tells of more processes than it may have")
        prepared = [self._prepare(node, report, part) for part in report.parts]  # all or nothing
        for part, records in zip(report.parts, prepared, strict=True):
            self._take_part(node, report, part, records)
        node.next_number = report.number + 1
        shift = report.clock_ns - self._clock_ns
        for sample in report.samples:
            moved = sample._replace(t_ns=sample.t_ns + shift, pid=_key(report.node, sample.pid))
            node.samples.setdefault(sample.pid, SampleSeries(256)).add(moved)
        for end in report.deaths[:_MOST_DEATHS]:
            node.deaths.append(
                Death(pid=_key(report.node, end.pid), status=end.status, t_ns=end.t_ns + shift)
            )
        node.ended = report.ended and all(
            node.processes[part.pid, part.origin_ns].taken >= part.first + len(records)
            for part, records in zip(report.parts, prepared, strict=True)
        )
        node.exit_code = report.exit_code
        for warning in report.warnings[:_MOST_WARNINGS]:
            self._notes.add(f"node {report.node} {warning[:200]}", f"node {report.node}: {warning[:200]}")

    def _prepare(self, node: _Node, report: Report, part: Part) -> _Records:
        """Check a part, and decode it.

        Raises:
            TraceMLError: It can't be believed.
        """
        if part.pid >= PID_SPACE:
            raise TraceMLError("a peer names a process id that can't be")
        if part.rank >= 0 and self._rank_of.get(part.rank, report.node) != report.node:
            raise TraceMLError("a peer claims a rank of another node")
        process = node.processes.get((part.pid, part.origin_ns))
        if process is not None and part.rank >= 0 <= process.rank != part.rank:
            raise TraceMLError("a process claims another rank than it had")
        return _believable(decode_block(part.records))

    def _take_part(self, node: _Node, report: Report, part: Part, records: _Records) -> None:
        key = part.pid, part.origin_ns
        process = node.processes.setdefault(key, _Process(part, self._detail))
        taken = process.taken
        if part.first > taken and part.skipped:
            lost = f"records {taken} to {part.first} of process {part.pid} were no longer there to be sent"
            self._notes.add(f"lost {report.node} {key}", f"node {report.node}: {lost}")
            taken = part.first
        if part.first > taken:
            return  # there is a gap: the answer says from where on it is wanted
        new = records[taken - part.first :]
        if len(new):
            shift = report.clock_ns - self._clock_ns
            new[:, _STAMPS] += shift
            new[:, _ARRIVAL] += shift * (new[:, _ARRIVAL] > 0)
            process.aggregate.add(new)
        process.taken = taken + len(new)
        process.rank = max(process.rank, part.rank)
        if process.rank >= 0:
            self._rank_of[process.rank] = report.node
        process.counters = Counters(_key(report.node, part.pid), process.rank, part.aborted, part.dropped)
        if part.facts is not None:
            process.facts = clean_facts(part.facts)

    def _cursors(self, node: _Node, report: Report) -> list[Cursor]:
        return [
            Cursor(part.pid, part.origin_ns, node.processes[part.pid, part.origin_ns].taken)
            for part in report.parts
            if (part.pid, part.origin_ns) in node.processes
        ]


def _newest(node: _Node, process: _Process) -> Running:
    """Return a process as its pulse has it, where that is ahead of its records."""
    beat = node.pulse.get(process.counters.pid % PID_SPACE)
    if beat is None or beat.steps <= process.aggregate.count:
        return process.aggregate
    return Ahead(process.aggregate, beat)


def _believable(records: _Records) -> _Records:
    """Return records whose times can be: no sum of them may overflow.

    Raises:
        TraceMLError: They can't.
    """
    rest = np.abs(records[:, _LONG])
    if (records == np.iinfo(np.int64).min).any() or (rest > _LONGEST_NS).any():
        raise TraceMLError("a peer sends records of steps that can't be")
    if (np.abs(records) > _LARGEST).any():
        raise TraceMLError("a peer sends records of steps that can't be")
    return records


def _key(node: int, pid: int) -> int:
    """Return an id that no process of another node has."""
    return node * PID_SPACE + pid


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
