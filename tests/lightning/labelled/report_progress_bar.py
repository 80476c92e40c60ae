# from: https://github.com/ourownstory/neural_prophet/pull/952
# label: OUTSIDE_HEAVY
# phase: between_steps
# check: next(iter(time.handlers or {}), "Bar") == "Bar"
# check: time.between_by_cause.handlers_s > 0.7 * time.between_steps_s
# A progress bar that draws itself anew after every batch.
import io

from _parts import Net, batches, fit
from rich.console import Console
from rich.table import Table

import lightning as L


class Bar(L.pytorch.callbacks.ProgressBar):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        table = Table(title=f"batch {index}")
        table.add_column("name")
        table.add_column("value")
        for name, value in self.get_metrics(trainer, module).items():
            table.add_row(name, str(value))
        for i in range(12):
            table.add_row(f"figure {i}", "#" * (index % 40))
        for _ in range(2):
            Console(file=io.StringIO(), width=100, force_terminal=True).print(table)


fit(Net(), batches(100), callbacks=[Bar()], enable_progress_bar=True)
