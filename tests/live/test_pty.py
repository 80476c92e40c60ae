"""A user at a real terminal with the live view in front of a real program."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.tool import TRACEML, script
from live.terminals import User

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")

OPEN = "1 overview"


@pytest.fixture
def at_terminal(tmp_path: Path) -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(text: str, *options: str, **more: object) -> User:
        script(tmp_path, text)
        command = [*TRACEML, "run", "--mode", "cli", "--run-name", "run", *options, "train.py"]
        users.append(User(command, tmp_path, **more))  # type: ignore[arg-type]
        return users[-1]

    yield start
    for user in users:
        user.close()


def summary(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "logs/run/final_summary.json").read_bytes())
    assert isinstance(found, dict)
    run = found["run"]
    assert isinstance(run, dict)
    return run


def test_the_view_opens_and_leaves_the_output_and_the_card_behind(
    at_terminal: Callable[..., User], tmp_path: Path
) -> None:
    user = at_terminal("""
        import os, sys, time
        while os.get_terminal_size().lines == 40: time.sleep(0.05)
        print("\\x1b[31mred\\x1b[0m", [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)])
        for i in range(16):
            print(f"\\rbar {i:3d}", end="", flush=True); time.sleep(0.1)
        print()
    """)
    before = user.settings
    user.until(OPEN)
    user.until("red [True, True, True]")

    assert user.end() == 0
    assert user.settings == before
    assert OPEN not in user.scrolled
    assert "\nred [True, True, True]\nbar  15\nTraceML · run · completed" in user.scrolled
    assert b"\x1b[0;31mred" in user.received
    assert summary(tmp_path)["status"] == "completed"
    assert (tmp_path / "logs/run/output.log").read_bytes().count(b"\rbar") == 16


def test_a_program_that_asks_gets_what_is_typed(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        time.sleep(1.5)
        print("hello", input("your name? ").upper())
        time.sleep(0.5)
    """)
    user.until("your name?")
    user.until("what you type goes to the program")
    user.type("pqi1?\n")
    user.until("hello PQI1?")

    assert user.end() == 0
    assert "your name? pqi1?\nhello PQI1?" in user.scrolled


def test_a_debugger_works(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        time.sleep(1.5)
        value = 41
        breakpoint()
        print("value is", value)
    """)
    user.until("(Pdb)")
    user.until("what you type goes to the program")
    user.type("value = 4x\x7f2\n")
    user.read(0.5)
    user.type("c\n")

    assert user.end() == 0
    assert "value is 42" in user.scrolled


def test_a_password_is_asked_for_without_an_echo(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import getpass, time
        time.sleep(1.2)
        print("length", len(getpass.getpass("secret: ")))
    """)
    user.until("secret:")
    user.until("what you type goes to the program")
    user.type("hunter2\n")

    assert user.end() == 0
    assert "length 7" in user.scrolled
    assert "hunter2" not in user.scrolled


def test_ctrl_c_interrupts_the_program(at_terminal: Callable[..., User], tmp_path: Path) -> None:
    user = at_terminal("""
        import time
        try:
            print("working", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("tidying up", flush=True)
            raise
    """)
    user.until(OPEN)
    user.type("\x03")

    assert user.end() == -signal.SIGINT
    assert "working\n^Ctidying up\n" in user.scrolled
    assert user.scrolled.count("KeyboardInterrupt") == 1
    assert summary(tmp_path)["status"] == "interrupted"


def test_a_second_ctrl_c_interrupts_what_the_first_began(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("tidying up", flush=True)
            time.sleep(60)
    """)
    user.until(OPEN)
    user.type("\x03")
    user.until("tidying up")
    user.type("\x03")

    assert user.end() == -signal.SIGINT


def test_ctrl_c_before_the_view_is_open_interrupts_the_program(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("import time; print('working', flush=True); time.sleep(60)")
    user.until("working")
    assert OPEN not in user.text
    user.type("\x03")

    assert user.end() == -signal.SIGINT


def test_closing_the_view_leaves_the_program_at_the_terminal(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        print("before", flush=True)
        time.sleep(3)
        print("after, and", input("more? "), flush=True)
        time.sleep(60)
    """)
    before = user.settings
    user.until(OPEN)
    user.type("q")
    user.until(lambda: not user.is_full_screen)
    user.until("more?")
    user.type("this\n")
    user.until("after, and this")
    user.type("\x03")

    assert user.end() == -signal.SIGINT
    assert user.settings == before
    assert re.search(r"before\n(traceml: .*\n)?more\? this\nafter, and this\n", user.scrolled)


def test_ctrl_z_stops_the_program_and_continuing_goes_on(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        for i in range(40):
            print("turn", i, flush=True); time.sleep(0.1)
    """)
    user.until(OPEN)
    user.type("\x1a")
    user.until_stopped()
    user.read(0.5)
    shown = user.scrolled
    user.read(1.0)
    assert user.scrolled == shown
    user.go_on()

    assert user.end() == 0
    assert "turn 39" in user.scrolled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_reaches_the_program(
    at_terminal: Callable[..., User], number: signal.Signals
) -> None:
    user = at_terminal("import time; time.sleep(60)")
    before = user.settings
    user.until(OPEN)
    user.send(number)

    assert user.end() == -number
    assert user.settings == before


def test_a_killed_launcher_leaves_the_program_running_and_the_terminal_usable(
    at_terminal: Callable[..., User], tmp_path: Path
) -> None:
    user = at_terminal("""
        import pathlib, time
        for i in range(40):
            print("turn", i, flush=True); time.sleep(0.1)
        pathlib.Path("done").write_text("yes")
    """)
    before = user.settings
    user.until(OPEN)
    user.send(signal.SIGKILL)
    user.end()
    user.until((tmp_path / "done").exists, 15)
    user.until(lambda: not user.is_full_screen, 15)

    assert user.settings == before


def test_a_killed_view_gives_the_terminal_back(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("""
        import time
        for i in range(35):
            print("turn", i, flush=True); time.sleep(0.1)
    """)
    before = user.settings
    user.until(OPEN)
    children = Path(f"/proc/{user.pid}/task/{user.pid}/children").read_text().split()
    (view,) = [pid for pid in children if b"attach" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(int(view), signal.SIGKILL)
    user.until(lambda: not user.is_full_screen)
    user.until("turn 33")

    assert user.end() == 0
    assert user.settings == before
    assert "turn 0\nturn 1\n" in user.scrolled
    assert user.scrolled.count("turn 30\n") == 1


def test_what_the_program_leaves_running_lives_on(at_terminal: Callable[..., User], tmp_path: Path) -> None:
    user = at_terminal("""
        import subprocess, sys, time
        time.sleep(1.2)
        for out in (None, subprocess.DEVNULL):
            subprocess.Popen([sys.executable, "-c", "import time, pathlib; time.sleep(1.5);"
                f"pathlib.Path('lived-{out}').touch()"], stdin=out, stdout=out, stderr=out)
    """)

    assert user.end() == 0
    user.until(lambda: len(list(tmp_path.glob("lived-*"))) == 2, 10)


def test_the_program_sees_the_size_of_its_pane(at_terminal: Callable[..., User]) -> None:
    user = at_terminal(
        """
        import os, signal, time
        signal.signal(signal.SIGWINCH, lambda *_: print("now", *os.get_terminal_size(), flush=True))
        until = time.monotonic() + 8
        while time.monotonic() < until: time.sleep(0.1)
        """,
        columns=90,
        rows=30,
    )
    user.until(OPEN)
    user.until("now 90 27")
    user.resize(120, 40)
    user.until("now 120 37")


def test_a_short_program_ends_without_a_view(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("print('short')")

    assert user.end() == 0
    assert b"\x1b[?1049h" not in user.received
    assert "short\nTraceML" in user.scrolled


def test_a_dumb_terminal_gets_no_view_and_no_control_codes(at_terminal: Callable[..., User]) -> None:
    user = at_terminal("import time; print('plain'); time.sleep(1.5)", env={"TERM": "dumb"})

    assert user.end() == 0
    assert b"\x1b" not in user.received
    assert "plain\nTraceML" in user.scrolled


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    user = User([*TRACEML, "run", "--mode", "cli", "--", "no-such-command"], tmp_path)

    assert user.end() == 127
    assert "no-such-command: command not found" in user.scrolled


@pytest.mark.parametrize("close", [False, True], ids=["behind the view", "after it was closed"])
def test_a_terminal_that_takes_nothing_does_not_hold_the_program_up(
    at_terminal: Callable[..., User], tmp_path: Path, close: bool
) -> None:
    user = at_terminal("""
        import pathlib, time
        while not pathlib.Path("go").exists(): time.sleep(0.05)
        for i in range(40_000): print("line", i, "x" * 60)
        pathlib.Path("done").touch()
        while not pathlib.Path("end").exists(): time.sleep(0.05)
    """)
    user.until(OPEN)
    if close:
        user.type("q")
        user.until(lambda: not user.is_full_screen)
    (tmp_path / "go").touch()
    until = time.monotonic() + 20
    while not (tmp_path / "done").exists():  # nobody reads from the terminal meanwhile
        assert time.monotonic() < until
        time.sleep(0.05)
    (tmp_path / "end").touch()

    assert user.end() == 0
    assert "line 39999" in user.scrolled
