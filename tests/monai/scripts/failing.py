"""Makes each part of TraceML fail in turn while MONAI trains, validates and saves."""

import gc
import sys
from pathlib import Path

from _kit import Events, Net, On, Trained, loader, nn, torch
from monai.engines import SupervisedEvaluator
from monai.handlers import ValidationHandler

from traceml_ai.integrations._monai_run import SupervisedRun
from traceml_ai.probe import session as sessions
from traceml_ai.probe.framework import Window
from traceml_ai.spool.writer import StepLogWriter

sys.path.append(str(Path(__file__).parents[2]))

import spoiled


def training():
    torch.manual_seed(0)
    out = []
    for batches, options in ((30, {}), (8, {"decollate": False, "max_epochs": 2})):
        network = Net()
        evaluator = SupervisedEvaluator(
            device=torch.device("cpu"), val_data_loader=loader(2), network=network, decollate=False
        )
        handlers = [
            On(Events.ITERATION_COMPLETED(every=16), lambda _engine: gc.collect(0)),
            ValidationHandler(interval=1, validator=evaluator),
        ]
        made = Trained(
            loader(batches, shuffle=True), handlers=handlers, loss_function=nn.MSELoss(), **options
        )
        out.append(made.run().result())
        out.append(repr(evaluator.state.output)[:200])
    out.append(torch.rand(1).item().hex())
    return out


if __name__ == "__main__":
    owners = (type(sessions.current.st), Window, SupervisedRun, sessions.Session, StepLogWriter)
    spoiled.main(training, owners)
