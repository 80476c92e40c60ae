"""Two nodes as two hosts on this machine: network namespaces, a real wire between them, which is cut.

    sudo python scripts/nodes_in_namespaces.py [--cut-s SECONDS]

Both train until some seconds after the wire is whole again. Every step must be in the owner's summary once,
both must take as long as one another, and a stranger on the wire who speaks without the key must change
nothing. Exits with 77 where namespaces are not allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from two_hosts import ADDRESSES, SKIPPED, NotAllowedError, cut_the_wire, mend_the_wire, on_host, two_hosts

OWNER = ADDRESSES[0]
PORT = 29477
STEP_S = 0.02
BEFORE_S, AFTER_S = 6.0, 6.0  # starting is part of the former
TRAINING = """
import sys, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begin = time.perf_counter()
for i in range(int(sys.argv[1])):
    time.sleep({step_s})
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
print(time.perf_counter() - begin)
"""
STRANGER = f"""
import socket
for word in (b"GET / HTTP/1.1\\r\\n\\r\\n", bytes(1000), b"\\xff" * 64):
    with socket.create_connection(("{OWNER}", {PORT}), 5) as wire:
        wire.sendall(word)
"""


def start(folder: Path, node: int, steps: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "traceml_ai", "run", "--run-name", "job", f"--link={OWNER}:{PORT}"]
    words += ["--link-key=run.key", "--", sys.executable, "train.py", str(steps)]
    environ = {**os.environ, "SLURM_NNODES": "2", "SLURM_NODEID": str(node), "RANK": str(node)}
    environ |= {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        on_host(node, *words), cwd=folder, env=environ, text=True, stdout=pipe, stderr=pipe
    )


def run(folder: Path, steps: int, cut_s: float) -> tuple[dict[str, Any], list[str]]:
    """Run the job; return the owner's summary and what each program printed."""
    (folder / "train.py").write_text(TRAINING.format(step_s=STEP_S))
    key = [sys.executable, "-m", "traceml_ai", "key", "run.key"]
    subprocess.run(key, cwd=folder, check=True)
    nodes = [start(folder, node, steps) for node in (0, 1)]
    time.sleep(BEFORE_S)
    cut_the_wire()
    time.sleep(cut_s)
    mend_the_wire()
    subprocess.run(on_host(1, sys.executable, "-c", STRANGER), check=True)
    told = [node.communicate(timeout=120 + cut_s) for node in nodes]
    for node, (_, said) in zip(nodes, told, strict=True):
        assert node.returncode == 0, said
    summary: dict[str, Any] = json.loads((folder / "logs" / "job" / "final_summary.json").read_bytes())
    return summary, [out for out, _ in told]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cut-s", type=float, default=5.0, help="how long nothing passes (5)")
    cut_s: float = parser.parse_args().cut_s
    steps = round((BEFORE_S + cut_s + AFTER_S) / STEP_S)
    try:
        with two_hosts(), tempfile.TemporaryDirectory() as folder:
            summary, printed = run(Path(folder), steps, cut_s)
    except NotAllowedError as error:
        print(f"skipped: {error}")
        return SKIPPED
    by_rank = {row["rank"]: row["steps"] for row in summary["step_time"]["ranks"]}
    took_s = [float(text) for text in printed]
    print(f"on {socket.gethostname()}: cut for {cut_s:g} s, steps by rank {by_rank}, training {took_s} s")
    print("warnings:", *summary["warnings"], sep="\n  ")
    assert by_rank == {0: steps, 1: steps}, by_rank
    assert any("without the run's key" in warning for warning in summary["warnings"])
    assert max(took_s) < 1.5 * min(took_s), took_s
    assert not any("was last heard" in warning for warning in summary["warnings"])
    print("every step once, training untouched")
    return 0


if __name__ == "__main__":
    sys.exit(main())
