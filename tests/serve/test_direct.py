"""Training processes that nobody of ours started: they find the collector, or record themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from link.test_nodes import free_port
from traceml_ai.link.keys import write_secret

TRAINING = """
import sys, time
import traceml
{before}
import torch
{after}
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(80, 8), batch_size=4)
for epoch in range(2):
    for batch in loader:
        time.sleep(0.002)
        model(batch).sum().backward()
        optimizer.step()
{end}
"""
PATIENCE_S = 60


def train(
    folder: Path, *, before: str = "traceml.init()", after: str = "", end: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAINING.format(before=before, after=after, end=end))
    return subprocess.run(
        [sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S, env=clean_environment() | env,
    )  # fmt: skip


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("TRACEML_")} | {"OMP_NUM_THREADS": "1"}


@contextmanager
def serving(folder: Path, *words: str, name: str = "one") -> Iterator[subprocess.Popen[str]]:
    """Have a collector that waits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "traceml_ai", "serve", "--run-name", name, *words], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment(),
    )  # fmt: skip
    try:
        assert process.stderr is not None
        assert "waiting for" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def summary(folder: Path, name: str = "one") -> dict[str, Any]:
    found = json.loads((folder / "logs" / name / "final_summary.json").read_bytes())
    assert isinstance(found, dict)
    return found


def test_a_script_with_init_is_collected_by_the_collector_that_waits(tmp_path: Path) -> None:
    with serving(tmp_path) as collector:
        ended = train(tmp_path)
        _, told = collector.communicate(timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert collector.returncode == 0
    assert "40 steps" in told
    found = summary(tmp_path)
    assert (found["run"]["status"], found["run"]["exit_code"], found["run"]["steps"]) == ("completed", 0, 40)
    assert found["run"]["command"][-1] == "train.py"
    assert found["process"]["main_rss_bytes"] is not None
    assert not Path(json.loads((tmp_path / "logs/one/run.json").read_bytes())["spool"]).exists()


def test_the_summary_says_how_a_process_ended_that_the_collector_did_not_start(tmp_path: Path) -> None:
    script = TRAINING.format(before="traceml.init()", after="", end="raise SystemExit(3)")
    (tmp_path / "train.py").write_text(script)
    with serving(tmp_path) as collector:
        training = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, env=clean_environment())
        collector.communicate(timeout=PATIENCE_S)  # before the parent asks: older kernels forget it then
        assert training.wait(PATIENCE_S) == 3
    assert (summary(tmp_path)["run"]["status"], summary(tmp_path)["run"]["exit_code"]) == ("failed", 3)


def test_a_script_that_fails_before_its_first_step_leaves_the_collector_waiting(tmp_path: Path) -> None:
    with serving(tmp_path) as collector:
        assert train(tmp_path, after="raise SystemExit(1)").returncode == 1
        assert train(tmp_path).returncode == 0
        _, told = collector.communicate(timeout=PATIENCE_S)
    assert "gone without a training step" in told
    assert summary(tmp_path)["run"]["steps"] == 40


def test_training_goes_on_when_the_collector_is_stopped(tmp_path: Path) -> None:
    with serving(tmp_path) as collector:
        stop = f"import os; os.kill({collector.pid}, {int(signal.SIGINT)}); time.sleep(3); print('alive')"
        ended = train(tmp_path, end=stop)
        collector.communicate(timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (0, "alive\n")
    found = summary(tmp_path)
    assert found["run"]["status"] == "running"
    assert any("stopped while the training went on" in warning for warning in found["warnings"])


def test_a_killed_collector_leaves_a_run_that_can_be_viewed_while_it_goes_on(tmp_path: Path) -> None:
    view = [sys.executable, "-m", "traceml_ai", "view", "logs/one", "--json"]
    with serving(tmp_path) as collector:
        end = f"import os, subprocess; os.kill({collector.pid}, 9); subprocess.run({view!r})"
        going_on = json.loads(train(tmp_path, end=end).stdout)
    assert (going_on["run"]["status"], going_on["run"]["steps"]) == ("running", 39)
    shown = subprocess.run(view, cwd=tmp_path, capture_output=True, check=True, timeout=PATIENCE_S)
    over = json.loads(shown.stdout)
    assert (over["run"]["status"], over["run"]["steps"]) == ("completed", 40)


def test_a_rank_that_never_comes_is_said_to_be_missing(tmp_path: Path) -> None:
    with serving(tmp_path, "--nproc-per-node=2") as collector:
        train(tmp_path)
        collector.communicate(timeout=PATIENCE_S)
    assert "2 ranks were waited for, 1 came." in summary(tmp_path)["warnings"]


def test_without_a_collector_there_is_one_warning_and_the_training_goes_on(tmp_path: Path) -> None:
    ended = train(tmp_path, end="traceml.init(); print(traceml.summary())")
    assert (ended.returncode, ended.stdout) == (0, "{}\n")
    assert ended.stderr.count("\n") == 1
    assert "no collector for this process" in ended.stderr
    assert not (tmp_path / "logs").exists()


def test_a_collector_is_named_by_its_run_folder_from_another_working_directory(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serving(tmp_path) as collector:
        assert "no collector for this process" in train(elsewhere).stderr
        train(elsewhere, TRACEML_RUN_DIR=str(tmp_path / "logs" / "one"))
        collector.communicate(timeout=PATIENCE_S)
    assert summary(tmp_path)["run"]["steps"] == 40


def test_torchrun_is_collected_rank_by_rank(tmp_path: Path) -> None:
    script = TRAINING.format(before="traceml.init()", after="", end="")
    (tmp_path / "train.py").write_text(script)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    ]
    with serving(tmp_path, "--nproc-per-node=2") as collector:
        subprocess.run(torchrun, cwd=tmp_path, check=True, timeout=PATIENCE_S, capture_output=True,
                       env=clean_environment())  # fmt: skip
        collector.communicate(timeout=PATIENCE_S)
    assert [rank["rank"] for rank in summary(tmp_path)["step_time"]["ranks"]] == [0, 1]


@pytest.mark.parametrize("at", ["before", "after"])
def test_standalone_keeps_the_log_and_writes_the_summary_at_exit(tmp_path: Path, at: str) -> None:
    call = "traceml.init(standalone=True, run_name='one')"
    ended = train(tmp_path, **{"before": "", at: call})
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "TraceML · one · completed · 40 steps" in ended.stderr
    assert summary(tmp_path)["step_time"]["phases"]["forward"]["coverage"] == 1.0 or at == "after"
    assert not Path(json.loads((tmp_path / "logs/one/run.json").read_bytes())["spool"]).exists()


def test_standalone_starts_no_thread_and_no_process_while_it_trains(tmp_path: Path) -> None:
    end = """
import os, pathlib
tasks = list(pathlib.Path("/proc/self/task").iterdir())
children = "".join((task / "children").read_text() for task in tasks)
import threading
print(threading.active_count(), children.split(), [m for m in ("msgspec", "psutil") if m in sys.modules])
"""
    init = "import pathlib; traceml.init(standalone=True)"
    assert train(tmp_path, before=init, end=end).stdout == "1 [] []\n"


def test_a_killed_standalone_run_can_be_viewed(tmp_path: Path) -> None:
    end = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    train(tmp_path, before="traceml.init(standalone=True, run_name='one')", end=end)
    view = [sys.executable, "-m", "traceml_ai", "view", "logs/one", "--json"]
    shown = subprocess.run(view, cwd=tmp_path, capture_output=True, check=True, timeout=PATIENCE_S)
    found = json.loads(shown.stdout)
    assert (found["run"]["status"], found["run"]["steps"]) == ("killed", 40)


def test_a_failing_standalone_run_ends_as_it_would(tmp_path: Path) -> None:
    ended = train(
        tmp_path, before="traceml.init(standalone=True, run_name='one')", end="raise ValueError('no')"
    )
    assert ended.returncode == 1
    assert "ValueError: no" in ended.stderr
    assert summary(tmp_path)["run"]["status"] == "failed"


def test_a_notebook_displays_the_summary_as_a_card(tmp_path: Path) -> None:
    end = "html = traceml.summary()._repr_html_(); print(type(traceml.final_summary()['run']), html)"
    ended = train(tmp_path, before="traceml.init(standalone=True)", end=end)
    assert "<class 'dict'> <div" in ended.stdout
    assert "<td>optimizer</td>" in ended.stdout


def test_a_modules_name_beside_the_script_does_not_stand_in_the_way_of_the_summary(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise SystemExit(9)")
    ended = train(tmp_path, before="traceml.init(standalone=True, run_name='one')")
    assert ended.returncode == 0
    assert summary(tmp_path)["run"]["steps"] == 40


def test_a_notebook_shows_the_card_at_any_time_and_leaves_a_summary(tmp_path: Path) -> None:
    training = """
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
    begin = "import traceml, torch; traceml.init(standalone=True, run_name='one')"
    cells = [begin, training, "traceml.summary()"]
    make: Any = nbformat.v4
    notebook = make.new_notebook(cells=[make.new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=PATIENCE_S, resources=where).execute()
    assert "<td>forward</td>" in notebook.cells[2].outputs[0]["data"]["text/html"]
    assert summary(tmp_path)["run"]["steps"] == 30


def test_measuring_is_off_when_it_is_switched_off(tmp_path: Path) -> None:
    ended = train(tmp_path, before="traceml.init(standalone=True)", TRACEML_DISABLED="1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "logs").exists()


def test_no_signal_of_the_programs_is_taken(tmp_path: Path) -> None:
    before = (
        "import signal; found = [signal.getsignal(n) for n in sorted(signal.valid_signals())]; found[9] = 0"
    )
    before += "; signal.signal(signal.SIGUSR1, lambda *_: print('mine')); traceml.init(standalone=True)"
    end = "now = [signal.getsignal(n) for n in sorted(signal.valid_signals())]; now[9] = 0\n"
    end += "print(now == found)\n"
    ended = train(tmp_path, before=before, end=end + "signal.raise_signal(signal.SIGUSR1)")
    assert ended.stdout == "True\nmine\n"


def test_an_owner_that_is_started_again_collects_what_another_node_has(tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "run.key")
    assert secret
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    words = ["--nnodes=2", f"--link={free_port()}", f"--link-key={tmp_path / 'run.key'}"]
    with serving(here, *words, "--node-rank=0") as first, serving(there, *words, "--node-rank=1") as node:
        (there / "train.py").write_text(
            TRAINING.format(before="traceml.init()", after="", end="time.sleep(6)")
        )
        training = subprocess.Popen([sys.executable, "train.py"], cwd=there, env=clean_environment())
        time.sleep(4)
        first.kill()
        with serving(here, *words, "--node-rank=0", name="two") as second:
            assert training.wait(PATIENCE_S) == 0
            node.communicate(timeout=PATIENCE_S)
            second.communicate(timeout=PATIENCE_S)
    found = summary(here, "two")
    assert [row["steps"] for row in found["step_time"]["ranks"]] == [40]
