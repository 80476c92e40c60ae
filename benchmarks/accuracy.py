"""How truly a step is measured: the same loop timed by hand and by TraceML, in the same run.

    python benchmarks/accuracy.py [--short] [--repeat N] [--only NAME ...] [--json]

Each loop runs under ``traceml run`` as a script of its own that also takes time stamps around ``next``,
the model's call, ``backward``, ``step`` and the whole body. A phase is right when it is within 2
percentage points of step time or 15 µs of what the stamps say; of the repeats the median difference counts
(a program that was scheduled between a stamp of ours and one by hand is no error of either). Start-up,
steps, time between steps and shut-down together must be within 1 % of the training process's life as seen
from outside (from the kernel's record of its start to the moment its end could be waited for).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any, NamedTuple

PHASES = ("input_wait", "forward", "backward", "optimizer", "residual", "between_steps")
MOST_POINTS, MOST_US, MOST_WALL_PCT = 2.0, 15.0, 1.0


class Loop(NamedTuple):
    """What a loop does: its model's size and number of steps give its length."""

    width: int
    steps: int
    marked: bool = False
    kind: str = "plain"


LOOPS = {
    "0.5 ms": Loop(32, 2500),
    "0.5 ms marked": Loop(32, 2500, marked=True),
    "2 ms": Loop(256, 900),
    "2 ms marked": Loop(256, 900, marked=True),
    "10 ms": Loop(768, 200),
    "10 ms marked": Loop(768, 200, marked=True),
    "100 ms": Loop(2560, 40),
    "100 ms marked": Loop(2560, 40, marked=True),
    "accumulation": Loop(192, 300, kind="accumulation"),
    "validation": Loop(256, 500, kind="validation"),
    "LBFGS": Loop(192, 150, kind="lbfgs"),
    "checkpointing": Loop(192, 400, kind="checkpointing"),
}


# --- the loops, run by themselves as a script ---------------------------------------------------


class Hand:
    """Time stamps taken by hand: per step the sum of each phase, and where steps begin and end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.row: dict[str, int] = {}
        self.last_end = 0
        self.opened = 0

    def add(self, phase: str, begin: int, end: int) -> None:
        self.row[phase] = self.row.get(phase, 0) + end - begin

    def open(self, at: int) -> None:
        self.opened = at

    def close(self, at: int) -> None:
        inside = sum(self.row.get(phase, 0) for phase in ("forward", "backward", "optimizer"))
        inside += self.row.get("later_wait", 0)
        self.row["residual"] = at - self.opened - inside
        wait = self.row.get("input_wait", 0)
        if self.last_end:
            self.row["between_steps"] = self.opened - self.last_end - wait
        self.row["input_wait"] = wait + self.row.pop("later_wait", 0)
        self.rows.append(self.row)
        self.row = {}
        self.last_end = at


def run_loop(loop: Loop, out: str) -> None:
    """Train, stamp, and write the stamps' sums as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hand = Hand()
    {"plain": plain, "validation": plain, "checkpointing": plain}.get(
        loop.kind, accumulating if loop.kind == "accumulation" else lbfgs
    )(loop, hand, torch)
    Path(out).write_text(json.dumps(hand.rows))


def make_model(loop: Loop, torch: Any) -> Any:
    nn = torch.nn

    def block(features: int) -> Any:
        return nn.Sequential(
            nn.Linear(features, loop.width), nn.ReLU(), nn.Linear(loop.width, loop.width), nn.ReLU()
        )

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([block(32), block(loop.width)])
            self.head = nn.Linear(loop.width, 10)

        def forward(self, x: Any) -> Any:
            for each in self.blocks:
                if loop.kind == "checkpointing":
                    x = torch.utils.checkpoint.checkpoint(each, x, use_reentrant=False)
                else:
                    x = each(x)
            return self.head(x)

    if loop.kind == "checkpointing":
        import torch.utils.checkpoint
    return Net()


def make_loader(batches: int, torch: Any) -> Any:
    data = torch.utils.data.TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))

    class Repeated(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return batches * 16

        def __getitem__(self, index: int) -> Any:
            return data[index % 512]

    return torch.utils.data.DataLoader(Repeated(), batch_size=16)


def fetched(loader: Any, hand: Hand) -> Iterator[Any]:
    """Yield batches and stamp their ``next``."""
    batches = iter(loader)
    while True:
        begin = now()
        batch = next(batches, None)
        end = now()
        if batch is None:
            return
        hand.add("input_wait", begin, end)
        yield end, batch


def plain(loop: Loop, hand: Hand, torch: Any) -> None:
    model, lossf = make_model(loop, torch), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    held_out = make_loader(5, torch)
    window: Callable[[], Any] = nullcontext
    if loop.marked:
        import traceml

        traceml.init(mode="auto")

        def window() -> Any:
            return traceml.trace_step(model)

    for i, (fetch_end, (x, y)) in enumerate(fetched(make_loader(loop.steps, torch), hand)):
        with window():
            hand.open(now() if loop.marked else fetch_end)
            warm_up(i)
            optimizer.zero_grad()
            a = now()
            logits = model(x)
            b = now()
            loss = lossf(logits, y)
            c = now()
            loss.backward()
            d = now()
            optimizer.step()
            e = now()
            hand.add("forward", a, b)
            hand.add("backward", c, d)
            hand.add("optimizer", d, e)
            # A mark ends the step where the block does, inference where the update does.
            end = now() if loop.marked else e
        hand.close(end)
        if loop.kind == "validation" and i % 10 == 9:
            validate(model, held_out, torch)


def warm_up(step: int) -> None:
    """Make the first step so long that both sides leave it out: TraceML looks for the model in it."""
    if step == 0:
        time.sleep(0.4)


def validate(model: Any, loader: Any, torch: Any) -> None:
    model.eval()
    with torch.no_grad():
        for x, _ in loader:
            model(x)
    model.train()


def accumulating(loop: Loop, hand: Hand, torch: Any) -> None:
    model, lossf = make_model(loop, torch), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = iter(make_loader(4 * loop.steps, torch))
    for i in range(loop.steps):
        for micro in range(4):
            a = now()
            x, y = next(batches)
            b = now()
            if micro == 0:
                hand.open(b)
                warm_up(i)
            hand.add("later_wait" if micro else "input_wait", a, b)
            c = now()
            logits = model(x)
            d = now()
            loss = lossf(logits, y) / 4
            e = now()
            loss.backward()
            f = now()
            hand.add("forward", c, d)
            hand.add("backward", e, f)
        g = now()
        optimizer.step()
        h = now()
        hand.add("optimizer", g, h)
        hand.close(h)
        optimizer.zero_grad()


def lbfgs(loop: Loop, hand: Hand, torch: Any) -> None:
    model, lossf = make_model(loop, torch), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3, history_size=3)
    # One batch all along: on others a direction may lead upwards, and LBFGS then leaves all as it is.
    x, y = next(iter(make_loader(1, torch)))
    for i, (fetch_end, _) in enumerate(fetched(make_loader(loop.steps, torch), hand)):
        hand.open(fetch_end)
        warm_up(i)

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            a = now()
            logits = model(x)
            b = now()
            loss = lossf(logits, y)
            c = now()
            loss.backward()
            d = now()
            hand.add("forward", a, b)
            hand.add("backward", c, d)
            return loss

        e = now()
        optimizer.step(closure)
        f = now()
        # Its own time: without the closure's forward and backward.
        hand.add("optimizer", e + hand.row["forward"] + hand.row["backward"], f)
        hand.close(f)


# --- running and comparing ----------------------------------------------------------------------


class Row(NamedTuple):
    """One phase of one loop."""

    loop: str
    phase: str
    hand_us: float
    reported_us: float
    points: float  # difference in percentage points of step time

    @property
    def off_us(self) -> float:
        return self.reported_us - self.hand_us

    @property
    def right(self) -> bool:
        return abs(self.points) <= MOST_POINTS or abs(self.off_us) <= MOST_US


class Wall(NamedTuple):
    """The whole process."""

    loop: str
    outside_s: float
    reported_s: float
    own_us: float

    @property
    def off_pct(self) -> float:
        return 100 * (self.reported_s / self.outside_s - 1)

    @property
    def right(self) -> bool:
        return abs(self.off_pct) <= MOST_WALL_PCT


def life_s(manifest: Path, launcher: subprocess.Popen[bytes]) -> float:
    """Wait for the training process's end and return how long it lived."""
    pid = None
    while pid is None and launcher.poll() is None:
        time.sleep(0.002)
        if manifest.exists():
            pid = json.loads(manifest.read_bytes()).get("child_pid")
    assert pid is not None, "the training process was never named in run.json"
    handle = os.pidfd_open(pid)
    # Field 22 of the line, counted after the name in brackets: its start in clock ticks since boot.
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    select.select([handle], [], [])
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.close(handle)
    return ended - ticks / os.sysconf("SC_CLK_TCK")


def measure(
    name: str, loop: Loop, *, script: str = __file__, closes_in: str | None = None
) -> tuple[list[Row], Wall]:
    """Run a loop once; see `compare` for ``closes_in``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "hand.json")
        words = ["run", "--mode", "summary", "--logs-dir", folder, "--run-name", "it"]
        child = [script, "--loop", json.dumps(loop), "--out", str(out)]
        launcher = subprocess.Popen(
            [sys.executable, "-m", "traceml_ai", *words, *child],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lived = life_s(Path(folder, "it", "run.json"), launcher)
        assert launcher.wait() == 0
        summary = json.loads(Path(folder, "it", "final_summary.json").read_bytes())
        rows = json.loads(out.read_bytes())
    return compare(name, summary, rows, closes_in=closes_in), Wall(
        name,
        lived,
        sum(summary["time"][part] for part in ("startup_s", "steps_s", "between_steps_s", "shutdown_s")),
        summary["overhead"]["us_per_step"],
    )


def compare(
    name: str, summary: dict[str, Any], rows: list[dict[str, int]], *, closes_in: str | None = None
) -> list[Row]:
    """Lay the figures beside each other; ``closes_in`` names the phase by hand in which a step is closed."""
    section = summary["step_time"]
    assert section["steps"] + section["warmup_steps"] == len(rows), "a step was missed"
    # The same steps on both sides, the first of them on neither.
    assert section["warmup_steps"] > 0
    steady = rows[section["warmup_steps"] :]
    hand = {phase: sum(row.get(phase, 0) for row in steady) / len(steady) / 1e3 for phase in PHASES}
    step_us = sum(hand.values()) - hand["between_steps"]
    # TraceML reports its own work apart. It runs where a step is closed, and the stamps can't tell it from
    # what they enclose there: the update, or what follows a marked step.
    if closes_in is None:
        closes_in = "between_steps" if summary["run"]["mode"] == "marked" else "optimizer"
    found = []
    for phase in PHASES:
        figures = section["phases"][phase]
        reported = 1e3 * figures["mean_ms"] * figures["coverage"]
        if phase == closes_in:
            reported += summary["overhead"]["us_per_step"]
        found.append(Row(name, phase, hand[phase], reported, 100 * (reported - hand[phase]) / step_us))
    return found


def measure_often(name: str, loop: Loop, repeat: int) -> tuple[list[Row], Wall]:
    """Measure several times; of each phase the run with the median difference."""
    runs = [measure(name, loop) for _ in range(repeat)]
    phases = [
        sorted((rows[i] for rows, _ in runs), key=lambda row: row.points)[repeat // 2]
        for i in range(len(PHASES))
    ]
    return phases, sorted((wall for _, wall in runs), key=lambda wall: wall.off_pct)[repeat // 2]


def main() -> int:
    """Print a table, or JSON; exits with 1 when a figure is off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a tenth of the steps")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=LOOPS, default=list(LOOPS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        run_loop(Loop(*json.loads(options.loop)), options.out)
        return 0
    rows: list[Row] = []
    walls: list[Wall] = []
    for name in options.only:
        loop = LOOPS[name]
        if options.short:
            loop = loop._replace(steps=max(30, loop.steps // 10))
        found, wall = measure_often(name, loop, options.repeat)
        rows += found
        walls.append(wall)
        if not options.json:
            show(found, wall)
    if options.json:
        print(
            json.dumps(
                {
                    "phases": [row._asdict() | {"off_us": row.off_us} for row in rows],
                    "wall": [wall._asdict() for wall in walls],
                }
            )
        )
    wrong = [row for row in rows if not row.right] + [wall for wall in walls if not wall.right]
    if not options.json:
        print(f"{len(rows) + len(walls) - len(wrong)} of {len(rows) + len(walls)} figures within the target")
    return 1 if wrong else 0


def show(rows: list[Row], wall: Wall) -> None:
    step = sum(row.hand_us for row in rows if row.phase != "between_steps")
    print(f"{wall.loop}: step {step / 1e3:.3f} ms by hand, own cost {wall.own_us:.1f} us a step")
    print(f"  {'phase':<14} {'hand us':>10} {'reported':>10} {'us':>8} {'points':>7}")
    for row in rows:
        mark = "" if row.right else "  OFF"
        print(
            f"  {row.phase:<14} {row.hand_us:10.1f} {row.reported_us:10.1f} {row.off_us:+8.1f} "
            f"{row.points:+7.2f}{mark}"
        )
    mark = "" if wall.right else "  OFF"
    print(
        f"  {'wall':<14} {wall.outside_s:9.3f}s {wall.reported_s:9.3f}s {wall.off_pct:+7.2f}%{mark}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
