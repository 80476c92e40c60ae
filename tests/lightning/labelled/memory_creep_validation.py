# label: process MEMORY_CREEP
# process: main process
# also: OUTSIDE_HEAVY
# The outputs of validation_step are kept for ever.
import torch
from _parts import Net, batches, fit


class Keeps(Net):
    def __init__(self):
        super().__init__()
        self.outputs = []

    def validation_step(self, batch, batch_idx):
        self.outputs.append(torch.randn(60_000))
        self.log("val_loss", self.loss(batch))


fit(Keeps(), batches(600), batches(4, 16), val_check_interval=5)
