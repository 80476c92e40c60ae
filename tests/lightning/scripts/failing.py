"""Makes each part of TraceML fail in turn while Lightning trains, validates and accumulates."""

import gc
import sys
from pathlib import Path

import torch
from _kit import Small, fit, loader

from traceml_ai.integrations import lightning as ours
from traceml_ai.probe import session as sessions
from traceml_ai.probe.framework import Window
from traceml_ai.spool.writer import StepLogWriter

sys.path.append(str(Path(__file__).parents[2]))

import spoiled


class Collects(Small):
    def training_step(self, batch, batch_idx):
        if batch_idx % 16 == 15:
            gc.collect(0)
        return self.loss(batch)


def training():
    torch.manual_seed(0)
    out = []
    for batches, options in (
        (30, {"num_sanity_val_steps": 1}),
        (10, {"accumulate_grad_batches": 2, "val_check_interval": 5, "max_epochs": 2}),
    ):
        model = Collects()
        fit(model, loader(batches, shuffle=True), loader(2), **options)
        out.append(model.result())
    out.append(torch.rand(1).item().hex())
    return out


if __name__ == "__main__":
    spoiled.main(training, (type(sessions.current.st), Window, ours.Fit, sessions.Session, StepLogWriter))
