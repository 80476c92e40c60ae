"""Which strikes there are, and which of them a seed draws: what, at whom, in which loop, when."""

from __future__ import annotations

import random
from typing import NamedTuple

SIGNALS = ("KILL", "TERM", "INT", "HUP", "SEGV")
FRAMEWORKS = ("plain", "lightning", "monai")
LETHAL = (*SIGNALS, "memory")
CHILDREN = ("plain",) * 6 + ("lightning",) * 3 + ("monai",) * 3
STEPS = 60
PAUSE_S = 0.01


class Hit(NamedTuple):
    """One strike.

    Attributes:
        kind: A signal's name; memory (its address space may not grow any more), oom (the kernel kills it in
            a control group that is out of memory), disk, disk+tmp, fsize, folder, logs, spool, shm, clock,
            stop, cut. See `strike.py`.
        target: trainer, launcher, agent (torchrun's), rank1, worker, node1, or "child K" of a forked job.
        when: start (so long after the launch), steps (so long after a step was closed), end (so long after
            the last statement of the training).
        step: That step.
        delay_s: And how long.
        long_s: How long it lasts: stop, cut.
    """

    kind: str
    target: str
    when: str
    step: int
    delay_s: float
    long_s: float = 0.0


class Case(NamedTuple):
    """One run and what strikes it.

    Attributes:
        number: Its place in the plan.
        loop: plain, lightning, monai, ddp, forked or nodes.
        workers: Loader workers.
        hits: The strikes; more than one only in a forked job, whose processes are struck one by one.
        shm: Size of its /dev/shm where that is a strike: from the start there is no room.
    """

    number: int
    loop: str
    workers: int
    hits: tuple[Hit, ...]
    shm: str = "2g"
    children: tuple[str, ...] = ()

    @property
    def kinds(self) -> set[str]:
        return {hit.kind for hit in self.hits}

    @property
    def title(self) -> str:
        first = self.hits[0]
        place = f"{first.when} {first.step}+{first.delay_s * 1000:.1f} ms"
        several = "" if len(self.hits) == 1 else f" and {len(self.hits) - 1} more"
        return f"#{self.number} {first.kind} at {first.target} of {self.loop}, {place}{several}"

    @property
    def reference(self) -> str:
        """The untraced run that this one is held against: cases with the same share one.

        What strikes only TraceML's own process must leave the training as if nothing had happened.
        """
        words = [f"{hit.kind} {mapped}" for hit in self.hits if (mapped := untraced_target(self, hit))]
        when = self.hits[0].when if words else ""
        shm = self.shm if self.workers else "no use of /dev/shm"
        return " / ".join([self.loop, *self.children, f"{self.workers} workers", shm, when, *words])


def untraced_target(case: Case, hit: Hit) -> str | None:
    """Whom the same strike meets where there is no launcher of ours; ``None``: nobody."""
    if hit.target == "launcher":
        passed_on = hit.kind in {"TERM", "INT", "HUP"}
        return ("agent" if case.loop == "ddp" else "trainer") if passed_on and hit.when != "end" else None
    return None if hit.target in {"node1", "everyone"} else hit.target


Cell = tuple[str, str, str, int]  # kind, target, loop, workers


def cells() -> list[Cell]:
    """Every kind of strike in every loop where it can strike."""
    found: list[Cell] = []
    for signal in SIGNALS:
        found += [(signal, target, loop, 0) for target in ("trainer", "launcher") for loop in FRAMEWORKS]
        found += [(signal, target, "ddp", 0) for target in ("agent", "launcher", "rank1")]
        found += [(signal, "worker", loop, 2) for loop in FRAMEWORKS]
    found += [("memory", "trainer", loop, 0) for loop in FRAMEWORKS] + [("memory", "rank1", "ddp", 0)]
    found += [("memory", "launcher", loop, 0) for loop in (*FRAMEWORKS, "ddp")] + [
        ("memory", "worker", "plain", 2)
    ]
    found += [("oom", "trainer", loop, 0) for loop in FRAMEWORKS] + [("oom", "rank1", "ddp", 0)]
    everyone = ("disk", "disk+tmp", "folder", "logs", "spool", "shm", "clock")
    found += [(kind, "everyone", loop, 0) for kind in everyone for loop in (*FRAMEWORKS, "ddp")]
    found += [("no shm", "everyone", "plain", 0), ("no shm", "everyone", "ddp", 0)]
    found += [(kind, "launcher", loop, 0) for kind in ("fsize", "stop") for loop in (*FRAMEWORKS, "ddp")]
    found += [("cut", "node1", "nodes", 0), ("KILL", "node1", "nodes", 0), ("stop", "launcher", "nodes", 0)]
    return found


def long_plan(seed: int, count: int) -> list[Case]:
    """Draw strikes: every cell once, in an order of the seed's, then forked jobs up to the count."""
    chance = random.Random(seed)
    drawn: list[Cell] = []
    while len(drawn) < count:
        drawn += chance.sample(cells(), k=len(cells()))
    jobs = (count - len(cells())) // len(CHILDREN)
    alone = max(0, count - jobs * len(CHILDREN))
    cases = [_case(number, cell, chance, stop_s=30.0) for number, cell in enumerate(drawn[:alone])]
    return cases + [_forked(alone + job, chance) for job in range(jobs)]


def _forked(number: int, chance: random.Random) -> Case:
    """A job of twelve processes, each of which is struck: the imports are paid for once."""
    kinds = (*LETHAL, *LETHAL)
    hits = tuple(_in_a_step(kind, f"child {k}", chance) for k, kind in enumerate(kinds))
    return Case(number, "forked", 0, hits, children=CHILDREN)


def short_plan(seed: int) -> list[Case]:
    """Thirty strikes that two processors do within a minute: several at one run wherever it survives them."""
    chance = random.Random(seed)
    every = [_in_a_step(kind, "everyone", chance) for kind in ("clock", "shm", "folder", "spool")]
    stop = _in_a_step("stop", "launcher", chance, long_s=2.0)
    launcher = {kind: _in_a_step(kind, "launcher", chance) for kind in (*SIGNALS, "memory", "fsize")}
    ending = launcher["SEGV"]._replace(when="end", delay_s=chance.uniform(0, 0.4))
    starting = launcher["INT"]._replace(when="start", delay_s=chance.uniform(0.02, 0.8))
    runs: list[tuple[str, int, list[Hit], str]] = [
        ("ddp", 0, [_in_a_step("KILL", "rank1", chance)], "2g"),
        ("plain", 2, [_in_a_step("KILL", "worker", chance)], "2g"),
        ("plain", 0, [*every, stop], "160m"),
        ("plain", 0, [_in_a_step(kind, "everyone", chance) for kind in ("disk", "disk+tmp", "logs")], "2g"),
        ("plain", 0, [launcher["KILL"]], "2g"),
        ("plain", 0, [launcher["HUP"], launcher["memory"]], "2g"),
        ("plain", 0, [launcher["fsize"]], "2g"),
        ("plain", 0, [_in_a_step("no shm", "everyone", chance), launcher["TERM"]], "1m"),
        ("plain", 0, [ending], "2g"),
        ("plain", 0, [starting], "2g"),
    ]
    cases = [Case(n, loop, workers, tuple(hits), shm) for n, (loop, workers, hits, shm) in enumerate(runs, 1)]
    return [_forked(0, chance), *cases]


def _in_a_step(kind: str, target: str, chance: random.Random, *, long_s: float = 0.0) -> Hit:
    return Hit(kind, target, "steps", chance.randrange(1, STEPS - 10), chance.uniform(0, PAUSE_S), long_s)


def _case(number: int, cell: Cell, chance: random.Random, *, stop_s: float) -> Case:
    kind, target, loop, workers = cell
    early, late = (0.12, 0.88) if target in {"trainer", "launcher", "everyone"} else (0.0, 1.0)
    if target == "trainer":
        late = 1.0  # after its end there is no trainer
    if kind in {"cut", "memory", "oom", "clock"} or loop == "nodes":
        early, late = 0.0, 1.0
    draw = chance.random()
    when = "start" if draw < early else "end" if draw >= late else "steps"
    delay_s = {
        "start": chance.uniform(0.02, 2.0),
        "steps": chance.uniform(0, PAUSE_S),
        "end": chance.uniform(0, 0.4),
    }
    hit = Hit(kind, target, when, chance.randrange(1, STEPS - 10), delay_s[when], _lasts(kind, stop_s))
    return Case(
        number, loop, workers, (hit,), shm="1m" if kind == "no shm" else "160m" if kind == "shm" else "2g"
    )


def _lasts(kind: str, stop_s: float) -> float:
    return {"stop": stop_s, "cut": 3.0}.get(kind, 0.0)
