"""How true the figures are: phases against hand timing, totals against other profilers, and the whole run.

    python benchmarks/truth.py [--repeat N] [--only NAME ...] [--missing] [--stop-after SECONDS] [--write]

Results are kept, so that the loops can be measured in pieces before they are written into the page:
``--missing`` measures only those that have none.

Plain loops are those of `accuracy.py`, in which the method is described; here they are joined by loops of
Lightning and MONAI, a threaded loader, compiled models and both kinds of activation checkpointing. In the
same manner totals are laid beside those of `torch.profiler` and of Lightning's simple profiler, which
watched the same run. Targets: each phase within 2 percentage points of step time or 15 µs, and start-up,
steps, time between and shut-down together within 1 % of the process's life.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any

import _evidence
import accuracy
from accuracy import Hand, Loop, Row, Wall

# Beside this file lie benchmarks that are called like the packages they are about.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

PLAIN = ("0.5 ms", "2 ms", "2 ms marked", "10 ms", "100 ms", "accumulation", "validation", "LBFGS")
OWN = {
    "activation checkpointing": Loop(192, 300, kind="checkpointing"),
    "activation checkpointing, reentrant": Loop(192, 300, kind="reentrant"),
    "compiled, aot_eager": Loop(256, 400, kind="compiled"),
    "compiled by inductor": Loop(256, 400, kind="inductor"),
    "Lightning": Loop(512, 300, kind="lightning"),
    "Lightning, accumulation": Loop(512, 100, kind="lightning_accumulation"),
    "MONAI": Loop(8, 150, kind="monai"),
    "MONAI, ThreadDataLoader": Loop(8, 150, kind="monai_thread"),
    "ThreadDataLoader in a plain loop": Loop(512, 200, kind="thread"),
    "torch.profiler": Loop(512, 200, kind="torch_profiler"),
    "Lightning's simple profiler": Loop(512, 200, kind="lightning_profiler"),
}
LOOPS = {name: accuracy.LOOPS[name] for name in PLAIN} | OWN
# Where the step is closed, as hand timing sees it, when it is not where `accuracy.compare` expects it.
CLOSES_IN = {"lightning": "between_steps", "monai": "between_steps"}
# The profilers name no more than these.
COMPARED = {
    "torch_profiler": ("input_wait", "forward", "backward", "optimizer"),
    "lightning_profiler": ("input_wait", "backward"),
}


# --- plain loops --------------------------------------------------------------------------------


def checkpointed(loop: Loop, hand: Hand, torch: Any) -> None:
    """The plain loop, with the reentrant kind of activation checkpointing."""
    from torch.utils import checkpoint as module

    real = module.checkpoint

    def reentrant(body: Any, x: Any, **_: Any) -> Any:
        # This kind computes again only for inputs that need gradients.
        return real(body, x if x.requires_grad else x.detach().requires_grad_(), use_reentrant=True)

    module.checkpoint = reentrant
    accuracy.plain(loop._replace(kind="checkpointing"), hand, torch)


def compiled(backend: str) -> Callable[[Loop, Hand, Any], None]:
    """Return the plain loop over a compiled model."""

    def run(loop: Loop, hand: Hand, torch: Any) -> None:
        real = accuracy.make_model
        accuracy.make_model = lambda *args: torch.compile(real(*args), backend=backend)
        accuracy.plain(loop, hand, torch)

    return run


def threaded(loop: Loop, hand: Hand, torch: Any) -> None:
    """A loop of one's own over MONAI's threaded loader, whose iterator is wrapped."""
    from monai.data import ThreadDataLoader

    import traceml

    data = accuracy.make_loader(loop.steps, torch).dataset
    batches = traceml.wrap_dataloader_fetch(iter(ThreadDataLoader(data, batch_size=16, num_workers=0)))
    real = accuracy.make_loader
    accuracy.make_loader = lambda steps, torch: batches if steps == loop.steps else real(steps, torch)
    accuracy.plain(loop, hand, torch)


def profiled(loop: Loop, hand: Hand, torch: Any) -> None:
    """The plain loop under `torch.profiler`, whose totals stand in for the stamps."""
    from torch.profiler import ProfilerActivity, profile, record_function

    model = accuracy.make_model(loop, torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    lossf = torch.nn.CrossEntropyLoss()
    taken: list[int] = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for i, (x, y) in enumerate(accuracy.make_loader(loop.steps, torch)):
            begin = now()
            accuracy.warm_up(i)
            optimizer.zero_grad()
            with record_function("forward by hand"):
                logits = model(x)
            loss = lossf(logits, y)
            with record_function("backward by hand"):
                loss.backward()
            optimizer.step()
            taken.append(now() - begin)
    spans = {
        "input_wait": "enumerate(DataLoader)",
        "forward": "forward by hand",
        "backward": "backward by hand",
        "optimizer": "Optimizer.step",
    }
    found: dict[str, list[int]] = {phase: [] for phase in spans}
    for event in profiler.events():
        for phase, name in spans.items():
            if event.name.startswith(name):
                found[phase].append(round(1e3 * event.time_range.elapsed_us()))
    for i, step in enumerate(taken):
        row = {phase: times[i] for phase, times in found.items()}
        hand.rows.append({**row, "residual": step - sum(row.values()) + row["input_wait"]})


# --- frameworks ---------------------------------------------------------------------------------


class Stamped:
    """A loader whose fetches are timed by hand."""

    def __init__(self, loader: Any, hand: Hand) -> None:
        self.loader, self.hand = loader, hand

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while True:
            begin = now()
            batch = next(batches, None)
            if batch is None:
                return
            self.hand.add("later_wait" if self.hand.opened else "input_wait", begin, now())
            yield batch

    def __len__(self) -> int:
        return len(self.loader)


def lightning_module(loop: Loop, hand: Hand, torch: Any, *, accumulate: int = 1) -> Any:  # noqa: C901
    """A module that takes stamps in its hooks."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = accuracy.make_model(loop, torch)
            self.stamp = self.left = self.batches = 0

        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
            if self.batches % accumulate:
                hand.add("gap", self.left, now())
            else:
                hand.open(now())
            return batch

        def training_step(self, batch: Any, index: int) -> Any:  # noqa: ARG002
            accuracy.warm_up(self.batches)
            begin = now()
            logits = self.net(batch[0])
            hand.add("forward", begin, now())
            return torch.nn.functional.cross_entropy(logits, batch[1])

        def on_before_backward(self, loss: Any) -> None:  # noqa: ARG002
            self.stamp = now()

        def on_after_backward(self) -> None:
            hand.add("backward", self.stamp, now())

        def on_before_optimizer_step(self, optimizer: Any) -> None:  # noqa: ARG002
            self.stamp = now()

        def on_train_batch_end(self, *args: Any) -> None:  # noqa: ARG002
            end = self.left = now()
            self.batches += 1
            if not self.batches % accumulate:
                hand.add("optimizer", self.stamp, end)
                # Between the batches of a group Lightning does what it does between steps.
                between = hand.row.pop("gap", 0) - hand.row.get("later_wait", 0)
                hand.close(end)
                hand.rows[-1]["residual"] -= between
                hand.rows[-1]["between_steps"] = hand.rows[-1].get("between_steps", 0) + between
                hand.opened = 0

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    return Module()


def fit(module: Any, loader: Any, **options: Any) -> Any:
    import lightning

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(module, loader)
    return trainer


def lightning(loop: Loop, hand: Hand, torch: Any) -> None:
    fit(lightning_module(loop, hand, torch), Stamped(accuracy.make_loader(loop.steps, torch), hand))


def lightning_accumulation(loop: Loop, hand: Hand, torch: Any) -> None:
    module = lightning_module(loop, hand, torch, accumulate=4)
    loader = Stamped(accuracy.make_loader(4 * loop.steps, torch), hand)
    fit(module, loader, accumulate_grad_batches=4)


def lightning_profiler(loop: Loop, hand: Hand, torch: Any) -> None:
    """Lightning's own profiler stands in for the stamps."""
    unused = Hand()
    module = lightning_module(loop, unused, torch)
    trainer = fit(module, accuracy.make_loader(loop.steps, torch), profiler="simple")
    times = trainer.profiler.recorded_durations
    waits = times["[_TrainingEpochLoop].train_dataloader_next"]
    backwards = times["[Strategy]SingleDeviceStrategy.backward"]
    batches = times["run_training_batch"]
    for wait, backward, batch in zip(waits, backwards, batches, strict=False):
        row = {"input_wait": round(1e9 * wait), "backward": round(1e9 * backward)}
        hand.rows.append({**row, "residual": round(1e9 * (batch - backward))})


def monai(loop: Loop, hand: Hand, torch: Any) -> None:
    from monai.data import DataLoader

    monai_trainer(loop, hand, torch, DataLoader)


def monai_thread(loop: Loop, hand: Hand, torch: Any) -> None:
    from monai.data import ThreadDataLoader

    monai_trainer(loop, hand, torch, ThreadDataLoader)


def monai_trainer(loop: Loop, hand: Hand, torch: Any, loader: Any) -> None:
    """A trainer with stamps in what it calls and in its events."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from ignite.engine import Events
    from monai.data import Dataset
    from monai.engines import SupervisedTrainer
    from monai.engines.utils import IterationEvents, default_prepare_batch
    from monai.inferers import SimpleInferer

    class Inferer(SimpleInferer):
        def __call__(self, *args: Any, **more: Any) -> Any:
            begin = now()
            found = super().__call__(*args, **more)
            hand.add("forward", begin, now())
            return found

    def stepped(*args: Any, **more: Any) -> None:
        begin = now()
        step(*args, **more)
        hand.add("optimizer", begin, now())

    def prepare(*args: Any, **more: Any) -> Any:
        hand.open(now())
        accuracy.warm_up(len(hand.rows))
        return default_prepare_batch(*args, **more)

    stamps: dict[str, int] = {}
    image, label = torch.randn(1, 16, 16, 16), torch.zeros(1, 16, 16, 16)
    items = [{"image": image, "label": label} for _ in range(2 * loop.steps)]
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv3d(1, loop.width, 3, padding=1), nn.ReLU(), nn.Conv3d(loop.width, 1, 3, padding=1)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    # Around the call, as torch's own bookkeeping around a step is part of it.
    step, optimizer.step = optimizer.step, stepped
    trainer = SupervisedTrainer(
        device=torch.device("cpu"), max_epochs=1, network=net, loss_function=nn.MSELoss(),
        train_data_loader=loader(Dataset(items, None), batch_size=2, num_workers=0),
        optimizer=optimizer, prepare_batch=prepare, inferer=Inferer(),
    )  # fmt: skip

    def stamp(name: str) -> Callable[[Any], None]:
        return lambda _: stamps.update({name: now()})

    def span(phase: str) -> Callable[[Any], None]:
        return lambda _: hand.add(phase, stamps[phase], now())

    trainer.add_event_handler(Events.GET_BATCH_STARTED, stamp("input_wait"))
    trainer.add_event_handler(Events.GET_BATCH_COMPLETED, span("input_wait"))
    trainer.add_event_handler(IterationEvents.LOSS_COMPLETED, stamp("backward"))
    trainer.add_event_handler(IterationEvents.BACKWARD_COMPLETED, span("backward"))
    trainer.add_event_handler(IterationEvents.MODEL_COMPLETED, lambda _: hand.close(now()))
    trainer.run()


KINDS: dict[str, Callable[[Loop, Hand, Any], None]] = {
    "plain": accuracy.plain,
    "validation": accuracy.plain,
    "checkpointing": accuracy.plain,
    "accumulation": accuracy.accumulating,
    "lbfgs": accuracy.lbfgs,
    "reentrant": checkpointed,
    "compiled": compiled("aot_eager"),
    "inductor": compiled("inductor"),
    "thread": threaded,
    "torch_profiler": profiled,
    "lightning": lightning,
    "lightning_accumulation": lightning_accumulation,
    "lightning_profiler": lightning_profiler,
    "monai": monai,
    "monai_thread": monai_thread,
}


def run_loop(loop: Loop, out: str) -> None:
    """Train, stamp, and write the stamps' sums as JSON."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    hand = Hand()
    KINDS[loop.kind](loop, hand, torch)
    Path(out).write_text(json.dumps(hand.rows))


# --- the table ----------------------------------------------------------------------------------


def measure(name: str, repeat: int) -> tuple[list[Row], Wall]:
    """Measure once; where something is off, ``repeat`` times, and take the median differences.

    A program that was scheduled between a stamp of ours and one by hand is no error of either.
    """
    loop = LOOPS[name]
    closes_in = CLOSES_IN.get(loop.kind.partition("_")[0])
    runs = [accuracy.measure(name, loop, script=__file__, closes_in=closes_in)]
    if not all_right(loop, *runs[0]):
        runs += [accuracy.measure(name, loop, script=__file__, closes_in=closes_in) for _ in range(1, repeat)]
    phases = [
        sorted((rows[i] for rows, _ in runs), key=lambda row: row.points)[len(runs) // 2]
        for i in range(len(accuracy.PHASES))
    ]
    wall = sorted((wall for _, wall in runs), key=lambda wall: wall.off_pct)[len(runs) // 2]
    return compared(loop, phases), wall


def compared(loop: Loop, rows: list[Row]) -> list[Row]:
    wanted = COMPARED.get(loop.kind, accuracy.PHASES)
    return [row for row in rows if row.phase in wanted]


def all_right(loop: Loop, rows: list[Row], wall: Wall) -> bool:
    return wall.right and all(row.right for row in compared(loop, rows))


def keep(found: dict[str, tuple[list[Row], Wall]]) -> dict[str, tuple[list[Row], Wall]]:
    """Add to the results of earlier calls, so that the loops can be measured in pieces; return all."""
    kept = _evidence.kept("truth")  # lists: what JSON makes of tuples
    kept |= {name: [[list(row) for row in rows], list(wall)] for name, (rows, wall) in found.items()}
    _evidence.keep("truth", kept)
    return {name: ([Row(*r) for r in kept[name][0]], Wall(*kept[name][1])) for name in LOOPS if name in kept}


def report(found: list[tuple[list[Row], Wall]], repeat: int) -> str:
    rows = [row for rows, _ in found for row in rows]
    walls = [wall for _, wall in found]
    right = sum(row.right for row in rows)
    whole = sum(wall.right for wall in walls)
    outcome = (
        f"**{right} of {len(rows)} phases within {accuracy.MOST_POINTS:g} percentage points of step time or "
        f"{accuracy.MOST_US:g} µs; {whole} of {len(walls)} runs accounted for within "
        f"{accuracy.MOST_WALL_PCT:g} % of the process's life.**"
    )
    legend = (
        f"Microseconds a step, by hand → reported; where a first run was off, of {repeat} runs the median "
        "differences. Bold is off. *Accounted*: start-up, steps, time between and shut-down, as a share of "
        "the process's life seen from outside. In the last two rows another profiler takes the place of the "
        "stamps, and names fewer phases."
    )
    phases = accuracy.PHASES
    lines = []
    for mine, wall in found:
        cells = {row.phase: cell(row) for row in mine}
        whole_cell = f"{100 + wall.off_pct:.2f} %"
        lines.append(
            [
                wall.loop,
                *(cells.get(p, "") for p in phases),
                whole_cell if wall.right else f"**{whole_cell}**",
            ]
        )
    head = ["loop", *(phase.replace("_", " ") for phase in phases), "accounted"]
    state = _evidence.machine("lightning", "monai")
    return "\n\n".join([state, outcome, legend, _evidence.table(head, lines)])


def cell(row: Row) -> str:
    text = f"{row.hand_us:,.0f} → {row.reported_us:,.0f}"
    return text if row.right else f"**{text} ({row.points:+.1f} points)**"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=LOOPS, default=list(LOOPS))
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--write", action="store_true", help="write the table into docs/evidence")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        run_loop(Loop(*json.loads(options.loop)), options.out)
        return 0
    found: dict[str, tuple[list[Row], Wall]] = {}
    every = keep(found)
    started = time.monotonic()
    for name in options.only:
        if time.monotonic() - started > options.stop_after or (options.missing and name in every):
            continue
        begin = time.perf_counter()
        try:
            found[name] = measure(name, options.repeat)
        except AssertionError as error:
            print(f"{name}: not measured: {error}", flush=True)
            continue
        every = keep(found)
        accuracy.show(*found[name])
        print(f"  took {time.perf_counter() - begin:.0f} s", flush=True)
    if options.write:
        _evidence.write("truth", "truth", report([*every.values()], options.repeat))
    wrong = [row for rows, wall in found.values() for row in [*rows, wall] if not row.right]
    return 1 if wrong or len(every) < len(LOOPS) else 0


if __name__ == "__main__":
    sys.exit(main())
