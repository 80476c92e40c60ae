"""A fit that ends in the way it is told to; a process of its own, as all of them end it."""

import os
import signal
import sys

from _kit import Small, fit, loader

END = sys.argv[3]


class Ends(Small):
    def training_step(self, batch, batch_idx):
        if batch_idx == 4:
            if END == "raise":
                raise ValueError("as if")
            if END == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            if END == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return self.loss(batch)


fit(Ends(), loader(8), max_epochs=1)
