"""A Lightning trainer."""

import logging
import time
import warnings

from _record import SCRATCH_BYTES, Record


def fit(record):
    """Train; a step is closed when the next one begins, or the fit ended."""
    import torch

    import lightning as L

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(8, 1)
            self.last = 0.0

        def training_step(self, batch, index):
            scratch = torch.empty(SCRATCH_BYTES, dtype=torch.uint8)
            del scratch
            if index:
                record.step(index, self.last)
            time.sleep(record.pause_s)
            loss = (self.net(batch) - 1).square().mean()
            self.last = loss.item()
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    items = [torch.full((8,), float(i % 7)) for i in range(record.steps * 4)]
    loader = torch.utils.data.DataLoader(
        items,
        batch_size=4,
        num_workers=record.workers,
        worker_init_fn=record.worker if record.workers else None,
    )
    off = ["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"]
    module = Module()
    L.Trainer(accelerator="cpu", devices=1, max_epochs=1, **dict.fromkeys(off, False)).fit(module, loader)
    record.step(record.steps, module.last)


if __name__ == "__main__":
    record = Record()
    fit(record)
    print("trained", flush=True)
    record.done()
