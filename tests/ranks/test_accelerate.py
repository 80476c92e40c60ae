"""`accelerate launch` under `traceml run`: what trains is the same, and both processes are in the summary."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ranks.cases import JOB, PATIENCE_S

SCRIPT = JOB.with_name("accelerated.py")
# Chosen anew for each launch, but for the last: where the hook is.
ITS_OWN = ("TORCHELASTIC_ERROR_FILE", "PYTHONPATH")
EXIT_CODE = 3


def launch(folder: Path, name: str, port: int, *, traced: bool) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code, and what each process found around it."""
    # Accelerate starts more than one process by itself only when told that there are several devices.
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--multi_gpu",
        "--num_processes=2",
    ]
    command += ["--num_machines=1", f"--main_process_port={port}", str(SCRIPT), name, str(EXIT_CODE)]
    ours = [sys.executable, "-m", "traceml_ai", "run", "--run-name", "job", "--"] if traced else []
    environ = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS" and not k.startswith("TRACEML_")}
    ended = subprocess.run(
        [*ours, *command], cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    found = [folder / f"{name}-{rank}.json" for rank in range(2)]
    assert all(path.exists() for path in found), ended.stderr
    return ended.returncode, [json.loads(path.read_text()) for path in found]


@pytest.mark.slow
def test_exit_code_losses_threads_and_ports_are_those_of_accelerate_itself(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code, without = launch(tmp_path, "plain", port, traced=False)
    traced_code, traced = launch(tmp_path, "traced", port, traced=True)
    assert traced_code == code != 0
    for found in (*without, *traced):
        assert found["environ"].pop("MASTER_PORT") == str(port)
        for name in ITS_OWN:
            found["environ"].pop(name, None)
    assert traced == without
    assert [found["kind"] for found in traced] == ["DistributedType.MULTI_CPU"] * 2
    summary = json.loads((tmp_path / "logs" / "job" / "final_summary.json").read_bytes())
    assert summary["run"]["exit_code"] == code
    assert summary["run"]["ended_by"].endswith(f"with exit code {EXIT_CODE} after 30 steps")
    # 60 batches a rank in pairs, as gradient_accumulation_steps=2 says.
    rows = summary["step_time"]["ranks"]
    assert [(row["rank"], row["steps"]) for row in rows] == [(0, 30), (1, 30)]
    assert summary["diagnosis"]["scope"]["ranks"] == [1]
