"""Loops that people reported, each in a forked process with a step log of its own. A user's code."""

import atexit
import copy
import importlib
import json
import os
import pickle
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

import traceml
import traceml_ai

torch.set_num_threads(1)
torch.manual_seed(0)


class Slow(Dataset):
    """Items that take their time."""

    def __init__(self, count, ms):
        self.count, self.ms = count, ms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.ms / 1000)
        return torch.ones(64) * (index % 3), index % 10


def net():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def _accumulate(k):
    """32 microbatches of four items, 10 ms each."""
    model, optimizer = net()
    for i, (x, y) in enumerate(DataLoader(Slow(128, 2.5), batch_size=4), 1):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if i % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def loop_accumulate_1():
    _accumulate(1)


def loop_accumulate_2():
    _accumulate(2)


def loop_accumulate_4():
    _accumulate(4)


def loop_accumulate_8():
    _accumulate(8)


def loop_retry_with_half_a_batch():
    """Every fifth step fails after 60 ms, as if memory had run out, and is made again in two halves."""
    model, optimizer = net()
    for i, (x, y) in enumerate(DataLoader(Slow(400, 0.2), batch_size=8)):
        try:
            optimizer.zero_grad()
            scores = model(x)
            if i % 5 == 4:
                time.sleep(0.06)
                raise MemoryError
        except MemoryError:
            for half in (slice(0, 4), slice(4, 8)):
                torch.nn.functional.cross_entropy(model(x[half]), y[half]).backward()
            optimizer.step()
        else:
            torch.nn.functional.cross_entropy(scores, y).backward()
            optimizer.step()


def loop_retry_in_marked_steps():
    model, optimizer = net()
    for i, (x, y) in enumerate(DataLoader(Slow(400, 0.2), batch_size=8)):
        for attempt in range(2):
            try:
                with traceml.trace_step(model):
                    if i % 5 == 4 and attempt == 0:
                        time.sleep(0.06)
                        raise MemoryError
                    update(model, optimizer, x, y)
                break
            except MemoryError:
                x, y = x[:4], y[:4]


def loop_wall_clock_set_back():
    """Somebody sets the clock back by an hour, again and again."""
    real, calls = time.time, 0

    def earlier():
        nonlocal calls
        calls += 1
        return real() - 3600 * calls

    time.time = earlier
    time.time_ns = lambda: int(earlier() * 1e9)
    model, optimizer = net()
    for x, y in DataLoader(Slow(240, 0.5), batch_size=4):
        update(model, optimizer, x, y)


def _named(model, optimizer, other):
    for x, y in DataLoader(Slow(240, 0.2), batch_size=4):
        with traceml.trace_step(other):
            update(model, optimizer, x, y)


def loop_a_copy_is_named():
    """The step is told of a copy that nobody trains."""
    model, optimizer = net()
    _named(model, optimizer, copy.deepcopy(model))


def loop_another_kind_of_model_is_named():
    """The step is told of a model that nobody calls."""
    _named(*net(), torch.nn.Linear(3, 3))


def loop_nothing_is_trained():
    with torch.no_grad():
        model, _ = net()
        for x, _ in DataLoader(Slow(40, 0), batch_size=4):
            model(x)


def _evaluating(every):
    model, optimizer = net()
    held_out = DataLoader(Slow(4, 10), batch_size=4)
    for i, (x, y) in enumerate(DataLoader(Slow(160, 1), batch_size=4)):
        model.train()
        update(model, optimizer, x, y)
        if i % 2 == 1 and every:
            model.eval()
            with torch.no_grad():
                for u, _ in held_out:
                    model(u)


def loop_without_evaluation():
    _evaluating(every=False)


def loop_evaluating_after_every_second_step():
    _evaluating(every=True)


def loop_set_up_again_and_again():
    """As cells of a notebook that are run again."""
    for _ in range(3):
        traceml.init(mode="auto")
    importlib.reload(traceml)
    importlib.reload(traceml_ai)
    traceml_ai.init(mode="auto")
    model, optimizer = net()
    for x, y in DataLoader(Slow(240, 0), batch_size=4):
        update(model, optimizer, x, y)
    traceml.summary()


def loop_public_objects_are_pickled():
    for name in traceml.__all__:
        assert pickle.loads(pickle.dumps(getattr(traceml, name))) is getattr(traceml, name), name


def loop_one_rank_stops_early():
    """The program's own collectives stay the only ones."""
    import torch.distributed as dist

    called = []
    for name in ("all_reduce", "all_gather", "broadcast", "barrier", "all_gather_object", "gather"):
        real = getattr(dist, name)
        setattr(
            dist, name, lambda *args, _real=real, _name=name, **more: called.append(_name) or _real(*args)
        )
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model, optimizer = net()
    for x, y in DataLoader(Slow(120, 0), batch_size=4):
        update(model, optimizer, x, y)
    traceml.summary()
    assert called == [], called
    dist.destroy_process_group()


def main():
    folder = os.path.dirname(sys.argv[1])
    found = {}
    importlib.import_module("torch._dynamo")  # the first optimizer would, in each child
    for name, loop in list(globals().items()):
        if not name.startswith("loop_"):
            continue
        sys.stdout.flush()
        child = os.fork()
        if not child:
            code = 0
            try:
                loop()
            except BaseException as error:
                code, sys.last_value = 1, error
                sys.excepthook(type(error), error, error.__traceback__)
            atexit._run_exitfuncs()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        found[name[5:]] = [child, os.waitstatus_to_exitcode(status)]
    if "TRACEML_SPOOL" in os.environ:
        import shutil

        shutil.copytree(os.environ["TRACEML_SPOOL"], f"{folder}/spool")
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
