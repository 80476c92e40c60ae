"""How good the estimates are: what a run was promised, and what making the change really gave.

    python benchmarks/estimates.py [--repeat N] [--only NAME ...] [--missing] [--stop-after SECONDS]
                                   [--json | --write]

Each case runs under ``traceml run`` as it is, then with the change that its finding advises (as many workers
as advised, persistent workers, saving, logging or validating a quarter as often, the late rank no longer
late). Compared is the time of one turn of the training loop, steps and time between them: predicted by the
first run, realised by the second, of each the fastest of the repeats (other programs only ever slow a run).
What a cheaper batch gives nobody can know beforehand; where the cause of a wait is removed altogether (the
collate function mended, items cached), it is compared with the time at stake that the finding names. A batch
of twice the size shares what is paid once a step among twice the samples, which is the lower end of what
is promised for a residual. Target: a median error of 10 % or less.

Results are kept, so that cases can be measured in pieces; ``--missing`` measures only those that have none.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import _evidence

MOST_MEDIAN_ERROR_PCT = 10.0


class Case(NamedTuple):
    """One loop, and the settings that the advised change alters."""

    kind: str  # what its primary finding has to be
    width: int = 256  # of the model; sets what a step computes
    steps: int = 160
    epochs: int = 1
    sleep_ms: float = 0.0  # per item
    spin_ms: float = 0.0  # per item
    collate_ms: float = 0.0  # processor time per batch
    workers: int = 0
    persistent: bool = False
    save_every: int = 0  # torch.save inside the marked step
    save_after_every: int = 0  # torch.save between steps
    validate_every: int = 0
    log_ms: float = 0.0  # inside the marked step
    log_every: int = 1
    batch: int = 16
    ranks: int = 1
    late_ms: float = 0.0  # what a batch of the last rank takes longer
    fix: str = "as advised"


CASES = {
    "items sleep": Case("INPUT_BOUND", sleep_ms=1.0),
    "items sleep a little": Case("INPUT_BOUND", width=768, sleep_ms=0.4),
    "items compute": Case("INPUT_BOUND", spin_ms=0.8),
    "items compute a little": Case("INPUT_BOUND", width=768, spin_ms=0.4),
    "items do both": Case("INPUT_BOUND", sleep_ms=0.4, spin_ms=0.4),
    "collate computes": Case("INPUT_BOUND", collate_ms=8.0),
    "one worker, items sleep": Case("INPUT_BOUND", sleep_ms=1.0, workers=1, persistent=True),
    "one worker, items compute": Case("INPUT_BOUND", spin_ms=0.8, workers=1, persistent=True),
    "workers start each epoch": Case("EPOCH_START_STALL", width=512, steps=12, epochs=14, workers=2),
    "saving in the step": Case("RESIDUAL_HEAVY", save_every=1),
    "saving after the step": Case("OUTSIDE_HEAVY", width=512, save_after_every=1),
    "validating": Case("OUTSIDE_HEAVY", width=512, validate_every=5),
    "logging every step": Case("RESIDUAL_HEAVY", log_ms=6.0),
    "batches of twice the size": Case("RESIDUAL_HEAVY", width=512, batch=64, log_ms=6.0, fix="batch"),
    "collate function mended": Case("INPUT_BOUND", width=768, collate_ms=8.0, fix="collate"),
    "items cached": Case("INPUT_BOUND", width=768, spin_ms=0.8, fix="cache"),
    "a rank late with its input": Case("INPUT_STRAGGLER", ranks=2, late_ms=12.0, steps=100),
}
# What stands behind the prediction, when it is not the finding's expected gain.
AT_STAKE = ("collate", "cache")


def changed(case: Case, finding: dict[str, Any]) -> Case:
    """Return the case with what its finding advises, or with what is fixed in it."""
    fixes: dict[str, Callable[[], Case]] = {
        "collate": lambda: case._replace(collate_ms=0.0),
        "cache": lambda: case._replace(spin_ms=0.0),
        "batch": lambda: case._replace(batch=2 * case.batch, steps=case.steps // 2),
    }
    return fixes[case.fix]() if case.fix in fixes else as_advised(case, finding)


def as_advised(case: Case, finding: dict[str, Any]) -> Case:
    if case.kind == "INPUT_STRAGGLER":
        return case._replace(late_ms=0.0)
    if case.kind == "INPUT_BOUND":
        return case._replace(workers=finding["estimate"]["num_workers"], persistent=True)
    if case.kind == "EPOCH_START_STALL":
        return case._replace(persistent=True)
    return case._replace(
        log_every=4 * case.log_every if case.log_ms else case.log_every,
        save_every=4 * case.save_every,
        save_after_every=4 * case.save_after_every,
        validate_every=4 * case.validate_every,
    )


# --- the loop, run by itself as a script --------------------------------------------------------


def spin(seconds: float) -> None:
    """Use so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def run_case(case: Case) -> None:
    """Train."""
    import torch

    import traceml

    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn

    sizes = [64, case.width, case.width, case.width]
    hidden = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
    model = nn.Sequential(*chain.from_iterable(hidden), nn.Linear(case.width, 10))
    if case.ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = make_loader(case, torch)
    held_out = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(1024, 64), torch.zeros(1024)), batch_size=64
    )
    weights = {f"average.{i}": torch.ones(250_000) for i in range(4)}
    step = 0
    for _ in range(case.epochs):
        for x, y in loader:
            step += 1
            with traceml.trace_step(model):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                if case.log_ms and is_due(step, case.log_every):
                    spin(case.log_ms / 1e3)
                if is_due(step, case.save_every):
                    torch.save(weights, io.BytesIO())
            if is_due(step, case.save_after_every):
                torch.save(weights, io.BytesIO())
            if is_due(step, case.validate_every):
                validate(model, held_out)
    if case.ranks > 1:
        torch.distributed.destroy_process_group()


def make_loader(case: Case, torch: Any) -> Any:
    class Items(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return case.steps * case.batch

        def __getitem__(self, index: int) -> Any:
            if case.sleep_ms:
                time.sleep(case.sleep_ms / 1e3)
            if case.spin_ms:
                spin(case.spin_ms / 1e3)
            return torch.ones(64), index % 10

    def collate(items: Any) -> Any:
        spin(case.collate_ms / 1e3)
        if case.late_ms and torch.distributed.get_rank() == case.ranks - 1:
            time.sleep(case.late_ms / 1e3)
        return torch.utils.data.default_collate(items)

    options: dict[str, Any] = {"persistent_workers": True} if case.persistent else {}
    return torch.utils.data.DataLoader(
        Items(), batch_size=case.batch, num_workers=case.workers, collate_fn=collate, **options
    )


def is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def validate(model: Any, held_out: Any) -> None:
    import torch

    model.eval()
    with torch.no_grad():
        for x, _ in held_out:
            model(x)
    model.train()


# --- running and comparing ----------------------------------------------------------------------


class Row(NamedTuple):
    """One case: milliseconds of one turn of the loop."""

    case: str
    change: str
    before_ms: float
    predicted_ms: float
    low_ms: float | None
    high_ms: float | None
    realised_ms: float

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted_ms / self.realised_ms - 1)

    @property
    def in_range(self) -> bool | None:
        if self.low_ms is None or self.high_ms is None:
            return None
        return self.low_ms <= self.realised_ms <= self.high_ms

    @property
    def range(self) -> str:
        return "none" if self.in_range is None else f"{self.low_ms:.2f} to {self.high_ms:.2f}"


def summary_of(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--mode", "summary", "--logs-dir", folder, "--run-name", "it"]
        words += [f"--nproc-per-node={case.ranks}"] * (case.ranks > 1)
        subprocess.run(
            [sys.executable, "-m", "traceml_ai", *words, __file__, "--args", "--case", json.dumps(case)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(Path(folder, "it", "final_summary.json").read_bytes())
        return found


def loop_ms(summary: dict[str, Any]) -> float:
    section = summary["step_time"]
    return float(section["step_ms"] + section["phases"]["between_steps"]["mean_ms"])


def is_promised(case: Case, finding: dict[str, Any]) -> bool:
    """Whether the finding says what the change gives."""
    estimate = finding["estimate"]
    if case.fix in AT_STAKE:
        return finding["cost_ms_per_step"] is not None
    return estimate is not None and (case.kind != "INPUT_BOUND" or bool(estimate["num_workers"]))


def measure(name: str, case: Case, repeat: int) -> Row | str:
    """Run both ways, taking turns; a text says why there is nothing to compare."""
    firsts, realised = [], []
    new = case
    for _ in range(repeat):
        summary = summary_of(case)
        finding = next((each for each in summary["findings"] if each["kind"] == case.kind), None)
        if finding is None:
            return f"{case.kind} was not found but {[each['kind'] for each in summary['findings']]}"
        if not is_promised(case, finding):
            return f"no estimate ({finding['next']})"
        firsts.append((loop_ms(summary), finding))
        new = changed(case, finding)
        realised.append(loop_ms(summary_of(new)) * case.batch / new.batch)
    difference = [f"{key}={value}" for key, value in new._asdict().items() if value != getattr(case, key)]
    before, finding = min(firsts, key=lambda first: first[0])
    return Row(name, ", ".join(difference), before, *predictions(case, before, finding), min(realised))


def predictions(
    case: Case, before: float, finding: dict[str, Any]
) -> tuple[float, float | None, float | None]:
    """Return the predicted time of a turn, and the range of it where there is one."""
    if case.fix in AT_STAKE:
        return before - finding["cost_ms_per_step"], None, None
    estimate = finding["estimate"]
    speedups = [estimate[key] for key in ("speedup", "speedup_high", "speedup_low")]
    predicted, low, high = (before / speedup if speedup else 0.0 for speedup in speedups)
    return (high if case.fix == "batch" else predicted), low, high


def keep(found: dict[str, Row]) -> dict[str, Row]:
    """Add to the results of earlier calls; return all."""
    kept = _evidence.kept("estimates")
    kept |= {name: list(row) for name, row in found.items()}
    _evidence.keep("estimates", kept)
    return {name: Row(*kept[name]) for name in CASES if name in kept}


def main() -> int:
    """Print a table, or JSON; exits with 1 when the estimates are off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the table into docs/evidence")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(Case(*json.loads(options.case)))
        return 0
    kept = keep({})
    begin = time.monotonic()
    names = [name for name in options.only if not (options.missing and name in kept)]
    for name in names:
        if time.monotonic() - begin > options.stop_after:
            break
        try:
            row = measure(name, CASES[name], options.repeat)
        except (KeyError, subprocess.CalledProcessError) as error:
            row = f"not measured: {error!r}"
        if isinstance(row, Row):
            kept = keep({name: row})
        if not options.json:
            print(f"{name}: {row}" if isinstance(row, str) else text([row]), flush=True)
    rows = [row for name, row in kept.items() if name in options.only]
    if not rows:
        return 1
    if options.json:
        print(json.dumps([{**row._asdict(), "error_pct": row.error_pct} for row in rows]))
    else:
        print(outcome(rows))
    if options.write:
        _evidence.write("accuracy", "gains", report(rows))
    return int(median_error(rows) > MOST_MEDIAN_ERROR_PCT)


def median_error(rows: list[Row]) -> float:
    return statistics.median(abs(row.error_pct) for row in rows)


def outcome(rows: list[Row]) -> str:
    ranged = [row for row in rows if row.in_range is not None]
    within = sum(bool(row.in_range) for row in ranged)
    return (
        f"{len(rows)} changes: median error {median_error(rows):.1f} % (target {MOST_MEDIAN_ERROR_PCT:g} %), "
        f"{within} of {len(ranged)} within the promised range"
    )


def text(rows: list[Row]) -> str:
    return "\n".join(
        f"{row.case:<27}{row.before_ms:8.2f}{row.predicted_ms:9.2f} ({row.range}){row.realised_ms:9.2f}"
        f"{row.error_pct:+7.0f}%  {row.change}"
        for row in rows
    )


def report(rows: list[Row]) -> str:
    head = ["case", "the change", "before, ms", "predicted", "promised range", "realised", "error"]
    lines = [
        [
            row.case,
            f"`{row.change}`",
            f"{row.before_ms:.2f}",
            f"{row.predicted_ms:.2f}",
            row.range,
            f"{row.realised_ms:.2f}" if row.in_range is not False else f"**{row.realised_ms:.2f}**",
            f"{row.error_pct:+.0f} %",
        ]
        for row in rows
    ]
    legend = (
        "Milliseconds of one turn of the loop; bold is outside of the promised range. Without a range it is "
        "the time at stake that the finding names, for a cause that was removed altogether."
    )
    return "\n\n".join([_evidence.machine(), f"**{outcome(rows)}.**", legend, _evidence.table(head, lines)])


if __name__ == "__main__":
    sys.exit(main())
