# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.handlers_s > 0.7 * time.between_steps_s
from _parts import Net, batches, fit, spin

import lightning as L


class Plots(L.Callback):
    def on_train_batch_end(self, *args):
        spin(0.015)


fit(Net(), batches(100), callbacks=[Plots()])
