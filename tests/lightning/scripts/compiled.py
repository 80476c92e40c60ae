"""Compiled modules: as a child, and the whole LightningModule. A backend that compiles nothing is enough."""

import time

import torch
from _kit import L, Small, case, fit, loader, main, nn, seen


@torch.compiler.disable
def wait():
    time.sleep(0.01)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        wait()
        return self.body(x)


@case
def a_compiled_child_is_measured_at_its_outer_call():
    class Child(Small):
        def __init__(self):
            super().__init__()
            self.net = torch.compile(Net(), backend="eager")
            self.head = nn.Linear(3, 3)

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.cross_entropy(self.head(self.net(x)), y)

    model = Child()
    fit(model, loader(6))
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert all(t > 10e6 for t in s.column("forward_ns"))
        assert min(s.column("forward_ns")) < 16e6
    return model.result()


@case
def a_compiled_module_is_measured_at_its_outer_call():
    model = Small()
    model.net = Net()
    one = L.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    one.fit(torch.compile(model, backend="eager"), loader(6))
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert all(t > 10e6 for t in s.column("forward_ns"))
    return model.result()


@case
def a_class_that_is_measured_compiles_into_one_graph():
    class Linears(Small):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.net = torch.compile(
                nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), fullgraph=True, backend="eager"
            )

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.cross_entropy(self.net(self.first(x)), y)

    model = Linears()
    fit(model, loader(6))
    s = seen()
    if s:
        assert all(t > 0 for t in s.column("forward_ns"))
    return [model.result(), torch._dynamo.utils.counters["stats"].get("unique_graphs")]


main()
