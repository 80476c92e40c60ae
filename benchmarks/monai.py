"""What measuring adds to a step of a small MONAI loop on the CPU.

The same script runs in turn by itself and under `traceml run`, which attaches to its trainer. Compared
is the processor time of the training thread between two steps: on a shared machine the clock on the
wall tells more of others.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
STEPS = 2000
BUDGET_US = 20

SCRIPT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import torch
from ignite.engine import Events
from monai.engines import SupervisedTrainer
torch.set_num_threads(1)

class Times:
    def __init__(self):
        self.at = []
    def attach(self, engine):
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)
    def __call__(self, engine):
        self.at.append(time.thread_time_ns())

times, steps = Times(), int(sys.argv[1])
net = torch.nn.Linear(8, 8)
batch = {"image": torch.randn(2, 8), "label": torch.randn(2, 8)}
SupervisedTrainer(
    device=torch.device("cpu"), max_epochs=1, train_data_loader=[batch] * steps, network=net,
    optimizer=torch.optim.SGD(net.parameters(), lr=1e-3), loss_function=torch.nn.MSELoss(),
    train_handlers=[times], decollate=len(sys.argv) > 2,
).run()
spent = sorted(b - a for a, b in zip(times.at[200:], times.at[201:]))
print("US", spent[len(spent) // 4] / 1e3)
"""


def measure(script: Path, *args: str, traced: bool = False) -> float:
    """A step's processor time in microseconds: the lower quartile, as others only add."""
    command = [sys.executable, str(script), str(STEPS), *args]
    if traced:
        run = ["-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", str(script.parent / "logs")]
        command = [sys.executable, *run, str(script), "--args", str(STEPS), *args]
    ended = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=True)
    return next(float(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("US "))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "tiny.py"
        script.write_text(SCRIPT)
        for name, args in (("without decollation", ()), ("with decollation", ("decollate",))):
            rows = [(measure(script, *args), measure(script, *args, traced=True)) for _ in range(ROUNDS)]
            plain, traced = (statistics.median(column) for column in zip(*rows, strict=True))
            added = statistics.median(row[1] - row[0] for row in rows)
            print(f"a step {name:20} {plain:7.1f} us, under traceml run {traced:7.1f} us: ", end="")
            print(f"added {added:5.1f} us   (budget {BUDGET_US})")


if __name__ == "__main__":
    main()
