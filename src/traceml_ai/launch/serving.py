"""The life of a collector on its own: wait for training processes, watch them, tell what was found.

They are nobody's children here: they find the collector (`traceml_ai.spool.meeting`), may be started by
any launcher, and go on when the collector ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from traceml_ai.collect.collector import Collector
from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.collect.publish import Publisher
from traceml_ai.collect.rebuild import status_of
from traceml_ai.diagnose.summarize import RankInput
from traceml_ai.errors import TraceMLError
from traceml_ai.launch.life import name_on_node
from traceml_ai.launch.outcome import Outcome
from traceml_ai.launch.outlets import Outlets, Wanted
from traceml_ai.launch.party import Party
from traceml_ai.launch.say import say
from traceml_ai.link.place import Where
from traceml_ai.link.setup import Link, open_link
from traceml_ai.live.rounds import Rounds
from traceml_ai.schema.run import Death, Status
from traceml_ai.spool.meeting import Meeting, Offer
from traceml_ai.spool.recording import Plan, Recording, open_recording, remove
from traceml_ai.spool.runfolder import Manifest, birth_of

_LOOK_S = 0.1
_NEWS_S = 0.5
"""For the thread that is told how a process ended, which may be later than we see that it has."""

_STOPS = ("SIGINT", "SIGTERM", "SIGHUP")


class ServeRequest(NamedTuple):
    """What the user asked ``traceml serve`` for."""

    logs: Path = Path("logs")
    run_name: str | None = None
    interval_s: float = 1.0
    nproc_per_node: int = 1
    as_json: bool = False
    outlets: Wanted = Wanted()
    link: Where | None = None  # this node's place among several


class Stop:
    """Whether somebody wants the collector to end."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._wake, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        for name in _STOPS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def wait(self, timeout_s: float) -> bool:
        """Wait so long, or until then; return whether to stop."""
        if self.number is None:
            select.select([self._wake], [], [], max(0.0, timeout_s))
        return self.number is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        with contextlib.suppress(OSError):
            os.write(self._bell, b"!")


def serve(request: ServeRequest) -> int:
    """Wait for a run, watch it to its end, and tell about it.

    Returns:
        The exit code: 0 when there is a summary.

    Raises:
        UsageError: The run name is taken, or no folder name.
        TraceMLError: There is no place to record in.
    """
    name = name_on_node(request.run_name, request.link)
    plan = Plan(request.logs, name, "serve", [], request.interval_s)
    recording = open_recording(plan)
    if recording.spool is None or recording.folder is None:
        raise TraceMLError("; ".join(recording.problems))
    stop = Stop()
    meeting = Meeting(_offer(recording))
    try:
        return _Service(request, recording, meeting, stop).live()
    finally:
        meeting.withdraw()


def _offer(recording: Recording) -> Offer:
    pid = os.getpid()
    folder = None if recording.folder is None else str(recording.folder.absolute())
    return Offer(pid, birth_of(pid), str(recording.spool), folder, str(Path.cwd()), [])


class _Service:
    """One run that is waited for."""

    def __init__(self, request: ServeRequest, recording: Recording, meeting: Meeting, stop: Stop) -> None:
        assert recording.spool is not None
        assert recording.folder is not None
        self._request = request
        self._recording = recording
        self._meeting = meeting
        self._stop = stop
        self._spool = recording.spool
        self._folder = recording.folder
        self._is_owner = request.link is not None and request.link.node == 0
        self._party = Party(recording.spool, request.nproc_per_node)
        self._notes = Notes(say)
        self._guard = Guard(self._notes)

    def live(self) -> int:
        """Wait, watch, tell."""
        self._announce()
        while not self._stop.wait(_LOOK_S):
            self._party.look()
            if (self._party.joined or self._is_owner) and self._watch():
                return 0
        if not self._party.joined:
            self._recording.discard()
            say("stopped before a training process came")
        return 128 + (self._stop.number or 0)

    def _announce(self) -> None:
        for problem in self._recording.problems:
            self._notes.add("recording", problem, aloud=True)
        count = self._request.nproc_per_node
        how = "python train.py" if count == 1 else f"torchrun --nproc-per-node={count} train.py"
        ranks = "1 rank" if count == 1 else f"{count} ranks"
        say(f"recording to {self._folder}; waiting for {ranks}, a script that calls traceml.init(): {how}")
        if not self._meeting.is_open:
            say(f"there is no private place to meet: start it with TRACEML_RUN_DIR={self._folder.absolute()}")

    def _watch(self) -> bool:
        """Watch until the run is over; False when it was none: who came left without a step."""
        manifest = self._begin()
        publisher = Publisher(self._folder, lambda: None, self._notes)
        collector = Collector(manifest, publisher, self._notes)
        if collector.machine is not None:
            machine = collector.machine._asdict()
            self._guard("the manifest", manifest._replace(machine=machine).write, self._folder)
        outlets = Outlets(self._request.outlets, manifest, collector, publisher, self._notes)
        rounds = Rounds(collector, manifest, self._notes, saved_to=None)
        collector.expect(self._party.joined)
        link = self._guard("the link", open_link, self._request.link, collector, self._spool, self._notes)
        self._follow(collector, rounds, outlets, link)
        collector.refresh()
        training = collector.own_pids()
        if not self._party.joined and self._stop.number and not collector.ranks():
            return self._hang_up(link)
        if not (training or self._stop.number or collector.ranks()):
            say("who came is gone without a training step; waiting for the next")
            self._party.forget()
            return self._hang_up(link)
        rounds.finish()
        self._remark_missing(len(training))
        status, exit_code = self._outcome(collector, training)
        end_ns = time.perf_counter_ns()
        if link is not None:
            self._guard("the end of the link", link.finish, exit_code, lambda: self._stop.number is not None)
        summary = collector.finish(status, exit_code, end_ns=end_ns)
        if summary is None:
            return True
        from traceml_ai.launch.tell import tell

        tell(
            summary,
            publisher,
            as_json=self._request.as_json,
            environ=os.environ,
            rest=lambda: outlets.finish(summary),
        )
        if status != "running":
            remove(self._spool)
        return True

    def _hang_up(self, link: Link | None) -> bool:
        if link is not None:
            link.close()
        return False

    def _follow(self, collector: Collector, rounds: Rounds, outlets: Outlets, link: Link | None) -> None:
        """Watch until nobody is there any more, or somebody stops us."""
        while not self._stop.wait(min(_LOOK_S, rounds.pause_s())):
            if link is not None:  # first: what came is in the next snapshot
                self._guard("the link", link.turn)
            rounds.go()
            outlets.tick()
            is_first = not self._party.joined
            self._party.look()
            if not self._party.joined:
                if link is not None and link.is_complete:
                    return
                continue
            if is_first:  # an owner collects for the others before anybody came here
                collector.adopt(self._begin())
            collector.expect(self._party.joined)
            training = collector.own_pids()
            if self._party.is_complete(training):
                self._meeting.complete(self._party.parents)
            if self._party.is_over(training):
                return

    def _begin(self) -> Manifest:
        """Note in the manifest what has come, so that the summary can be made again from the step log."""
        first = next(iter(self._party.joined.values()), None)
        if first is None:
            return self._recording.manifest._replace(start_ns=time.perf_counter_ns())
        start_ns = self._party.start_ns or time.perf_counter_ns()
        manifest = self._recording.manifest._replace(command=first.command, start_ns=start_ns)
        self._guard("the manifest", manifest.write, self._folder)
        say(f"process {first.pid} came: {' '.join(first.command)}")
        return manifest

    def _remark_missing(self, came: int) -> None:
        expected = self._request.nproc_per_node
        if came < expected:
            self._notes.add("missing", f"{expected} ranks were waited for, {came} came.")
        if self._party.is_alive():
            self._notes.add("stopped", "The collector was stopped while the training went on: what came "
                            "after is in no figure.")  # fmt: skip

    def _outcome(self, collector: Collector, training: list[int]) -> tuple[Status, int | None]:
        if self._party.is_alive():
            return "running", None
        until = time.monotonic() + _NEWS_S
        while not set(training) <= {death.pid for death in collector.deaths()} and time.monotonic() < until:
            time.sleep(_NEWS_S / 50)
        return outcome_of(
            collector.inputs(), [death for death in collector.deaths() if death.pid in training]
        )


def outcome_of(inputs: list[RankInput], deaths: Iterable[Death]) -> tuple[Status, int | None]:
    """Return how processes ended that nobody here started: as the kernel tells, else as they say."""
    known = [Outcome.of(os.waitstatus_to_exitcode(each.status)) for each in deaths if each.status is not None]
    failed = next((outcome for outcome in known if outcome.exit_code), None)
    if failed is not None:
        return failed.status, failed.exit_code
    if known and len(known) >= len(inputs):
        return "completed", 0
    return status_of(inputs), None
