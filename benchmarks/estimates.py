"""How good the estimates are: what a run was promised, and what making the change really gave.

    python benchmarks/estimates.py [--repeat N] [--only NAME ...] [--json]

Each case runs under ``traceml run`` as it is, then with the change that its primary finding advises
(as many workers as advised, persistent workers, saving or validating a quarter as often). Compared is the
time of one turn of the training loop, steps and time between them: predicted by the first run, realised by
the second, of each the fastest of the repeats (other programs only ever slow a run). Target: a median error
of 10 % or less.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

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
}
BATCH = 16


def changed(case: Case, finding: dict[str, Any]) -> Case:
    """Return the case with what its finding advises."""
    if case.kind == "INPUT_BOUND":
        return case._replace(workers=finding["estimate"]["num_workers"], persistent=True)
    if case.kind == "EPOCH_START_STALL":
        return case._replace(persistent=True)
    return case._replace(
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
                if is_due(step, case.save_every):
                    torch.save(weights, io.BytesIO())
            if is_due(step, case.save_after_every):
                torch.save(weights, io.BytesIO())
            if is_due(step, case.validate_every):
                validate(model, held_out)


def make_loader(case: Case, torch: Any) -> Any:
    class Items(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return case.steps * BATCH

        def __getitem__(self, index: int) -> Any:
            if case.sleep_ms:
                time.sleep(case.sleep_ms / 1e3)
            if case.spin_ms:
                spin(case.spin_ms / 1e3)
            return torch.ones(64), index % 10

    def collate(items: Any) -> Any:
        spin(case.collate_ms / 1e3)
        return torch.utils.data.default_collate(items)

    options: dict[str, Any] = {"persistent_workers": True} if case.persistent else {}
    return torch.utils.data.DataLoader(
        Items(), batch_size=BATCH, num_workers=case.workers, collate_fn=collate, **options
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
    low_ms: float
    high_ms: float
    realised_ms: float

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted_ms / self.realised_ms - 1)

    @property
    def in_range(self) -> bool:
        return self.low_ms <= self.realised_ms <= self.high_ms


def summary_of(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--mode", "summary", "--logs-dir", folder, "--run-name", "it"]
        subprocess.run(
            [sys.executable, "-m", "traceml_ai", *words, __file__, "--case", json.dumps(case)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(Path(folder, "it", "final_summary.json").read_bytes())
        return found


def loop_ms(summary: dict[str, Any]) -> float:
    section = summary["step_time"]
    return float(section["step_ms"] + section["phases"]["between_steps"]["mean_ms"])


def measure(name: str, case: Case, repeat: int) -> Row | str:
    """Run both ways, taking turns; a text says why there is nothing to compare."""
    firsts, realised = [], []
    new = case
    for _ in range(repeat):
        summary = summary_of(case)
        finding = next((each for each in summary["findings"] if each["kind"] == case.kind), None)
        if finding is None:
            return f"{case.kind} was not found but {[each['kind'] for each in summary['findings']]}"
        if finding["estimate"] is None or (
            case.kind == "INPUT_BOUND" and not finding["estimate"]["num_workers"]
        ):
            return f"no estimate ({finding['next']})"
        firsts.append((loop_ms(summary), finding["estimate"]))
        new = changed(case, finding)
        realised.append(loop_ms(summary_of(new)))
    difference = [f"{key}={value}" for key, value in new._asdict().items() if value != getattr(case, key)]
    before, estimate = min(firsts, key=lambda first: first[0])
    speedups = [estimate[key] for key in ("speedup", "speedup_high", "speedup_low")]
    predicted, low, high = (before / speedup if speedup else 0.0 for speedup in speedups)
    return Row(name, ", ".join(difference), before, predicted, low, high, min(realised))


def main() -> int:
    """Print a table, or JSON; exits with 1 when the estimates are off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(Case(*json.loads(options.case)))
        return 0
    rows: list[Row] = []
    if not options.json:
        print(f"{os.cpu_count()} CPUs; milliseconds of one turn of the loop")
        print(f"{'case':<27}{'before':>8}{'predicted':>11}{'range':>16}{'realised':>10}{'error':>8}  change")
    for name in options.only:
        row = measure(name, CASES[name], options.repeat)
        if isinstance(row, Row):
            rows.append(row)
        if not options.json:
            show(name, row)
    if not rows:
        return 1
    error = statistics.median(abs(row.error_pct) for row in rows)
    within = sum(row.in_range for row in rows)
    if options.json:
        print(json.dumps([{**row._asdict(), "error_pct": row.error_pct} for row in rows]))
    else:
        target = f"target {MOST_MEDIAN_ERROR_PCT:g} %"
        print(f"median error {error:.1f} % ({target}), {within} of {len(rows)} in range")
    return int(error > MOST_MEDIAN_ERROR_PCT)


def show(name: str, row: Row | str) -> None:
    if isinstance(row, str):
        print(f"{name:<27}{row}", flush=True)
        return
    outside = "" if row.in_range else "  (out of range)"
    print(
        f"{name:<27}{row.before_ms:8.2f}{row.predicted_ms:11.2f}{row.low_ms:9.2f}-{row.high_ms:<6.2f}"
        f"{row.realised_ms:10.2f}{row.error_pct:+7.0f}%  {row.change}{outside}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
