"""Places that people train in: a process namespace, a log file, a system without Unix signals, two ranks."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.tool import PYTHON, TRACEML, run, script, summary, traced
from ranks import cases as jobs

TRAIN = """
    import sys, torch
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(160, 8))
    for i, (x,) in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    print("trained", i + 1)
"""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def _namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _namespaces(), reason="process namespaces are not allowed here")
def test_a_container_without_the_hosts_process_ids_changes_nothing(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)

    ended = run([*NAMESPACE, *TRACEML, "run", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "trained 40\n"), ended.stderr
    assert summary(tmp_path)["run"]["steps"] == 40


def test_a_log_file_gets_no_control_codes_and_few_lines(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)

    ended = traced(["train.py"], tmp_path, env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})

    assert re.findall(r"[\x1b\r\b]", ended.stdout + ended.stderr) == []
    assert ended.stdout == "trained 40\n"
    assert len(ended.stderr.splitlines()) <= 31


# What a system without fork and Unix signals lacks, for the launcher and for what it starts.
LACKING = """
    import os, signal, socket
    for module, names in (
        (signal, ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "SIGCHLD")),
        (socket, ("SO_REUSEPORT",)),
        (os, ("fork", "pidfd_open", "getpgid", "killpg", "sched_getaffinity")),
    ):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    """


def test_a_system_without_fork_and_unix_signals_trains_and_has_a_summary(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    script(
        tmp_path,
        LACKING + "import sys\n    from traceml_ai.cli.main import main\n    sys.exit(main())",
        "it.py",
    )

    ended = run([*PYTHON, "it.py", "run", "train.py"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "trained 40\n"), ended.stderr
    assert summary(tmp_path)["run"]["steps"] == 40


@pytest.mark.slow
def test_where_the_first_rank_reads_for_all_input_is_slow_on_both_and_no_rank_is_late(tmp_path: Path) -> None:
    ended = jobs.run("", tmp_path, script=Path(__file__).parent / "scripts" / "dispatch.py")

    assert ended.returncode == 0, ended.stderr
    assert ended.summary.diagnosis.kind == "INPUT_BOUND"
    assert ended.summary.diagnosis.evidence["source_ranks"] == [0]
    assert jobs.stragglers(ended.summary) == []
