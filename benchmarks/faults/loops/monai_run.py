"""A MONAI trainer."""

import time
import warnings

from _record import SCRATCH_BYTES, Record


def fit(record):
    """Train; a step is closed when the next one begins, or the run ended."""
    warnings.simplefilter("ignore")
    import torch
    from ignite.engine import Events
    from monai.engines import SupervisedTrainer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 1)
    items = [
        {"image": torch.full((8,), float(i % 7)), "label": torch.ones(1)} for i in range(record.steps * 4)
    ]
    loader = torch.utils.data.DataLoader(
        items,
        batch_size=4,
        num_workers=record.workers,
        worker_init_fn=record.worker if record.workers else None,
    )
    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=loader,
        network=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.01),
        loss_function=torch.nn.MSELoss(),
    )

    losses = []

    def begin(engine):
        scratch = torch.empty(SCRATCH_BYTES, dtype=torch.uint8)
        del scratch
        if losses:
            record.step(len(losses), losses[-1])
        time.sleep(record.pause_s)

    def completed(engine):
        losses.append(engine.state.output[0]["loss"])

    trainer.add_event_handler(Events.ITERATION_STARTED, begin)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, completed)
    trainer.run()
    record.step(len(losses), losses[-1])


if __name__ == "__main__":
    record = Record()
    fit(record)
    print("trained", flush=True)
    record.done()
