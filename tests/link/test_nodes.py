"""Real jobs on several nodes, all of them on this machine: one launcher each, torchrun beneath."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import traceml_ai.hook
from traceml_ai.launch.environment import child_environment
from traceml_ai.link.keys import write_secret

PATIENCE_S = 90
DDP = """
import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(60):
    if dist.get_rank() == 1:
        time.sleep(0.02)
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
ALONE = """
import os, time
import torch
assert "TRACEML_LINK_SECRET" not in os.environ
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
{end}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEML_", "SLURM_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "traceml_ai", "run", "--run-name", "job", *words], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**clean, "OMP_NUM_THREADS": "1", **env},
    )  # fmt: skip


def slurm(node: int, secret: str) -> dict[str, str]:
    return {"SLURM_NNODES": "2", "SLURM_NODEID": str(node), "RANK": str(node), "TRACEML_LINK_SECRET": secret}


def summary(folder: Path, name: str = "job") -> dict[str, Any]:
    found = json.loads((folder / "logs" / name / "final_summary.json").read_bytes())
    assert isinstance(found, dict)
    return found


def script(folder: Path, end: str = "") -> str:
    (folder / "train.py").write_text(textwrap.dedent(ALONE.format(end=end)))
    return "train.py"


def test_two_nodes_make_one_summary_that_names_the_slow_rank_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DDP)
    secret = write_secret(tmp_path / "run.key")
    words = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    words += [f"--link={free_port()}", "--link-key=run.key"]
    nodes = [start(tmp_path, *words, f"--node-rank={node}", "train.py") for node in (1, 0)]
    told = [node.communicate(timeout=PATIENCE_S)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    found = summary(tmp_path)
    assert found["run"]["world_size"] == 2
    assert [(row["rank"], row["steps"]) for row in found["step_time"]["ranks"]] == [(0, 60), (1, 60)]
    assert found["diagnosis"]["scope"]["ranks"] == [1]
    assert "everything was sent" in told[0]
    assert summary(tmp_path, "job-node1")["run"]["steps"] == 60
    written = [path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert not any(secret.encode() in each for each in [*written, *(text.encode() for text in told)])


def test_a_node_that_never_comes_costs_the_others_nothing_and_is_named(tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "unused.key")
    link = f"--link={free_port()}"
    owner = start(tmp_path, link, "--", sys.executable, script(tmp_path), **slurm(0, secret))
    owner.communicate(timeout=PATIENCE_S)
    assert owner.returncode == 0
    found = summary(tmp_path)
    assert found["run"]["steps"] == 40
    assert "Node 1 never came: its ranks are in no figure." in found["warnings"]


def test_a_node_without_its_owner_trains_and_keeps_its_own_summary(tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "unused.key")
    begin = time.monotonic()
    command = ["--", sys.executable, script(tmp_path, "raise SystemExit(3)")]
    node = start(tmp_path, f"--link={free_port()}", *command, **slurm(1, secret))
    _, told = node.communicate(timeout=PATIENCE_S)
    assert node.returncode == 3
    assert summary(tmp_path, "job-node1")["run"]["steps"] == 40
    assert "TraceML · job-node1 · failed" in told
    assert time.monotonic() - begin < 60


def test_a_process_on_another_machine_than_its_collector_trains_and_says_so(tmp_path: Path) -> None:
    # What `traceml run -- srun python train.py` starts on the other nodes.
    hook = Path(traceml_ai.hook.__file__).parent / "path"
    elsewhere = child_environment(
        os.environ, hook_folder=hook, spool=tmp_path / "elsewhere", run_folder=tmp_path / "elsewhere too"
    )
    ended = subprocess.run(
        [sys.executable, script(tmp_path)], cwd=tmp_path, env={**elsewhere, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == 0
    assert ended.stderr.count("traceml:") == 1
    assert "measuring stopped: its collector has ended, or is on another machine" in ended.stderr


def test_an_address_that_is_taken_costs_the_link_and_not_the_run(tmp_path: Path) -> None:
    secret = write_secret(tmp_path / "unused.key")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        link = f"--link={taken.getsockname()[1]}"
        owner = start(tmp_path, link, "--", sys.executable, script(tmp_path), **slurm(0, secret))
        _, told = owner.communicate(timeout=PATIENCE_S)
    assert owner.returncode == 0
    assert "no link between the nodes: can't listen on 127.0.0.1" in told
    assert any("no link between the nodes" in warning for warning in summary(tmp_path)["warnings"])
