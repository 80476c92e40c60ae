"""Makes each part of TraceML fail in turn, in forked processes, while a model is trained."""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import sys

import models
import torch

import traceml_ai as traceml
from traceml_ai.probe import session as sessions
from traceml_ai.spool.writer import StepLogWriter

torch.set_num_threads(1)


def boom(*_args, **_kwargs):
    raise RuntimeError("injected")


def training():
    """Everything that is timed: plain and marked steps, validation, saving, scaling, collecting."""
    torch.manual_seed(0)
    model = models.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    out = models.train(model, optimizer, models.loader(30, shuffle=True))
    with torch.no_grad():
        for x, _ in models.loader(3):
            out.append(model(x).sum().item().hex())
    for x, y in traceml.wrap_dataloader_fetch(list(models.loader(5))):
        optimizer.zero_grad()
        scaler.scale((model(x) - y).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.save(model.state_dict(), os.devnull)
    gc.collect()
    for x, y in models.loader(30):
        with traceml.trace_step(model), traceml.phase("all"):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            gc.collect(0)
            with contextlib.suppress(RuntimeError):
                model(x[:, :3])
            optimizer.step()
        out.append(loss.item().hex())
    out += models.train(model, optimizer, models.loader(10))
    out.append(torch.rand(1).item().hex())
    return out


def spoil(owner, name):
    """Make a method fail: what a guard guards, where it is guarded; else the method itself."""
    method = vars(owner)[name]
    guarded = getattr(method, "__wrapped__", None)
    if guarded is None:
        setattr(owner, name, boom)
        return
    for cell in method.__closure__:
        if cell.cell_contents is guarded:
            cell.cell_contents = boom


GUARDS = {"fail", "turn_off", "warn", "finish", "enter_safely", "leave_safely"}


def places():
    """Name and owner of everything that runs in the training process."""
    found = {}
    for owner in (type(sessions.current.st), sessions.Session, StepLogWriter, sessions.Facts):
        for kind in owner.__mro__[:-1]:
            for name, value in vars(kind).items():
                if callable(value) and not name.startswith("__") and name not in GUARDS:
                    found[f"{owner.__name__}.{name}"] = (kind, name)
    return found


def child(folder, name, before):
    with open(f"{folder}/{name}.stderr", "w") as file:
        os.dup2(file.fileno(), 2)
    before()
    try:
        out = training()
    except BaseException as error:
        out = repr(error)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    with open(f"{folder}/{name}.out", "w") as file:
        json.dump(out, file)
    warnings = sessions.current.facts.values["warnings"]
    with open(f"{folder}/{name}.warnings", "w") as file:
        json.dump(warnings, file)
    os._exit(0)


def main():
    folder = os.path.dirname(sys.argv[1])
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()  # a hundred children need not look through torch's own objects
    spoils = {"nothing": lambda: None}
    for name, (owner, attribute) in places().items():
        spoils[name] = functools.partial(spoil, owner, attribute)
    for name, before in spoils.items():
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            child(folder, name, before)
        os.waitpid(pid, 0)
    found = {}
    for name in spoils:
        found[name] = {}
        for part in ("out", "warnings"):
            try:
                with open(f"{folder}/{name}.{part}") as file:
                    found[name][part] = json.load(file)
            except FileNotFoundError:
                found[name][part] = None
        with open(f"{folder}/{name}.stderr") as file:
            found[name]["stderr"] = file.read()
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
