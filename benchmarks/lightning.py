"""What measuring adds to a step of a small Lightning loop on the CPU.

The same script runs in turn by itself, with a callback that does nothing (what Lightning's own
dispatch of one more callback costs), and under `traceml run`. Compared is the processor time of the
training thread between two steps: on a shared machine the clock on the wall tells more of others.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
STEPS = 3000
BUDGET_US = 25

SCRIPT = """
import logging, sys, time
import lightning as L, torch
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)

class Tiny(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, batch_idx):
        return self(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)

class Times(L.Callback):
    def __init__(self):
        self.at = []
    def on_train_batch_end(self, *args):
        self.at.append(time.thread_time_ns())

times, steps = Times(), int(sys.argv[1])
data = torch.utils.data.TensorDataset(torch.randn(2 * steps, 8))
off = ["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"]
quiet = dict.fromkeys(off, False)
others = [L.Callback() for _ in sys.argv[2:]]
trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=1, callbacks=[times, *others], **quiet)
trainer.fit(Tiny(), torch.utils.data.DataLoader(data, batch_size=2))
spent = sorted(b - a for a, b in zip(times.at[200:], times.at[201:]))
print("US", spent[len(spent) // 4] / 1e3)
"""


def measure(script: Path, *args: str, traced: bool = False) -> float:
    """A step's processor time in microseconds: the lower quartile, as others only add."""
    command = [sys.executable, str(script), str(STEPS), *args]
    if traced:
        run = ["-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", str(script.parent / "logs")]
        command = [sys.executable, *run, str(script), "--args", str(STEPS)]
    ended = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=True)
    return next(float(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("US "))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "tiny.py"
        script.write_text(SCRIPT)
        rows = [
            (measure(script), measure(script, "callback"), measure(script, traced=True))
            for _ in range(ROUNDS)
        ]
    plain, callback, traced = (statistics.median(column) for column in zip(*rows, strict=True))
    beyond = statistics.median(row[2] - row[1] for row in rows)
    print(f"a step by itself                        {plain:7.1f} us")
    print(f"  with a callback that does nothing     {callback:7.1f} us")
    print(f"  under traceml run                     {traced:7.1f} us")
    print(f"added beyond Lightning's own dispatch   {beyond:7.1f} us   (budget {BUDGET_US})")


if __name__ == "__main__":
    main()
