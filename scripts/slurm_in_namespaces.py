"""The launch script for Slurm on a real Slurm: its daemons, and two hosts on this machine.

    sudo python scripts/slurm_in_namespaces.py

Debian: apt-get install slurmctld slurmd slurm-client munge. A controller, two nodes with an address, a host
name and a table of hosts of their own, and `sbatch scripts/slurm/traceml.sbatch`: a job that ends, one that
USR1 reaches, one that fails; and `traceml run -- srun python train.py`. All of it is in a temporary folder.
Exits with 77 where namespaces or Slurm are missing.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from two_hosts import ADDRESSES, HOSTS, SKIPPED, NotAllowedError, two_hosts

SBATCH = Path(__file__).parent / "slurm" / "traceml.sbatch"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "munged")
NODES = ("node0", "node1")
PATIENCE_S = 90.0
STEPS = 60
TRAINING = f"""
import os, signal, sys, time
import torch, torch.distributed as dist
assert sys.argv[1:] == ["--epochs", "3"], sys.argv
# Under srun alone there is no torchrun to say this.
for name, value in (
    ("RANK", os.environ["SLURM_PROCID"]),
    ("WORLD_SIZE", os.environ["SLURM_NTASKS"]),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29871"),
):
    os.environ.setdefault(name, value)
caught = []
signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if os.environ["WAITS"] == "1" and rank == 0:
    open("waiting", "w").close()
for step in range({STEPS}):
    if rank == 1:
        time.sleep(0.02)
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
while os.environ["WAITS"] == "1" and not caught:
    time.sleep(0.05)
open(f"caught-{{rank}}", "w").write(str(len(caught)))
dist.barrier()
dist.destroy_process_group()
sys.exit(int(os.environ["CODE"]))
"""
CONFIGURATION = """
ClusterName=one
SlurmctldHost=node0
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
InactiveLimit=0
NodeName=node[0-1] CPUs=2
PartitionName=all Nodes=node[0-1] Default=YES MaxTime=10 State=UP
"""


class Cluster:
    """Slurm's daemons with everything of theirs in one folder."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, {**environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons: list[subprocess.Popen[bytes]] = []
        (folder / "state").mkdir()
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
        names = [f"{address} {name}" for address, name in zip(ADDRESSES, NODES, strict=True)]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))

    def command(self, node: int, *words: str) -> list[str]:
        """Return the command that runs this on a node, which has a name of its own."""
        setup = f'hostname {NODES[node]} && mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        # nsenter leaves /sys as it is, `ip netns exec` doesn't: slurmd looks there for control groups.
        network = f"--net=/run/netns/{HOSTS[node]}"
        return ["nsenter", network, "unshare", "--uts", "--mount", "sh", "-c", setup, "sh", *words]

    def run(self, *words: str) -> str:
        """Run one of Slurm's commands on the first node, as a user would; return what it prints."""
        command, pipe = self.command(0, *words), subprocess.PIPE
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, check=True, stdout=pipe, text=True
        ).stdout

    def start(self) -> None:
        """Start the daemons; return once both nodes would take a job."""
        self._munge()
        self._daemon(0, "slurmctld", "-D", "-c")
        for node in range(len(NODES)):
            self._daemon(node, "slurmd", "-D", "-N", NODES[node])
        wait("both nodes idle", lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2")

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        options = [f"--{name}={self.folder}/munge.{name.partition('-')[0]}" for name in
                   ("socket", "key-file", "log-file", "pid-file", "seed-file")]  # fmt: skip
        self._daemon(0, "munged", "--foreground", "--force", *options)
        wait("munge's socket", (self.folder / "munge.socket").exists)

    def _daemon(self, node: int, *words: str) -> None:
        with (self.folder / f"{words[0]}-{node}.log").open("wb") as log:
            self.daemons.append(
                subprocess.Popen(self.command(node, *words), env=self.environ, stdout=log, stderr=log)
            )

    def stop(self) -> None:
        """End the daemons."""
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(timeout=PATIENCE_S)


def wait(what: str, there: Callable[[], bool]) -> None:
    """Wait until something is there.

    Raises:
        TimeoutError: It never came.
    """
    end = time.monotonic() + PATIENCE_S
    while not there():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(0.2)


def job(cluster: Cluster, *, waits: bool, code: int) -> tuple[str, dict[str, Any]]:
    """Run the launch script as a job; return its exit code as Slurm has it, and the summary."""
    environ = f"--export=ALL,WAITS={int(waits)},CODE={code}"
    words = [
        environ,
        "--output=job-%j.out",
        "--parsable",
        str(SBATCH.absolute()),
        "train.py",
        "--epochs",
        "3",
    ]
    number = cluster.run("sbatch", *words).strip()
    if waits:
        wait("the training", (cluster.folder / "waiting").exists)
        cluster.run("scancel", "--signal=USR1", "--batch", number)
    shown = ""

    def is_over() -> bool:
        nonlocal shown
        shown = cluster.run("scontrol", "show", "job", number)
        return any(f"JobState={state}" in shown for state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"))

    try:
        wait("the job's end", is_over)
        summary = json.loads(
            (cluster.folder / "logs" / f"train-{number}-0" / "final_summary.json").read_bytes()
        )
    except (OSError, TimeoutError):
        print(*(path.read_text() for path in cluster.folder.glob("*.out")), shown, sep="\n")
        raise
    return next(word for word in shown.split() if word.startswith("ExitCode=")), summary


def around_srun(cluster: Cluster, code: int) -> None:
    """`traceml run -- srun python train.py`: srun's tasks are not the launcher's children."""
    words = [sys.executable, "-m", "traceml_ai", "run", "--run-name", "around", "--", "srun", "-N1", "-n2"]
    ended = subprocess.run(
        cluster.command(0, *words, sys.executable, "train.py", "--epochs", "3"), cwd=cluster.folder,
        env={**cluster.environ, "WAITS": "0", "CODE": str(code)}, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    summary = json.loads((cluster.folder / "logs" / "around" / "final_summary.json").read_bytes())
    rows = [(row["rank"], row["steps"]) for row in summary["step_time"]["ranks"]]
    print("around srun:", ended.returncode, summary["run"]["ended_by"], rows)
    assert ended.returncode == summary["run"]["exit_code"] == code
    assert rows == [(0, STEPS), (1, STEPS)], rows
    assert summary["diagnosis"]["scope"]["ranks"] == [1]


def check(folder: Path) -> None:
    commands = folder / "bin"
    commands.mkdir()
    (commands / "traceml").write_text(f'#!/bin/sh\nexec {sys.executable} -m traceml_ai "$@"\n')
    (commands / "traceml").chmod(0o755)
    (folder / "train.py").write_text(TRAINING)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEML_", "SLURM_"))}
    environ |= {"PATH": f"{commands}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        cluster = Cluster(folder, environ)
        stack.callback(cluster.stop)
        cluster.start()
        print(cluster.run("sinfo", "--version").strip(), "on", socket.gethostname())
        for waits, code in ((False, 0), (True, 0), (False, 3)):
            ended, summary = job(cluster, waits=waits, code=code)
            rows = [(row["rank"], row["node"], row["steps"]) for row in summary["step_time"]["ranks"]]
            print(ended, summary["run"]["status"], rows, summary["warnings"])
            assert rows == [(0, "node0", STEPS), (1, "node1", STEPS)], rows
            # torchrun that a signal ended has an exit code above 0, whatever its ranks have.
            assert (ended == "ExitCode=0:0") == (not waits and code == 0), ended
            assert summary["diagnosis"]["scope"]["ranks"] == [1]
            caught = [(folder / f"caught-{rank}").read_text() for rank in range(2)]
            assert caught == [str(int(waits))] * 2, caught
        around_srun(cluster, 3)
    print("one summary of both nodes; exit code and signal as without TraceML")


def main() -> int:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not found (Debian: slurmctld slurmd slurm-client munge)")
        return SKIPPED
    try:
        with two_hosts(), tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
    except NotAllowedError as error:
        print(f"skipped: {error}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
