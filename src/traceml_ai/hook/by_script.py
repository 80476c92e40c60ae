"""Measuring that a script asks for, by `init` or by marking a step, where the start-up hook may not be."""

from __future__ import annotations

import atexit
import os
import sys

from traceml_ai.errors import TraceMLError, UsageError
from traceml_ai.probe import session as sessions
from traceml_ai.probe.session import Session, Which
from traceml_ai.schema import env


def apply(which: Which) -> None:
    """Measure this process as its script wants it, as soon as there is torch."""
    if env.is_disabled(os.environ.get(env.DISABLED)):
        return
    sessions.chosen = which
    if not (os.environ.get(env.SPOOL) or sessions.joined or _join()):
        return
    if "torch" not in sys.modules:
        if not os.environ.get(env.SPOOL):  # else the start-up hook waits for it already
            from traceml_ai import hook
            from traceml_ai.hook import torch_import

            torch_import.watch(hook.root())
        return
    session = session_of_process()
    if session is not None and session.which != which:
        session.reinstall(which)


def _join() -> bool:
    """Find the collector that waits for this process."""
    from traceml_ai.probe import joining

    try:
        place = joining.join(os.environ)
    except TraceMLError as error:
        sessions.say_once(
            f"{error}, nothing is measured; start it with: traceml run <script>, or start traceml serve first"
        )
        return False
    sessions.joined, sessions.run_folder = place
    return True


def record_alone(logs: str, run_name: str | None) -> None:
    """Make a run of this process by itself, unless there is a collector or TraceML is switched off."""
    if os.environ.get(env.SPOOL) or env.is_disabled(os.environ.get(env.DISABLED)):
        return
    from traceml_ai.probe import joining

    try:
        place = joining.record_alone(logs, run_name, os.environ)
    except UsageError:
        raise
    except (TraceMLError, OSError) as error:
        sessions.say_once(f"{error}: nothing is measured")
        return
    sessions.joined, sessions.run_folder = place
    assert place.folder is not None
    # Before the session registers its own end: what is registered first runs last.
    atexit.register(joining.tell_at_exit, place.folder, os.getpid())
    sessions.say_once(f"recording to {place.folder}")


def session_of_process() -> Session | None:
    """This process's session, attached now if the start-up hook could not do it."""
    if sessions.current is None and "torch" in sys.modules:
        session = sessions.attach_from_environment(sys.modules["torch"], late=True)
        if session is not None and sessions.joined:
            from traceml_ai.hook import frameworks

            frameworks.watch()
        return session
    return sessions.current
