"""How a training process that ``traceml run`` did not start gets its place to record in.

Called by ``init()`` alone, once: it looks for the collector that ``traceml serve`` started, or makes a
recording of this process's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from traceml_ai.errors import TraceMLError
from traceml_ai.probe.facts import elastic_attempt
from traceml_ai.schema import env
from traceml_ai.spool import meeting
from traceml_ai.spool.recording import Plan, open_recording
from traceml_ai.spool.runfolder import birth_of, read_manifest


class Place(NamedTuple):
    """Where this process records."""

    spool: str
    folder: str | None


def join(environ: Mapping[str, str]) -> Place:
    """Find the collector that waits for this process, and tell it so.

    Raises:
        TraceMLError: There is none, or it can't be joined; the message says why.
    """
    offer = _named(environ.get(env.RUN_DIR)) or _met(environ)
    rank = environ.get("RANK", "")
    joined = meeting.Joined(
        pid=os.getpid(),
        birth=birth_of(os.getpid()),
        parent=os.getppid(),
        elastic="TORCHELASTIC_RUN_ID" in environ,
        rank=int(rank) if rank.isdigit() else None,
        command=list(sys.orig_argv),
        age_s=meeting.age_of_this_process(),
    )
    try:
        meeting.leave_word(Path(offer.spool), joined)
    except OSError as error:
        raise TraceMLError(
            f"the collector's folder {offer.spool} can't be written to ({error.strerror})"
        ) from None
    return offer


def _named(folder: str | None) -> Place | None:
    if not folder:
        return None
    manifest = read_manifest(Path(folder))
    if manifest.spool is None or not meeting.is_private(Path(manifest.spool)):
        raise TraceMLError(
            f"the run in {folder} (TRACEML_RUN_DIR) is over, or was recorded on another machine"
        )
    return Place(manifest.spool, folder)


def _met(environ: Mapping[str, str]) -> Place:
    try:
        cwd = os.getcwd()
    except OSError:  # it was removed under us
        cwd = ""
    restarted = elastic_attempt(environ) > 0
    choice = meeting.choose(meeting.offers(), cwd=cwd, parent=os.getppid(), restarted=restarted)
    if choice.offer is None:
        raise TraceMLError(choice.why_not)
    return Place(choice.offer.spool, choice.offer.folder)


def record_alone(logs: str, run_name: str | None, environ: Mapping[str, str]) -> Place:
    """Make a run of this process by itself.

    Args:
        logs: Where run folders are kept.
        run_name: The run's folder; ``None``: one of our own.
        environ: Tells one of several ranks, each of which is a run of its own here.

    Raises:
        UsageError: The run name is taken, or no folder name.
        TraceMLError: There is no place to record in.
    """
    rank = environ.get("RANK", "") if environ.get("WORLD_SIZE", "1") != "1" else ""
    suffix = f"-r{rank}" if rank else ""
    name = None if run_name is None else run_name + suffix
    begin_ns = perf_counter_ns()
    recording = open_recording(Plan(Path(logs).absolute(), name, _stem() + suffix, list(sys.orig_argv), 0.0))
    if recording.spool is None or recording.folder is None:
        raise TraceMLError("; ".join(recording.problems))
    age_s = None if _is_interactive() else meeting.age_of_this_process()
    manifest = recording.started(os.getpid(), begin_ns - round((age_s or 0.0) * 1e9)).manifest
    manifest.write(recording.folder)
    return Place(str(recording.spool), str(recording.folder.absolute()))


def _stem() -> str:
    script = sys.argv[0] if sys.argv else ""
    return "notebook" if _is_interactive() else os.path.splitext(os.path.basename(script))[0] or "run"


def _is_interactive() -> bool:
    """Whether somebody sits at a prompt or notebook: what came before ``init()`` is not the run's then."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


# Not `-m`: the working directory must not come before the library in the search for modules.
_FINISH = """
import sys
folder, end_ns, *sys.path[:] = sys.argv[1:]
from traceml_ai.launch.finishing import finish
finish(folder, int(end_ns))
"""


def _search_path() -> list[str]:
    """This process's search path, its program's own folder and the working directory last.

    They can't be left out: the folder of a notebook's kernel holds the installed packages.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = {os.path.abspath(os.path.dirname(word)) for word in sys.argv[:1]}
    if os.path.isdir(os.curdir):
        own.add(os.path.abspath(os.curdir))
    path = [os.path.abspath(each) for each in sys.path if each]
    return [each for each in path if each not in own] + [root] + [each for each in path if each in own]


def tell_at_exit(folder: str, pid: int) -> None:
    """Write the summary of a run of this process by itself, in a process of its own that ends at once.

    The analysis loads libraries that the training process has no need of, and whatever goes wrong there
    stays there.
    """
    if os.getpid() != pid or not sys.executable:
        return
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
    command = [sys.executable, "-c", _FINISH, folder, str(perf_counter_ns()), *_search_path()]
    if hasattr(os, "posix_spawn"):
        os.waitpid(os.posix_spawn(sys.executable, command, clean), 0)
    else:
        os.spawnve(os.P_WAIT, sys.executable, command, clean)  # noqa: S606 - no shell is the point
