# label: GC_PAUSES
# also: RESIDUAL_HEAVY
import gc

from _parts import Net, batches, fit

HELD = [[i] for i in range(400_000)]


class Collects(Net):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        gc.collect()
        return loss


fit(Collects(), batches(80))
