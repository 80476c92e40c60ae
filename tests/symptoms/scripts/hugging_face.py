"""Hugging Face's trainer and Accelerate's loop, as reported. A user's code; its argument is the case."""

import os
import signal
import sys
import time
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)


class Items(torch.utils.data.Dataset):
    def __init__(self, count, ms=0.0):
        self.count, self.ms = count, ms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.ms / 1000)
        return {"x": torch.ones(16) * (index % 3), "labels": torch.tensor(index % 2)}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from (Items(400)[i] for i in range(400))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x, labels):
        scores = self.net(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def trainer(data, *, callbacks=None, eval_dataset=None, **options):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    return Trainer(Model(), arguments, train_dataset=data, eval_dataset=eval_dataset, callbacks=callbacks)


def short_last_group():
    """Epochs of nine batches, of which two accumulate: the trainer updates on the last one by itself."""
    trainer(Items(36), gradient_accumulation_steps=2, num_train_epochs=6).train()


def evaluating_after_every_step():
    trainer(
        Items(160, 1), eval_dataset=Items(8, 10), eval_strategy="steps", eval_steps=1, num_train_epochs=1
    ).train()


def stream():
    trainer(Stream(), max_steps=60).train()


def interrupted():
    from transformers import TrainerCallback

    class Interrupt(TrainerCallback):
        def on_step_end(self, arguments, state, control, **more):
            if state.global_step == 10:
                os.kill(os.getpid(), signal.SIGINT)

    trainer(Items(400), callbacks=[Interrupt()]).train()


def accelerate():
    """Accelerate fetches one batch ahead: 50 batches of 20 ms."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = nn.Linear(16, 2)
    model, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.1),
        torch.utils.data.DataLoader(Items(200, 5), batch_size=4),
    )
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(batch["x"]), batch["labels"]))
        optimizer.step()


def accelerate_short_epochs():
    """Four epochs of nine batches; two accumulate, and the last of an epoch is a group by itself."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = nn.Linear(16, 2)
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.1), torch.utils.data.DataLoader(Items(36), batch_size=4)
    )
    for _ in range(4):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(batch["x"]), batch["labels"]))
                optimizer.step()
                optimizer.zero_grad()


globals()[sys.argv[1]]()
