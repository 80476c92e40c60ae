"""Ends in many ways, each in a forked process that goes all the way to the interpreter's end."""

import gc
import importlib
import json
import os
import signal
import sys
import traceback

import models
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
AT = 45


class Bad(Dataset):
    """Fails at one sample."""

    def __len__(self):
        return 240

    def __getitem__(self, i):
        if i == AT * 4:
            raise ValueError(f"sample {i} is bad")
        return torch.ones(8), torch.ones(1)


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("bad backward")


class BadModel(models.Net):
    def __init__(self, error):
        super().__init__()
        self.calls, self.error = 0, error

    def forward(self, x):
        self.calls += 1
        if self.calls == AT:
            raise self.error
        return super().forward(x)


class BadOptimizer(torch.optim.SGD):
    calls = 0

    def step(self, closure=None):
        self.calls += 1
        if self.calls == AT:
            raise ZeroDivisionError("bad step")
        return super().step(closure)


def train(model=None, optimizer=None, data=None, at=lambda: None, loss=None):
    model = model or models.Net()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)
    for i, (x, y) in enumerate(data or models.loader(60)):
        if i == AT:
            at()
        optimizer.zero_grad()
        out = model(x)
        ((out - y).square().mean() if loss is None or i < AT else loss(out, y)).backward()
        optimizer.step()


def end_forward():
    train(BadModel(ValueError("bad forward")))


def end_forward_with_a_cause():
    error = ValueError("bad forward")
    error.__cause__ = KeyError("cause")
    train(BadModel(error))


def end_while_handling_another():
    try:
        train(BadModel(ValueError("first")))
    except ValueError:
        train(BadModel(RuntimeError("second")))


def end_backward():
    train(loss=lambda out, y: BadBackward.apply(out).sum())


def end_backward_of_no_scalar():
    train(loss=lambda out, y: out)


def end_loss():
    train(loss=lambda out, y: out @ y @ out)


def end_optimizer():
    model = models.Net()
    train(model, BadOptimizer(model.parameters(), lr=1e-3))


def end_dataset():
    train(data=DataLoader(Bad(), batch_size=4))


def end_dataset_in_a_worker():
    train(data=DataLoader(Bad(), batch_size=4, num_workers=1))


def end_generator():
    def batches():
        yield from models.loader(AT)
        raise KeyError("no more")

    train(data=batches())


def end_interrupt():
    train(at=lambda: os.kill(os.getpid(), signal.SIGINT))


def end_interrupt_that_is_handled():
    try:
        train(BadModel(KeyboardInterrupt()))
    except KeyboardInterrupt:
        print("handled", file=sys.stderr)
        sys.exit(130)


def end_system_exit():
    train(at=lambda: sys.exit(3))


def end_system_exit_with_words():
    train(BadModel(SystemExit("words")))


def end_hard_exit():
    train(at=lambda: os._exit(7))


def end_terminated():
    train(at=lambda: os.kill(os.getpid(), signal.SIGTERM))


def end_killed():
    train(at=lambda: os.kill(os.getpid(), signal.SIGKILL))


def end_return():
    train()


def end_logged():
    """A program that formats the traceback itself: it may show where TraceML is in between."""
    try:
        train(BadModel(ValueError("logged")))
    except ValueError as error:
        lines = traceback.format_exception(error)
        print("".join(line for line in lines if "traceml" not in line), file=sys.stderr)


def end_users_hook():
    def hook(kind, error, trace):
        names = [frame.name for frame in traceback.extract_tb(trace)]
        print("mine", kind.__name__, error, names, file=sys.stderr)

    sys.excepthook = hook
    train(BadModel(ValueError("hooked")))


def end_users_hook_that_raises():
    def hook(kind, error, trace):
        raise LookupError("in the hook")

    sys.excepthook = hook
    train(BadModel(ValueError("hooked")))


def end_group():
    """Only where the interpreter has groups of exceptions."""
    if sys.version_info >= (3, 11):
        try:
            train(BadModel(ValueError("inner")))
        except ValueError as error:
            raise ExceptionGroup("several", [error]) from None  # noqa: F821
    raise SystemExit(1)


def end_recursion():
    def deep(n):
        return deep(n + 1)

    train(at=lambda: deep(0))


def main():
    folder = os.path.dirname(sys.argv[1])
    found = {}
    importlib.import_module("torch._dynamo")  # the first optimizer would, in each child
    gc.collect()
    gc.freeze()
    for name, end in list(globals().items()):
        if not name.startswith("end_"):
            continue
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            with open(f"{folder}/{name}.stderr", "w") as file:
                os.dup2(file.fileno(), 2)
            end()
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        with open(f"{folder}/{name}.stderr") as file:
            found[name] = [pid, os.waitstatus_to_exitcode(status), file.read()]
    if "TRACEML_SPOOL" in os.environ:
        import shutil

        shutil.copytree(os.environ["TRACEML_SPOOL"], f"{folder}/spool")
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
