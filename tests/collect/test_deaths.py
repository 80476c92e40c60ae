"""The ends of processes that are somebody else's children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from traceml_ai.collect import deaths
from traceml_ai.collect.deaths import Deaths
from traceml_ai.schema.run import Death

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs process descriptors")

# Starts a process that waits to be told its exit code, says its id, and reaps it at once, as torchrun does.
LAUNCHER = """
import subprocess, sys
code = "import sys; sys.exit(int(sys.stdin.read() or 0))"
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.communicate(sys.stdin.buffer.read())
"""


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield started
    started.communicate()


def child_of(launcher: subprocess.Popen[str]) -> int:
    assert launcher.stdout is not None
    return int(launcher.stdout.readline())


def first(watch: Deaths) -> Death:
    for _ in range(500):
        if watch.found():
            return watch.found()[0]
        time.sleep(0.01)
    raise AssertionError("nothing was seen")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_signal_that_killed_a_grandchild_is_known(launcher: subprocess.Popen[str], number: int) -> None:
    grandchild = child_of(launcher)
    watch = Deaths()
    watch.watch([grandchild])
    os.kill(grandchild, number)
    death = first(watch)
    watch.close()
    assert death.pid == grandchild
    assert death.status is not None
    assert os.WTERMSIG(death.status) == number


def test_the_exit_code_of_a_grandchild_is_known(launcher: subprocess.Popen[str]) -> None:
    watch = Deaths()
    watch.watch([child_of(launcher)])
    launcher.communicate("3")
    death = first(watch)
    watch.close()
    assert death.status is not None
    assert os.waitstatus_to_exitcode(death.status) == 3


def test_processes_are_seen_in_the_order_in_which_they_end() -> None:
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
    watch = Deaths()
    for sleeper in sleepers:
        watch.watch([sleeper.pid])
    for sleeper in reversed(sleepers):
        sleeper.kill()
        for _ in range(500):
            if sleeper.pid in [death.pid for death in watch.found()]:
                break
            time.sleep(0.01)
    assert [death.pid for death in watch.found()] == [sleeper.pid for sleeper in reversed(sleepers)]
    for sleeper in sleepers:
        sleeper.wait()
    watch.close()


def test_a_process_that_is_gone_already_is_not_known_to_have_ended() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    watch = Deaths()
    watch.watch([gone.pid])
    watch.close()
    assert watch.found() == []


def test_without_process_descriptors_nothing_is_watched_and_nothing_fails() -> None:
    watch = Deaths(open_descriptor=None)
    watch.watch([os.getpid()])
    watch.close()
    assert watch.found() == []


def test_what_proc_says_of_a_zombie_is_taken_where_the_kernel_tells_no_more(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = ["Z", *["0"] * 48, "9"]
    (tmp_path / "7" / "stat").write_text("7 (a name) with ) in it) " + " ".join(fields) + "\n")
    assert deaths._from_proc(tmp_path, 7) == 9


@pytest.mark.parametrize("content", ["", "7 (x) R 1", "7 (x) " + " ".join(["R", *["0"] * 48, "9"])])
def test_what_proc_does_not_say_is_not_known(tmp_path: Path, content: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(content)
    assert deaths._from_proc(tmp_path, 7) is None
    assert deaths._from_proc(tmp_path, 8) is None
