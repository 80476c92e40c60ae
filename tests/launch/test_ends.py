"""However a program ends, `traceml run` ends the same way, with a summary that says so."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from launch.tool import PYTHON, TRACEML, end, manifest, plain, run, script, start, summary, traced
from traceml_ai.collect.family import children_of

COUNTING = """
    import signal, sys, time
    got = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
        signal.signal(getattr(signal, name), lambda number, frame: got.append(number))
    print("ready", flush=True)
    until = time.monotonic() + 30
    while not got and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.4)  # a second one would come by now
    print(got, flush=True)
    sys.exit(5)
"""
WAITING = """
    import time
    print("ready", flush=True)
    time.sleep(60)
"""
TIDY = """
    import time
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    finally:
        time.sleep(0.3)
        print("tidied", flush=True)
"""


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("pass", "completed"),
        ("import sys; sys.exit(0)", "completed"),
        ("import sys; sys.exit(3)", "failed"),
        ("import sys; sys.exit('no data')", "failed"),
        ("1 / 0", "failed"),
        ("def broken(:", "failed"),
        ("import os; os._exit(7)", "failed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed"),
        ("import os; os.abort()", "killed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "terminated"),
        ("raise KeyboardInterrupt", "interrupted"),
    ],
)
def test_the_end_is_pythons(tmp_path: Path, text: str, status: str) -> None:
    script(tmp_path, text)
    reference = plain(["train.py"], tmp_path)

    ended = traced(["train.py"], tmp_path)

    assert ended.returncode == reference.returncode
    assert ended.stdout == reference.stdout
    assert reference.stderr in ended.stderr
    found = summary(tmp_path)["run"]
    code = reference.returncode
    assert (found["status"], found["exit_code"]) == (status, code if code >= 0 else 128 - code)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSEGV", "SIGQUIT"])
def test_a_signal_to_the_training_process_ends_both_alike(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    script(tmp_path, WAITING)
    reference = start([*PYTHON, "train.py"], tmp_path)
    process = start([*TRACEML, "run", "train.py"], tmp_path)

    reference.send_signal(number)
    os.kill(_child(tmp_path), number)

    assert end(process).returncode == end(reference).returncode
    assert summary(tmp_path)["run"]["exit_code"] == 128 + number


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("whole_group", [True, False])
def test_a_signal_reaches_the_program_exactly_once(tmp_path: Path, name: str, *, whole_group: bool) -> None:
    script(tmp_path, COUNTING)
    process = start([*TRACEML, "run", "train.py"], tmp_path)

    _send(process.pid, getattr(signal, name), whole_group=whole_group)
    ended = end(process)

    assert ended.stdout == f"[{int(getattr(signal, name))}]\n"
    assert ended.returncode == 5


def test_a_signal_sent_while_everything_starts_is_not_lost(tmp_path: Path) -> None:
    script(tmp_path, COUNTING)
    process = start([*TRACEML, "run", "train.py"], tmp_path)
    process.terminate()
    process.terminate()

    assert end(process).stdout == "[15]\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
def test_an_interrupt_of_the_launcher_alone_arrives_though_the_machine_is_busy(tmp_path: Path) -> None:
    script(tmp_path, COUNTING)
    process = start([*TRACEML, "run", "train.py"], tmp_path)
    child = _child(tmp_path)
    (bystander,) = set(children_of(process.pid) or []) - {child}

    os.kill(bystander, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.6)
    os.kill(bystander, signal.SIGCONT)

    assert end(process).stdout == f"[{int(signal.SIGINT)}]\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_that_comes_while_the_folders_are_made_leaves_none_behind(tmp_path: Path, name: str) -> None:
    script(tmp_path, WAITING)
    wrapper = script(
        tmp_path,
        f"""
        import os, signal, sys
        from traceml_ai.cli.main import main
        from traceml_ai.launch import life
        made = life.open_recording

        def interrupted(plan):
            recording = made(plan)
            os.kill(os.getpid(), signal.{name})
            return recording

        life.open_recording = interrupted
        sys.exit(main())
        """,
        "wrapper.py",
    )

    ended = run([*PYTHON, str(wrapper), "run", "train.py"], tmp_path)

    assert ended.returncode == -getattr(signal, name)
    assert not Path(manifest(tmp_path)["spool"]).exists()
    assert summary(tmp_path)["run"]["exit_code"] == 128 + getattr(signal, name)


def test_ctrl_c_lets_the_program_tidy_up_and_the_summary_be_written(tmp_path: Path) -> None:
    script(tmp_path, TIDY)
    process = start([*TRACEML, "run", "train.py"], tmp_path)

    _send(process.pid, signal.SIGINT, whole_group=True)
    ended = end(process)

    assert ended.stdout == "interrupted\ntidied\n"
    assert ended.stderr.count("KeyboardInterrupt") == 1
    assert ended.returncode == -signal.SIGINT
    assert summary(tmp_path)["run"]["status"] == "interrupted"


def test_ctrl_c_on_a_terminal_reaches_the_program_exactly_once(tmp_path: Path) -> None:
    script(tmp_path, COUNTING)
    terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    process = start([*PYTHON, "-c", terminal, *TRACEML, "run", "train.py"], tmp_path, stdin=subprocess.PIPE)
    _child(tmp_path)
    assert process.stdin is not None

    process.stdin.write("\x03")
    process.stdin.flush()
    ended = end(process)

    assert "[2]" in ended.stdout
    assert ended.returncode == 5
    assert summary(tmp_path)["run"]["status"] == "failed"


def test_what_the_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    script(tmp_path, "import signal; print(signal.getsignal(signal.SIGHUP), flush=True); input()", "show.py")
    process = start([*nohup, *TRACEML, "run", "show.py"], tmp_path)

    process.send_signal(signal.SIGHUP)

    assert process.poll() is None
    assert end(process).returncode == 1  # the end of the empty standard input


def test_what_the_shell_ignores_reaches_a_program_that_handles_it_itself(tmp_path: Path) -> None:
    nohup = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh"]
    script(tmp_path, COUNTING)
    process = start([*nohup, *TRACEML, "run", "train.py"], tmp_path)
    _child(tmp_path)

    process.send_signal(signal.SIGHUP)

    assert end(process).stdout == f"[{int(signal.SIGHUP)}]\n"


def test_the_exit_code_is_kept_where_the_caller_ignores_dead_children(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import signal, sys, time
        time.sleep(0.2)
        sys.exit(3 if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN else 4)
        """,
    )
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )

    assert run([*PYTHON, "-c", ignoring, *TRACEML, "run", "train.py"], tmp_path).returncode == 3


def test_death_is_noticed_at_once(tmp_path: Path) -> None:
    script(tmp_path, WAITING)
    process = start([*TRACEML, "run", "--interval", "30", "train.py"], tmp_path)
    time.sleep(1.5)

    begin = time.monotonic()
    os.kill(_child(tmp_path), signal.SIGKILL)
    end(process)

    assert time.monotonic() - begin < 1.5


def test_the_launcher_is_all_that_a_run_leaves_in_the_process_table(tmp_path: Path) -> None:
    script(tmp_path, WAITING)
    process = start([*TRACEML, "run", "train.py"], tmp_path)
    os.kill(_child(tmp_path), signal.SIGTERM)
    end(process)

    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def _send(pid: int, number: int, *, whole_group: bool) -> None:
    if whole_group:
        os.killpg(pid, number)
    else:
        os.kill(pid, number)


def _child(folder: Path) -> int:
    """Wait for the manifest that names the training process."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        pid = manifest(folder)["child_pid"]
        if pid is not None:
            return int(pid)
        time.sleep(0.02)
    raise AssertionError("the training process is not in the manifest")
