"""Makes each part of TraceML fail in turn while plain and marked steps are trained."""

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

import models
import torch

import traceml_ai as traceml
from traceml_ai.probe import session as sessions
from traceml_ai.spool.writer import StepLogWriter

sys.path.append(str(Path(__file__).parents[2]))

import spoiled

torch.set_num_threads(1)


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


if __name__ == "__main__":
    importlib.import_module("torch._dynamo")
    session = sessions.current
    owners = (type(session.st), sessions.Session, type(session.models), StepLogWriter, sessions.Facts)
    spoiled.main(training, owners)
