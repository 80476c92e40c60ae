"""Two nodes as two hosts on this machine: network namespaces, a real wire between them, which is cut.

    sudo python scripts/nodes_in_namespaces.py

Both train for a quarter of a minute; meanwhile the wire is down for five seconds. Every step must be in the
owner's summary once, both must take as long as one another, and a stranger on the wire who speaks without
the key must change nothing. Exits with 77 where namespaces are not allowed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKIPPED = 77
PREFIX = f"tml{os.getpid()}"
HOSTS, WIRES = [f"{PREFIX}n{i}" for i in (0, 1)], [f"{PREFIX}w{i}" for i in (0, 1)]
OWNER = "10.77.0.1"
PORT = 29477
STEPS, STEP_S = 600, 0.02
TRAINING = f"""
import time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begin = time.perf_counter()
for i in range({STEPS}):
    time.sleep({STEP_S})
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
print(time.perf_counter() - begin)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def build() -> None:
    """Make two hosts with a wire between them."""
    for host in HOSTS:
        ip("netns", "add", host)
        ip("-n", host, "link", "set", "lo", "up")
    ip("link", "add", WIRES[0], "type", "veth", "peer", "name", WIRES[1])
    for number, (host, wire) in enumerate(zip(HOSTS, WIRES, strict=True)):
        ip("link", "set", wire, "netns", host)
        ip("-n", host, "address", "add", f"10.77.0.{number + 1}/24", "dev", wire)
        ip("-n", host, "link", "set", wire, "up")


def remove() -> None:
    for host in HOSTS:
        subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


def start(folder: Path, node: int, script: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", HOSTS[node], sys.executable, "-m", "traceml_ai", "run"]
    command += [
        "--run-name",
        "job",
        f"--link={OWNER}:{PORT}",
        "--link-key=run.key",
        "--",
        sys.executable,
        script,
    ]
    environ = {**os.environ, "SLURM_NNODES": "2", "SLURM_NODEID": str(node), "RANK": str(node)}
    environ |= {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, stdout=pipe, stderr=pipe)


STRANGER = f"""
import socket
for word in (b"GET / HTTP/1.1\\r\\n\\r\\n", bytes(1000), b"\\xff" * 64):
    with socket.create_connection(("{OWNER}", {PORT}), 5) as wire:
        wire.sendall(word)
"""


def run(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the job; return the owner's summary and what each program printed."""
    (folder / "train.py").write_text(TRAINING)
    key = [sys.executable, "-m", "traceml_ai", "key", "run.key"]
    subprocess.run(key, cwd=folder, check=True)
    nodes = [start(folder, node, "train.py") for node in (0, 1)]
    time.sleep(6)
    ip("-n", HOSTS[1], "link", "set", WIRES[1], "down")
    time.sleep(5)
    ip("-n", HOSTS[1], "link", "set", WIRES[1], "up")
    subprocess.run(["ip", "netns", "exec", HOSTS[1], sys.executable, "-c", STRANGER], check=True)
    told = [node.communicate(timeout=120) for node in nodes]
    for node, (_, said) in zip(nodes, told, strict=True):
        assert node.returncode == 0, said
    summary: dict[str, Any] = json.loads((folder / "logs" / "job" / "final_summary.json").read_bytes())
    return summary, [out for out, _ in told]


def main() -> int:
    try:
        build()
    except (OSError, subprocess.CalledProcessError) as error:
        remove()
        print(f"skipped: network namespaces are not allowed here ({error})")
        return SKIPPED
    try:
        with tempfile.TemporaryDirectory() as folder:
            summary, printed = run(Path(folder))
    finally:
        remove()
    steps = {row["rank"]: row["steps"] for row in summary["step_time"]["ranks"]}
    took_s = [float(text) for text in printed]
    print(f"on {socket.gethostname()}: steps by rank {steps}, training {took_s} s")
    print("warnings:", *summary["warnings"], sep="\n  ")
    assert steps == {0: STEPS, 1: STEPS}, steps
    assert any("without the run's key" in warning for warning in summary["warnings"])
    assert max(took_s) < 1.5 * min(took_s), took_s
    assert not any("was last heard" in warning for warning in summary["warnings"])
    print("every step once, training untouched")
    return 0


if __name__ == "__main__":
    sys.exit(main())
