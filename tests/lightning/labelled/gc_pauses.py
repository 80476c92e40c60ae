# label: GC_PAUSES
# also: OUTSIDE_HEAVY
# Lightning's large heap, and one of the user's own, walked after every other step.
import gc

from _parts import Net, batches, fit

HELD = [{"path": [i], "label": [i % 10]} for i in range(20_000)]


class Collects(Net):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx % 2:
            gc.collect()


fit(Collects(), batches(60))
