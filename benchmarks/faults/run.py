"""One run of a loop with its strikes, traced or not, and everything that can be seen of it afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from plan import PAUSE_S, STEPS, Case, Hit, untraced_target
from proxy import Proxy
from record import Process, read
from strike import strike

HERE = Path(__file__).resolve().parent
PATIENCE_S = 90.0
LEFT_AFTER_S = 5.0
_LOOK_S = 0.004
_LOOPS = {
    "plain": ["plain.py"],
    "lightning": ["lightning_fit.py"],
    "monai": ["monai_run.py"],
    "ddp": ["plain.py"],
    "nodes": ["plain.py"],
}


class Setting(NamedTuple):
    """What this machine allows."""

    work: Path
    namespaces: list[str] | None  # the words that give a run its own mounts; None: not allowed here
    clock: Path | None
    oom: bool


class Run:
    """A run.

    Args:
        case: What is run, and what strikes it.
        setting: What the machine allows.
        traced: Under ``traceml run``.
        again: Numbers repetitions.
    """

    def __init__(self, case: Case, setting: Setting, *, traced: bool, again: int = 0) -> None:
        self.case, self.setting, self.traced = case, setting, traced
        name = f"{case.number}-{'traced' if traced else 'plain'}-{again}"
        self.mark = f"{os.getpid()}-{name}"
        self.folder = setting.work / name
        self.logs, self.tmp = self.folder / "logs", self.folder / "tmp"
        self.groups: list[Path] = []
        self.proxy: Proxy | None = None
        self.resumed_ns = 0
        self.struck_ns: list[int] = []
        self._known: dict[str, tuple[int, Process]] = {}
        for folder in (self.logs, self.tmp):
            folder.mkdir(parents=True)
        (self.folder / "clock").write_bytes(bytes(8))

    def go(self) -> None:
        """Start it, strike, and wait until everything has ended."""
        self._start()
        self._began = time.monotonic()
        hitters = [threading.Thread(target=self._hit, args=(hit,)) for hit in self.case.hits]
        for hitter in hitters:
            hitter.start()
        self.trainers_ended_ns = self._wait()
        for hitter in hitters:
            hitter.join(PATIENCE_S)
        if self.proxy is not None:
            self.proxy.close()

    # -- where things are ---------------------------------------------------------------------

    def inside(self, path: Path) -> Path:
        """Return a path of the run's mount namespace as it is seen from outside."""
        if self.setting.namespaces is None:
            return path
        return Path(f"/proc/{self._room.pid}/root{path}")

    def run_folders(self) -> list[Path]:
        logs = self.inside(self.logs)
        return [entry for entry in logs.iterdir() if entry.is_dir()] if logs.is_dir() else []

    def processes(self) -> dict[str, Process]:
        return {path.name[4:]: read(path) for path in sorted(self.folder.glob("rec-*"))}

    def process(self, name: str) -> Process | None:
        """Return one of them, read anew only when there is more of it: this is looked at all the time."""
        path = self.folder / f"rec-{name}"
        try:
            size = path.stat().st_size
        except OSError:
            return None
        known = self._known.get(name)
        if known is None or known[0] != size:
            known = self._known[name] = (size, read(path))
        return known[1]

    def pid_of(self, target: str) -> int:
        """Return the process that is meant, waiting for it to be there.

        Raises:
            ProcessLookupError: It has not come, or is gone.
        """
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            pid = self._find(target)
            if pid is not None:
                return pid
            if (self.folder / "ended").exists():
                break
            time.sleep(_LOOK_S)
        raise ProcessLookupError(target)

    def _find(self, target: str) -> int | None:
        started = _json(self.folder / "started")
        if started is None:
            return None
        by_itself = target == "agent" or (target == "trainer" and self.case.hits[0].when == "start")
        if target in {"launcher", "node1"} or (by_itself and not self.traced):
            return int(started[target == "node1"])
        if by_itself:
            return _program_of(int(started[0]))
        name = {"trainer": "0", "worker": "0", "rank1": "1"}.get(target, target.rpartition(" ")[2])
        process = self.process(name)
        if target == "worker":
            return process.workers[0] if process and process.workers else None
        return process.pid if process else None

    # -- the course of it ---------------------------------------------------------------------

    def _start(self) -> None:
        mounts = {"/dev/shm": self.case.shm}
        if self.case.kinds & {"disk", "disk+tmp", "logs"}:
            mounts[str(self.logs)] = "1m"
        if "disk+tmp" in self.case.kinds:
            mounts[str(self.tmp)] = "160m"  # room for the step log, were /dev/shm not there
        spec = {
            "folder": str(self.folder),
            "mounts": mounts if self.setting.namespaces is not None else {},
            "environ": self._environ(),
            "commands": self._commands(),
        }
        (self.folder / "spec").write_text(json.dumps(spec))
        self._room = subprocess.Popen(
            [
                *(self.setting.namespaces or []),
                sys.executable,
                str(HERE / "room.py"),
                str(self.folder / "spec"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    def _environ(self) -> dict[str, str]:
        environ = {
            "FAULTS_OUT": str(self.folder),
            "FAULTS_RUN": self.mark,
            "FAULTS_STEPS": str(STEPS * (5 if self.case.loop == "nodes" else 1)),
            "FAULTS_PAUSE_S": str(PAUSE_S),
            "FAULTS_WORKERS": str(self.case.workers),
            "TMPDIR": str(self.tmp),
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if "clock" in self.case.kinds and self.setting.clock is not None:
            environ |= {"LD_PRELOAD": str(self.setting.clock), "FAULTS_CLOCK": str(self.folder / "clock")}
        return environ

    def _commands(self) -> list[tuple[list[str], dict[str, str]]]:
        loop = self.case.loop
        if loop == "nodes":
            return self._nodes()
        script = ["forked.py", ",".join(self.case.children)] if loop == "forked" else _LOOPS[loop]
        words = [str(HERE / "loops" / script[0]), *script[1:]]
        torchrun = ["--nproc-per-node=2", f"--master-port={free_port()}"] if loop == "ddp" else []
        if self.traced:
            ours = [*self._ours(), *torchrun, words[0]]
            return [([*ours, "--args", *words[1:]] if words[1:] else ours, {})]
        plain = [sys.executable, *(["-m", "torch.distributed.run", *torchrun] if torchrun else [])]
        return [([*plain, *words], {})]

    def _ours(self) -> list[str]:
        run = ["-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", str(self.logs)]
        return [sys.executable, *run, "--run-name", "one"]

    def _nodes(self) -> list[tuple[list[str], dict[str, str]]]:
        script = str(HERE / "loops" / "plain.py")
        port = free_port()
        self.proxy = Proxy(port) if "cut" in self.case.kinds else None
        ports = [port, self.proxy.port if self.proxy else port]
        secret, commands = os.urandom(32).hex(), []
        for node in (0, 1):
            more = {"SLURM_NNODES": "2", "SLURM_NODEID": str(node), "RANK": str(node)}
            more["TRACEML_LINK_SECRET"] = secret
            ours = [*self._ours(), f"--link={ports[node]}", "--", sys.executable, script]
            commands.append((ours if self.traced else [sys.executable, script], more))
        return commands

    def _hit(self, hit: Hit) -> None:
        target = hit.target if self.traced else untraced_target(self.case, hit) or ""
        if not target:
            return
        if not self._await(hit, target):
            return
        time.sleep(hit.delay_s)
        self.struck_ns.append(time.monotonic_ns())
        strike(self, hit, target)

    def _await(self, hit: Hit, target: str) -> bool:
        """Wait for the moment; False: the run ended before."""
        until = time.monotonic() + PATIENCE_S
        name = target.rpartition(" ")[2] if target.startswith("child") else "1" if target == "rank1" else "0"
        while time.monotonic() < until:
            process = self.process(name)
            if hit.when == "start":
                ready = (self.folder / "started").exists()
            elif hit.when == "end":
                ready = process is not None and process.done
            else:
                ready = process is not None and len(process.steps) >= hit.step
            if ready:
                return True
            if (self.folder / "ended").exists():
                return False
            time.sleep(_LOOK_S)
        return False

    def _wait(self) -> int:
        """Wait for the launcher and for trainings that outlive it; return when the last training ended."""
        until = time.monotonic() + PATIENCE_S
        last_ns = 0
        while time.monotonic() < until:
            names = [path.name[4:] for path in self.folder.glob("rec-*")]
            if any(_runs(process.pid) for name in names if (process := self.process(name))):
                last_ns = time.monotonic_ns()
            elif (self.folder / "ended").exists() and not self._trains_on():
                break
            time.sleep(0.02)
        return last_ns

    def _trains_on(self) -> bool:
        """Whether a training outlives its launcher, and did not get as far as to say so."""
        return any(str(HERE / "loops") in word for word in self._marked())

    # -- afterwards ---------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """Let ``traceml view`` make the summary of each run folder, as a user would."""
        begin = time.monotonic()
        found: dict[str, Any] = {"summaries": {}, "said": ""}
        for folder in self.run_folders():
            command = [sys.executable, "-m", "traceml_ai", "view", str(self.logs / folder.name), "--json"]
            ended = subprocess.run(
                [*self._enter(), *command], env={**os.environ, **self._environ(), "FAULTS_CLOCK": ""},
                capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            found["summaries"][folder.name] = ended.stdout
            found["said"] += ended.stderr
        found["took_s"] = (time.monotonic() - begin) / max(1, len(found["summaries"]))
        return found

    def _enter(self) -> list[str]:
        if self.setting.namespaces is None:
            return []
        user = ["--user", "--preserve-credentials"] if "--map-root-user" in self.setting.namespaces else []
        return ["nsenter", "--target", str(self._room.pid), "--mount", *user]

    def summaries(self) -> dict[str, str]:
        """Return the text of every final_summary.json, wherever the run put it, by its folder's name."""
        found = {}
        for place in (self.logs, self.tmp, Path("/dev/shm")):
            for path in sorted(self.inside(place).rglob("final_summary.json")):
                found[path.parent.name] = path.read_text()
        return found

    def left(self) -> dict[str, list[str]]:
        """Return what is there of the run that should not be: processes, memory, temporary files."""
        processes = [words[-80:] for words in self._marked()]
        memory = [] if self.setting.namespaces is None else _names(self.inside(Path("/dev/shm")))
        parts = [n for folder in self.run_folders() for n in _names(folder) if n.endswith(".tmp")]
        return {
            "processes": processes,
            "memory": memory,
            "tmp": _names(self.inside(self.tmp)),
            "parts": parts,
        }

    def _marked(self) -> list[str]:
        """Return the command line of every process of this run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != self._room.pid and process.environ().get("FAULTS_RUN") == self.mark:
                    found.append(" ".join(process.cmdline()))
        return found

    def close(self) -> None:
        """Let the room go, and whatever is left in it."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != self._room.pid and process.environ().get("FAULTS_RUN") == self.mark:
                    process.kill()
        assert self._room.stdin is not None
        self._room.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._room.wait(5)
        for group in self.groups:
            with contextlib.suppress(OSError):
                group.rmdir()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def codes(self) -> list[int] | None:
        """The exit codes of what was started, and when the last of it ended before."""
        ended = _json(self.folder / "ended")
        return None if ended is None else ended[1]

    @property
    def ended_ns(self) -> int:
        ended = _json(self.folder / "ended")
        return 0 if ended is None else int(ended[0])


def _program_of(launcher: int) -> int | None:
    """Return what the launcher started: of its children the one that is not a copy of itself."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(launcher).children():
            if "traceml_ai" not in child.cmdline() and child.cmdline():
                return int(child.pid)
    return None


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.name != "filler")
    except OSError:
        return []


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
