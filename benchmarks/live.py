"""What the live view costs: processor time beside the training, the training itself, and opening it.

    python benchmarks/live.py [--seconds S] [--json]

1. Eight ranks of 100 steps a second each are written by the probe's own writer; a launcher's rounds follow
   them and make snapshots, and a view on a pseudo-terminal of 120 x 40 draws them. Target: 5 % of a core
   more than without anybody looking.
2. A view is attached to a run of a million steps. Target: drawn within a second.
3. A CPU training loop runs behind the view and without, by turns. Target: the same step time.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RANKS, RATE, WARM_S = 8, 100, 5.0
MOST_PCT, MOST_OPEN_S, MOST_RATIO = 5.0, 1.0, 1.05
TRACEML = [sys.executable, "-m", "traceml_ai"]
LOOP = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for i in range(6000):
    x = torch.randn(64, 64)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if i % 200 == 0: print("step", i, flush=True)
"""


TABLE = """8 ranks, 100 steps a second each, two refreshes a second
  collecting, nobody looks        {launcher_pct:6.2f} % of a core
  more of that while one looks    {snapshots_pct:6.2f} % of a core
  the view                        {view_pct:6.2f} % of a core
  looking                         {together:6.2f} %   target 5 %
opening it on a million steps     {open_s:6.2f} s   target 1 s
step time behind it / without     {step_ratio:6.3f}     target 1.05"""


class Terminal:
    """A process on a pseudo-terminal whose output is taken and looked through."""

    def __init__(self, command: list[str], folder: str) -> None:
        master, slave = pty.openpty()
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40",
                 "OMP_NUM_THREADS": "1", "CI": ""},
        )  # fmt: skip
        os.close(slave)
        self._master = master

    def until(self, what: bytes, patience_s: float = 60.0) -> float:
        """Take output until some bytes came; returns the seconds since the start."""
        seen = b""
        while what not in seen and time.monotonic() - self.begin < patience_s:
            seen = (seen + self.take(0.05))[-100_000:]
        return time.monotonic() - self.begin

    def take(self, seconds: float) -> bytes:
        """Take what comes within so long."""
        if not select.select([self._master], [], [], seconds)[0]:
            return b""
        try:
            return os.read(self._master, 65536)
        except OSError:
            return b""

    def cpu_s(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it."""
        self.process.terminate()
        while self.process.poll() is None:
            self.take(0.05)
        os.close(self._master)


def make_run(folder: Path) -> Path:
    """Make the folder and the spool of a run; returns the spool."""
    from traceml_ai.spool.runfolder import Manifest, birth_of

    spool = folder / "spool"
    spool.mkdir(parents=True)
    birth = birth_of(os.getpid())
    me, now = os.getpid(), time.perf_counter_ns()
    started = "2030-01-01T00:00:00+00:00"
    manifest = Manifest(
        "bench",
        "benchmark",
        ["train.py"],
        "/",
        str(spool),
        started,
        now,
        1.0,
        "box",
        None,
        me,
        birth,
        me,
        birth,
    )
    manifest.write(folder)
    return spool


class Launcher(threading.Thread):
    """A launcher's rounds over a run folder, in a thread whose processor time is known."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self.going = True
        self.cpu_s = 0.0

    def run(self) -> None:
        """Do what `traceml run` does beside the training."""
        from traceml_ai.collect.collector import Collector
        from traceml_ai.collect.notes import Notes
        from traceml_ai.collect.publish import Publisher
        from traceml_ai.live.rounds import Rounds
        from traceml_ai.spool.runfolder import read_manifest

        notes = Notes()
        manifest = read_manifest(self._folder)
        collector = Collector(manifest, Publisher(self._folder, lambda: None, notes), notes)
        rounds = Rounds(collector, manifest, notes, saved_to=None)
        while self.going:
            time.sleep(rounds.pause_s())
            rounds.go()
            self.cpu_s = time.thread_time()
        assert notes.messages() == [], notes.messages()

    def end(self) -> None:
        """End it, and wait."""
        self.going = False
        self.join()


class Rank:
    """A training process as its step log shows it, one step of 10 ms after the other."""

    def __init__(self, spool: Path, rank: int, *, capacity: int = 4096) -> None:
        from traceml_ai.schema.step import INDEX, N_COLUMNS
        from traceml_ai.spool.writer import Identity, StepLogWriter

        who = Identity(10_000 + rank, rank, rank, RANKS, time.perf_counter_ns(), time.time_ns())
        self._writer = StepLogWriter(str(spool), who, capacity=capacity)
        self._row = [0] * N_COLUMNS
        self._close, self._open = INDEX["close_ns"], INDEX["open_ns"]
        filled = {"input_wait_ns": 3_000_000, "forward_ns": 3_000_000, "backward_ns": 4_000_000}
        counts = {"samples": 8, "updates": 1, "microbatches": 1, "observed": 95}
        for name, value in {**filled, **counts}.items():
            self._row[INDEX[name]] = value

    def step(self, close_ns: int) -> None:
        """Write one step."""
        row = list(self._row)
        row[self._close], row[self._open] = close_ns, close_ns - 7_000_000
        self._writer.append(row)


def memory() -> str | None:
    """Return a folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def cost(seconds: float, *, watched: bool) -> tuple[float, float]:
    """Return the processor time of launcher and view in percent of a core."""
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        folder = Path(name) / "bench"
        spool = make_run(folder)
        ranks = [Rank(spool, rank) for rank in range(RANKS)]
        launcher = Launcher(folder)
        launcher.start()
        command = [*TRACEML, "attach", str(folder)] if watched else ["sleep", str(seconds + WARM_S + 5)]
        view = Terminal(command, name)
        begin, warm, steps = time.monotonic(), None, 0
        while (elapsed := time.monotonic() - begin) < seconds + WARM_S:
            while steps < elapsed * RATE:
                steps += 1
                for rank in ranks:
                    rank.step(time.perf_counter_ns())
            view.take(0.01)
            if warm is None and elapsed > WARM_S:
                warm = time.monotonic(), launcher.cpu_s, view.cpu_s()
        assert warm is not None
        wall = time.monotonic() - warm[0]
        found = (
            100 * (launcher.cpu_s - warm[1]) / wall,
            100 * (view.cpu_s() - warm[2]) / wall,
        )
        view.end()
        launcher.end()
    return found


def opening() -> float:
    """Return the seconds from starting a view on a run of a million steps to its first figures."""
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        folder = Path(name) / "bench"
        # In larger segments than usual: nobody reads meanwhile, and the log is bounded by their number.
        rank = Rank(make_run(folder), 0, capacity=16_384)
        now = time.perf_counter_ns()
        for _ in range(1_000_000):
            now += 10_000_000
            rank.step(now)
        launcher = Launcher(folder)
        launcher.start()
        while not (folder / "final_summary.json").exists():
            time.sleep(0.1)
        time.sleep(1.0)
        view = Terminal([*TRACEML, "attach", str(folder)], name)
        took = view.until(b"999,999 steps")  # the newest one may still be amended
        view.end()
        launcher.end()
    return took


def step_ms(mode: str, folder: str) -> float:
    """Return the median step time of the loop in one mode."""
    name = f"{mode}-{time.monotonic_ns()}"
    script = Path(folder) / "loop.py"
    script.write_text(LOOP)
    run = Terminal([*TRACEML, "run", "--mode", mode, "--run-name", name, "loop.py"], folder)
    while run.process.poll() is None:
        run.take(0.05)
    run.end()
    summary = json.loads((Path(folder) / "logs" / name / "final_summary.json").read_bytes())
    return float(summary["step_time"]["median_step_ms"])


def main() -> int:
    """Print a table, or JSON; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone_pct, _ = cost(options.seconds, watched=False)
    watched_pct, view_pct = cost(options.seconds, watched=True)
    found = {"launcher_pct": alone_pct, "snapshots_pct": watched_pct - alone_pct, "view_pct": view_pct}
    found["open_s"] = opening()
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(step_ms("cli", folder), step_ms("summary", folder)) for _ in range(options.pairs)]
    found["step_ratio"] = statistics.median(behind / without for behind, without in pairs)
    together = found["snapshots_pct"] + found["view_pct"]
    if options.json:
        print(json.dumps(found))
    else:
        print(TABLE.format(**found, together=together))
    return int(together > MOST_PCT or found["open_s"] > MOST_OPEN_S or found["step_ratio"] > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
