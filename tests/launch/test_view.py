"""`traceml view`, on a finished run, a run folder, and a run whose collector was killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from launch.tool import TRACEML, Ended, end, manifest, run, run_folder, script, start, summary, traced
from traceml_ai.spool.runfolder import birth_of

# Writes the log as the probe would, without the second that importing torch takes.
RECORDING = """
    import os, sys, time
    sys.path.insert(0, {tests!r})
    from collect.recorded import facts, steps, writer
    spool = os.environ["TRACEML_SPOOL"]
    log = writer(spool)
    end = steps(log, 30, begin_ns=time.perf_counter_ns())
    print("ready", flush=True)
    until = time.monotonic() + 20
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.02)
    steps(log, 30, begin_ns=end, first=30)
    from pathlib import Path
    facts(Path(spool), os.getpid(), clean_exit=True)
    print("trained", flush=True)
"""


def recording(folder: Path) -> Path:
    return script(folder, RECORDING.format(tests=str(Path(__file__).parents[1])))


def view(folder: Path, *words: str) -> Ended:
    return run([*TRACEML, "view", *words], folder)


def test_the_card_is_shown_again_from_the_file_and_from_the_folder(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)

    from_file = view(tmp_path, "logs/base/final_summary.json")
    from_folder = view(tmp_path, "logs/base")

    assert from_file == from_folder
    assert from_file.returncode == 0
    assert from_file.stdout == (tmp_path / "logs/base/final_summary.txt").read_text()


def test_a_run_is_found_by_its_name(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)

    named = view(tmp_path, "base")

    assert named.returncode == 0
    assert named.stdout == view(tmp_path, "logs/base").stdout
    assert view(tmp_path, "base", "--logs-dir", "elsewhere").returncode == 2


def test_the_json_is_that_of_the_file(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["train.py"], tmp_path)

    shown = view(tmp_path, "--json", str(run_folder(tmp_path))).stdout

    assert json.loads(shown) == summary(tmp_path)


def test_run_can_end_with_the_summary_as_one_line_of_json(tmp_path: Path) -> None:
    script(tmp_path, "print('mine')")

    ended = traced(["--json", "train.py"], tmp_path)

    assert ended.stdout == "mine\n"
    assert json.loads(ended.stderr.splitlines()[-1]) == summary(tmp_path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_can_not_show_the_bars_gets_ascii(tmp_path: Path, encoding: str) -> None:
    recording(tmp_path)
    (tmp_path / "go").touch()
    env = {"PYTHONIOENCODING": encoding}

    ended = traced(["train.py"], tmp_path, env=env)
    shown = run([*TRACEML, "view", str(run_folder(tmp_path))], tmp_path, env=env)

    assert ended.stderr.isascii()
    assert shown.stdout.isascii()
    assert shown.returncode == 0
    assert "?" not in shown.stdout.partition("\n")[0]


def test_training_goes_on_without_its_collector_and_the_summary_is_rebuilt(tmp_path: Path) -> None:
    recording(tmp_path)
    process = start([*TRACEML, "run", "train.py"], tmp_path)
    child, spool = _started(tmp_path)

    process.kill()
    process.wait()
    while_training = view(tmp_path, "--json", str(run_folder(tmp_path)))
    (tmp_path / "go").touch()
    assert process.stdout is not None
    trained = process.stdout.read()  # ends with the training process
    _wait_until_gone(child)
    afterwards = view(tmp_path, "--json", str(run_folder(tmp_path)))

    assert trained == "trained\n"
    process.communicate()
    running = json.loads(while_training.stdout)
    assert (running["run"]["status"], running["run"]["steps"]) == ("running", 29)
    rebuilt = json.loads(afterwards.stdout)
    assert (rebuilt["run"]["status"], rebuilt["run"]["steps"]) == ("completed", 60)
    assert summary(tmp_path) == rebuilt
    assert (run_folder(tmp_path) / "final_summary.txt").read_text().startswith("TraceML")
    assert not spool.exists()


def test_a_killed_run_is_all_there(tmp_path: Path) -> None:
    recording(tmp_path)
    process = start([*TRACEML, "run", "train.py"], tmp_path)
    child, _ = _started(tmp_path)

    os.kill(child, signal.SIGKILL)
    ended = end(process)

    assert ended.returncode == -signal.SIGKILL
    found = summary(tmp_path)["run"]
    assert (found["status"], found["exit_code"], found["steps"]) == ("killed", 137, 30)


def test_a_spool_named_by_a_foreign_manifest_is_not_removed(tmp_path: Path) -> None:
    recording(tmp_path)
    (tmp_path / "go").touch()
    traced(["train.py"], tmp_path)
    folder = run_folder(tmp_path)
    precious = tmp_path / "precious"
    precious.mkdir()
    (folder / "final_summary.json").unlink()
    changed = manifest(tmp_path) | {"spool": str(precious)}
    (folder / "run.json").write_text(json.dumps(changed))

    assert view(tmp_path, str(folder)).returncode == 0
    assert precious.exists()


@pytest.mark.parametrize(
    ("name", "content", "complaint", "code"),
    [
        ("absent.json", None, "there is no run absent.json", 2),
        ("cut.json", '{"schema_version": 1, "run": {', "cut.json is cut off", 1),
        ("other.json", '{"a": 1}', "not a TraceML summary", 1),
        ("newer.json", '{"schema_version": 99, "traceml_version": "9"}', "newer TraceML", 1),
    ],
)
def test_what_is_no_summary_is_told_in_one_line(
    tmp_path: Path, name: str, content: str | None, complaint: str, code: int
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)

    ended = view(tmp_path, name)

    assert ended.returncode == code
    assert ended.stderr.startswith("traceml: ")
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_folder_that_is_no_run_is_told_in_one_line(tmp_path: Path) -> None:
    ended = view(tmp_path, ".")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is no run folder" in ended.stderr


def test_a_pipe_that_closes_early_is_no_traceback(tmp_path: Path) -> None:
    script(tmp_path, "pass")
    traced(["--run-name", "base", "train.py"], tmp_path)
    shell = " ".join([*TRACEML, "view", "logs/base"])

    ended = run(["sh", "-c", f"{shell} | true"], tmp_path)

    assert ended.stderr == ""


def _started(folder: Path) -> tuple[int, Path]:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        said = manifest(folder)
        if said["child_pid"] is not None:
            return int(said["child_pid"]), Path(said["spool"])
        time.sleep(0.02)
    raise AssertionError("the training process is not in the manifest")


def _wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 10
    while birth_of(pid) is not None and time.monotonic() < until:
        time.sleep(0.02)
