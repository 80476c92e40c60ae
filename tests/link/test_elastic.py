"""A job on two nodes whose torchruns start it again."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from link.test_nodes import PATIENCE_S, free_port, slurm, start, summary
from traceml_ai.link.keys import write_secret

RESTARTED = Path(__file__).parent.parent / "ranks" / "scripts" / "restarted.py"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.skipif("TRACEML_EVIDENCE" not in os.environ, reason="part of make evidence")
def test_a_job_on_two_nodes_that_is_restarted_is_two_attempts_and_not_one_blurred(tmp_path: Path) -> None:
    secret, link, port = write_secret(tmp_path / "unused.key"), free_port(), free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += [
        "--max-restarts=1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=job",
    ]
    # Without the variable PyTorch's second attempt reads the first one's addresses from the store they share.
    environ = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    nodes = []
    for number in (0, 1):
        words = [f"--link={link}", "--", *command, str(RESTARTED)]
        nodes.append(start(tmp_path, *words, **slurm(number, secret), **environ))
        # On one machine both torchruns would take themselves for the host of the rendezvous.
        until = time.monotonic() + PATIENCE_S
        while not listens(port) and time.monotonic() < until:
            time.sleep(0.05)
    told = [node.communicate(timeout=PATIENCE_S)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    found = summary(tmp_path)
    assert found["run"]["attempts"] == 2
    assert [(row["rank"], row["steps"]) for row in found["step_time"]["ranks"]] == [(0, 25), (1, 25)]
    assert (
        "The job was restarted: figures are of attempt 2; the one before made 40 steps." in found["warnings"]
    )
