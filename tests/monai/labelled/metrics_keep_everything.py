# label: process MEMORY_CREEP MEMORY_RISING
# process: main process
# also: OUTSIDE_HEAVY
# A metric that keeps each output of the training, with all that hangs on it.
import torch
from _parts import Handler, loader, network, trainer
from ignite.engine import Events

kept = []
trainer(
    loader(300),
    network(4),
    max_epochs=4,
    train_handlers=[Handler(Events.ITERATION_COMPLETED, lambda _engine: kept.append(torch.randn(60_000)))],
).run()
