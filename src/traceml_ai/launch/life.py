"""The life of a run: start the command, watch it, write what was found, end as it ended.

Until the command was started nothing heavy is imported; afterwards nothing that goes wrong here may
reach it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traceml_ai.collect.notes import Guard, Notes
from traceml_ai.hook import folder as hook_folder
from traceml_ai.launch.become import become, not_started
from traceml_ai.launch.command import Target, Torchrun, build, hookless
from traceml_ai.launch.environment import child_environment
from traceml_ai.launch.front import Program, start, terminal_for_view
from traceml_ai.launch.outcome import Outcome, end_like
from traceml_ai.launch.outlets import Outlets, Wanted
from traceml_ai.launch.say import occupy_standard_descriptors, say
from traceml_ai.launch.signals import Relay, held_back
from traceml_ai.schema import env
from traceml_ai.spool.recording import Plan, Recording, open_recording, remove, temporary_folder

if TYPE_CHECKING:
    from traceml_ai.collect.collector import Collector
    from traceml_ai.collect.publish import Publisher
    from traceml_ai.launch.page import Page
    from traceml_ai.link.place import Where
    from traceml_ai.link.setup import Link
    from traceml_ai.live.rounds import Rounds

_BLIND_PAUSE_S = 1.0
"""Between two looks at nothing, when the collector could not start."""


class Request(NamedTuple):
    """What the user asked ``traceml run`` for."""

    target: Target
    torchrun: Torchrun = Torchrun()
    logs: Path = Path("logs")
    run_name: str | None = None
    interval_s: float = 1.0
    trace_max_steps: int | None = None
    as_json: bool = False
    disabled: bool = False
    outlets: Wanted = Wanted()
    mode: str = "summary"  # auto, summary, cli or dashboard
    save_output: bool = True
    dashboard_port: int = 0  # any that is free
    dashboard_opens: bool = True
    link: Where | None = None  # this node's place among several


class Watched(NamedTuple):
    """What watching needs, besides the child."""

    collector: Collector
    publisher: Publisher
    rounds: Rounds
    outlets: Outlets
    link: Link | None


def run(request: Request) -> int:
    """Run a command and tell where its time went.

    Returns:
        The command's exit code. After a signal this process ends by the same signal instead.

    Raises:
        UsageError: Before anything was started.
    """
    command = build(request.target, request.torchrun)
    if request.disabled:
        os.environ[env.DISABLED] = "1"  # for calls of ours in the script: they say nothing then
    if env.is_disabled(os.environ.get(env.DISABLED)) or _is_missing(request.target):
        return become(command)
    occupy_standard_descriptors()
    name = name_on_node(request.run_name, request.link)
    plan = Plan(request.logs, name, request.target.stem, command, request.interval_s)
    # A signal that comes meanwhile would leave the folders behind: it is the command's, once that is there.
    with held_back():
        recording = open_recording(plan)
        terminal = terminal_for_view(request.mode, os.environ) if recording.measured else None
        relay = Relay(shared=terminal is None)
    environ = _environment(request, recording)
    start_ns = time.perf_counter_ns()
    try:
        child: Program = start(
            command, environ, relay.wake, recording, terminal, with_view=request.mode != "dashboard"
        )
    except OSError as error:
        relay.training_is_over()
        recording.discard()
        return not_started(command[0], error)
    relay.pass_on_all(child.send)
    return end_like(_attend(request, recording.started(child.pid, start_ns), child, relay))


def _attend(request: Request, recording: Recording, child: Program, relay: Relay) -> Outcome:
    """Watch the started command until its end, and tell about it; no error of ours gets out."""
    notes = Notes(say)
    guard = Guard(notes)
    guard("the start", _announce, recording, notes)
    guard("the view", child.start_view)
    page = guard("the dashboard", _open_page, request, recording)
    watched = guard("the collector", _start_collector, request, recording, notes)
    returncode = _watch(child, relay, watched, guard)
    end_ns = time.perf_counter_ns()
    guard("closing the view", child.close_view)
    relay.training_is_over()
    outcome = Outcome.of(returncode)
    guard("the end", _finish, request, recording, watched, outcome, end_ns)
    if page is not None:
        guard("closing the dashboard", page.stay, relay.wake)
    return outcome


def _watch(child: Program, relay: Relay, watched: Watched | None, guard: Guard) -> int:
    while True:
        pause_s = guard("the collector's clock", watched.rounds.pause_s) if watched else None
        returncode = child.wait(_BLIND_PAUSE_S if pause_s is None else pause_s)
        if returncode is not None:
            return returncode
        relay.pass_on(child.send)
        if watched:
            if watched.link is not None:  # first: what came is in the next snapshot
                guard("the link", watched.link.turn)
            guard("the collector's tick", watched.rounds.go)
            watched.outlets.tick()


def _open_page(request: Request, recording: Recording) -> Page | None:
    if request.mode != "dashboard" or recording.folder is None:
        return None
    from traceml_ai.launch.page import Page

    return Page(recording.folder, port=request.dashboard_port, open_browser=request.dashboard_opens)


def _announce(recording: Recording, notes: Notes) -> None:
    """Say where the run is recorded, in one line whatever went wrong."""
    problems = list(recording.problems)
    blind = hookless(recording.manifest.command)
    if blind is not None:
        problems.append(f"Python's option {blind} keeps the probe out: this process can't be measured")
    for number, problem in enumerate(problems):
        notes.add(f"recording {number}", problem)
    say("; ".join(problems) or f"recording to {recording.folder}")


def _start_collector(request: Request, recording: Recording, notes: Notes) -> Watched:
    # Its thread pool would take a stack per processor; only this process is meant, the child is started.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from traceml_ai.collect.collector import Collector
    from traceml_ai.collect.publish import Publisher
    from traceml_ai.launch.leftovers import clean_leftovers
    from traceml_ai.live.rounds import Rounds
    from traceml_ai.spool.place import candidates

    publisher = Publisher(recording.folder, lambda: _elsewhere(recording.manifest.name), notes)
    collector = Collector(recording.manifest, publisher, notes)
    machine = None if collector.machine is None else collector.machine._asdict()
    guard = Guard(notes)
    if recording.folder is not None:
        guard("the manifest", recording.manifest._replace(machine=machine).write, recording.folder)
    guard("cleaning up after dead runs", clean_leftovers, candidates())
    saved_to = recording.folder if request.save_output else None
    outlets = Outlets(request.outlets, recording.manifest, collector, publisher, notes)
    rounds = Rounds(collector, recording.manifest, notes, saved_to=saved_to)
    link = None
    if request.link is not None:
        from traceml_ai.link.setup import open_link

        link = guard("the link", open_link, request.link, collector, recording.spool, notes)
    return Watched(collector, publisher, rounds, outlets, link)


def _finish(
    request: Request,
    recording: Recording,
    watched: Watched | None,
    outcome: Outcome,
    end_ns: int,
) -> None:
    if watched is None:
        return
    from traceml_ai.launch.tell import tell

    collector, publisher, rounds, outlets, link = watched
    rounds.finish()
    sent = _finish_link(link, outcome)
    summary = collector.finish(outcome.status, outcome.exit_code, end_ns=end_ns)
    if summary is None:
        return
    if sent:
        say(f"everything was sent to the owner of the run; this node's own part is in {publisher.folder}")

    def rest() -> None:
        outlets.finish(summary)
        if publisher.folder is None and recording.folder is not None:
            say(f"the summary could be written nowhere; the steps stay: traceml view {recording.folder}")

    tell(summary, publisher, as_json=request.as_json, environ=os.environ, rest=rest, shown=not sent)
    if publisher.folder is not None or recording.folder is None:
        remove(recording.spool)


def _finish_link(link: Link | None, outcome: Outcome) -> bool:
    """Return whether another node has everything, and tells about it."""
    if link is None:
        return False
    from traceml_ai.link.setup import HURRIED_S, PATIENCE_S

    hurried = outcome.status in {"interrupted", "terminated"}
    done = link.finish(outcome.exit_code, patience_s=HURRIED_S if hurried else PATIENCE_S)
    return done and not link.is_owner


def name_on_node(name: str | None, link: Where | None) -> str | None:
    """Return the name of a node's own run folder: nodes often share the folder of the runs."""
    return f"{name}-node{link.node}" if name is not None and link is not None and link.node else name


def _environment(request: Request, recording: Recording) -> Mapping[str, str]:
    if recording.spool is None:
        return os.environ
    return child_environment(
        os.environ,
        hook_folder=Path(hook_folder()),
        spool=recording.spool,
        run_folder=recording.folder,
        trace_max_steps=request.trace_max_steps,
    )


def _elsewhere(name: str) -> Path | None:
    try:
        return temporary_folder(name)
    except OSError:
        return None


def _is_missing(target: Target) -> bool:
    """Whether the script is not there: Python itself says so best, and nothing need be recorded."""
    return target.kind == "script" and target.words[0] != "-" and not Path(target.words[0]).exists()
