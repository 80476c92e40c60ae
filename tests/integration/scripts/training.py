"""Trains in many ways; each check returns every number the training made, and what it drew and read."""

import gc
import hashlib
import random
import threading
import time

import checks
import models
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.set_num_threads(1)


class Counted(Dataset):
    """Says how often it was read, with augmentation from three generators."""

    reads = 0
    lengths = 0

    def __len__(self):
        Counted.lengths += 1
        return 48

    def __getitem__(self, i):
        Counted.reads += 1
        noise = torch.rand(8) + float(np.random.rand()) + random.random()
        return noise + i, torch.tensor([float(i)])


class CountedLoader(DataLoader):
    """Counts how often it is asked for an iterator and a batch."""

    iters = 0
    nexts = 0

    def __iter__(self):
        CountedLoader.iters += 1
        iterator = super().__iter__()
        while True:
            CountedLoader.nexts += 1
            try:
                batch = next(iterator)
            except StopIteration:
                return
            yield batch


class Stream(IterableDataset):
    drawn = 0

    def __iter__(self):
        for i in range(64):
            Stream.drawn += 1
            yield torch.full((8,), float(i)) / 64, torch.ones(1)


def seeded():
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    model = models.Net()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def state_of_generators():
    return [
        hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
        np.random.get_state()[1].tolist()[:8],
        int(np.random.get_state()[2]),
        torch.get_rng_state().to(torch.int64).sum().item(),
        torch.rand(1).item().hex(),
    ]


def told(model, losses):
    return [losses, [p.sum().item().hex() for p in model.parameters()], state_of_generators()]


def _epochs(loader, epochs):
    model, optimizer = seeded()
    losses = []
    for _ in range(epochs):
        losses += models.train(model, optimizer, loader)
    return told(model, losses)


def check_shuffle_and_dropout():
    Counted.reads = 0
    out = _epochs(DataLoader(Counted(), batch_size=4, shuffle=True), 6)
    return [out, Counted.reads]


def check_how_often_a_dataset_is_asked_for_its_length():
    """A length may cost a look into a data base."""
    Counted.lengths = 0
    _epochs(DataLoader(Counted(), batch_size=4, shuffle=True), 6)
    return Counted.lengths


def check_two_workers():
    return _epochs(DataLoader(Counted(), batch_size=4, shuffle=True, num_workers=2), 3)


def check_two_persistent_workers():
    loader = DataLoader(Counted(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    return [_epochs(loader, 5), loader._iterator is not None]


def check_how_often_a_loader_is_asked():
    CountedLoader.iters = CountedLoader.nexts = 0
    out = _epochs(CountedLoader(Counted(), batch_size=4), 4)
    return [out, CountedLoader.iters, CountedLoader.nexts]


def check_a_stream_is_not_read_ahead():
    model, optimizer = seeded()
    Stream.drawn = 0
    iterator = iter(DataLoader(Stream(), batch_size=2))
    losses = models.train(model, optimizer, [next(iterator) for _ in range(5)])
    return [told(model, losses), Stream.drawn]


def check_gradient_scaler_with_an_infinite_step():
    model, optimizer = seeded()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=4)
    losses, scales = [], []
    for i, (x, y) in enumerate(models.loader(40)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (model(x) - y).square().mean()
        scaler.scale(loss * (float("inf") if i in (3, 30) else 1)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item().hex())
        scales.append(scaler.get_scale())
    return [told(model, losses), scales]


def check_lbfgs():
    model, _ = seeded()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    losses = []
    for x, y in models.loader(25):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item().hex())
    return told(model, losses)


def check_checkpointing_draws_the_same():
    from torch.utils.checkpoint import checkpoint

    out = []
    for reentrant in (True, False):
        model, optimizer = seeded()
        losses = []
        for x, y in models.loader(30):
            optimizer.zero_grad()
            h = checkpoint(model.inner, x.requires_grad_(), use_reentrant=reentrant)
            loss = (model.out(h) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        out.append(told(model, losses))
    return out


def check_training_in_two_threads():
    """Each thread trains its own model; a loader without shuffling draws nothing that is shared."""
    out = {}
    model_of = {}
    for name in ("a", "b"):
        torch.manual_seed(1)
        model_of[name] = models.Net().eval()

    def work(name):
        model = model_of[name]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(1)
        out[name] = models.train(model, optimizer, models.loader(80, generator=generator))

    threads = [threading.Thread(target=work, args=(n,)) for n in model_of]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def check_no_synchronisation_and_no_collective():
    """Counts calls that wait for a device or for other ranks, and calls of the generators."""
    calls = []

    def counting(name, inner):
        def counted(*args, **kwargs):
            calls.append(name)
            return inner(*args, **kwargs)

        return counted

    watched = [
        (torch.cuda, ["synchronize", "current_stream", "empty_cache", "is_available"]),
        (torch.cpu, ["synchronize"]),
        (torch, ["rand", "randn", "randint", "randperm", "manual_seed", "get_rng_state", "set_rng_state"]),
        (torch, ["is_nonzero"]),
        (random, ["random", "seed", "getrandbits"]),
        (np.random, ["rand", "seed"]),
        (gc, ["collect", "freeze", "disable", "enable", "set_threshold"]),
        (time, ["sleep"]),
        (torch.distributed, ["all_reduce", "all_gather", "barrier", "broadcast", "all_gather_object"]),
    ]
    model, optimizer = seeded()
    data = models.loader(300)
    replaced = []
    for owner, names in watched:
        for name in names:
            replaced.append((owner, name, getattr(owner, name)))
            setattr(owner, name, counting(f"{owner.__name__}.{name}", getattr(owner, name)))
    try:
        losses = models.train(model, optimizer, data)
    finally:
        for owner, name, inner in replaced:
            setattr(owner, name, inner)
    return [told(model, losses), [c for c in calls if c != "torch.cuda.is_available"]]


if __name__ == "__main__":
    checks.run(globals())
