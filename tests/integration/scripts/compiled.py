"""Compilers see the same program: as many graphs, as many recompilations, the same code in them."""

import copy
import logging

import checks
import models
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
logging.disable(logging.WARNING)

NET = models.Net()
OPTIMIZER = torch.optim.SGD(NET.parameters(), lr=0.01)
models.train(NET, OPTIMIZER, models.loader())
NET.eval()
X = torch.randn(4, 8)


class Seen:
    """A backend that keeps the code of every graph it is given."""

    def __init__(self):
        self.graphs = []
        self.inputs = []

    def __call__(self, graph, _inputs):
        nodes = graph.graph.nodes
        self.graphs.append([str(n.target).split(" at ")[0] for n in nodes if n.op != "placeholder"])
        self.inputs.append([str(n.target) for n in nodes if n.op == "placeholder"])
        return graph.forward


def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return copy.deepcopy(NET).train(), Seen()


def told(seen, losses, *, frames=True):
    """What the compiler did; where TraceML has frames of its own below compiled code they may count."""
    counters = torch._dynamo.utils.counters
    return {
        "graphs": seen.graphs if isinstance(seen, Seen) else None,
        "losses": losses,
        "stats": dict(counters["stats"]),
        "breaks": sum(counters["graph_break"].values()),
        "frames": dict(counters["frames"]) if frames else None,
    }


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def check_compiled_model():
    model, seen = fresh()
    compiled = torch.compile(model, backend=seen)
    return told(seen, models.train(compiled, optimizer_of(model), models.loader(30)))


def check_names_of_a_compiled_models_inputs():
    model, seen = fresh()
    models.train(torch.compile(model, backend=seen), optimizer_of(model), models.loader(8))
    return seen.inputs


def check_compiled_model_in_one_graph():
    model, seen = fresh()
    compiled = torch.compile(model, backend=seen, fullgraph=True)
    return told(seen, models.train(compiled, optimizer_of(model), models.loader(30)))


def check_compiled_model_with_changing_shapes():
    model, seen = fresh()
    compiled = torch.compile(model, backend=seen)
    out = []
    for size in (4, 7, 9, 4, 11):
        out += models.train(compiled, optimizer_of(model), models.loader(8, size))
        compiled.eval()
        with torch.no_grad():
            out.append(compiled(torch.ones(size, 8)).sum().item().hex())
        compiled.train()
    return told(seen, out)


def check_compiled_with_aot_eager():
    model, _ = fresh()
    compiled = torch.compile(model, backend="aot_eager")
    return told("aot_eager", models.train(compiled, optimizer_of(model), models.loader(20)))


def check_compiled_submodule():
    model, seen = fresh()
    model.inner = torch.compile(model.inner, backend=seen, fullgraph=True)
    return told(seen, models.train(model, optimizer_of(model), models.loader(30)))


def check_compiled_in_place():
    model, seen = fresh()
    model.compile(backend=seen, fullgraph=True)
    return told(seen, models.train(model, optimizer_of(model), models.loader(30)))


def check_compiled_in_the_middle_of_training():
    model, seen = fresh()
    optimizer = optimizer_of(model)
    out = models.train(model, optimizer, models.loader(40))
    compiled = torch.compile(model, backend=seen, fullgraph=True)
    return told(seen, out + models.train(compiled, optimizer, models.loader(40)))


def check_compiled_function_that_calls_the_model():
    model, seen = fresh()

    def loss_of(x, y):
        return (model(x) - y).square().mean()

    compiled = torch.compile(loss_of, backend=seen, fullgraph=True)
    optimizer = optimizer_of(model)
    out = models.train(model, optimizer, models.loader(40))  # measured before it is compiled
    for x, y in models.loader(30):
        optimizer.zero_grad()
        loss = compiled(x, y)
        loss.backward()
        optimizer.step()
        out.append(loss.item().hex())
    return told(seen, out)


def check_compiled_function_with_two_models():
    model, seen = fresh()
    other = copy.deepcopy(model)
    parameters = [*model.parameters(), *other.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    compiled = torch.compile(lambda x: model(x) + other(x), backend=seen, fullgraph=True)
    return told(seen, models.train(compiled, optimizer, models.loader(30)))


def check_compiled_optimizer_step():
    model, seen = fresh()
    optimizer = optimizer_of(model)
    step = torch.compile(optimizer.step, backend=seen)
    out = []
    for x, y in models.loader(30):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        step()
        out.append(loss.item().hex())
    return told(seen, out)


def check_compiled_whole_step():
    model, seen = fresh()
    optimizer = optimizer_of(model)

    @torch.compile(backend=seen)
    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return told(seen, [step(x, y).item().hex() for x, y in models.loader(30)])


def check_compiled_function_with_autograd_grad():
    model, seen = fresh()
    models.train(model, optimizer_of(model), models.loader(30))

    def penalty(x):
        return torch.autograd.grad(model(x).sum(), x, create_graph=False)[0].norm()

    compiled = torch.compile(penalty, backend=seen)
    return told(seen, [compiled(torch.ones(2, 8, requires_grad=True)).item().hex() for _ in range(3)])


def check_autograd_inside_one_graph():
    """Traced as a whole where the compiler is told that it may."""
    model, seen = fresh()
    models.train(model, optimizer_of(model), models.loader(30))

    def penalty(x):
        return torch.autograd.grad(model(x).sum(), x)[0].norm().detach()

    def both(x):
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        x = torch.ones(2, 8, requires_grad=True)
        out = [torch.compile(f, backend=seen, fullgraph=True)(x).item().hex() for f in (penalty, both)]
    return told(seen, out)


def check_disabled_function():
    model, seen = fresh()
    models.train(model, optimizer_of(model), models.loader(30))
    inner = torch._dynamo.disable(model.inner)

    def run(x):
        return inner(x).sum() + 1

    return told(seen, [torch.compile(run, backend=seen)(X).item().hex()])


def check_export():
    model = copy.deepcopy(NET)
    models.train(model, optimizer_of(model), models.loader(30))
    exported = torch.export.export(model.eval(), (X,))
    return [str(exported.graph), list(exported.state_dict), exported.module()(X).sum().item().hex()]


def check_export_with_dynamic_shapes():
    model = copy.deepcopy(NET).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model, (X,), dynamic_shapes={"x": {0: batch}}, strict=True)
    return [str(exported.graph), exported.module()(torch.ones(9, 8)).sum().item().hex()]


def check_explain():
    model, _ = fresh()
    models.train(model, optimizer_of(model), models.loader(30))
    found = torch._dynamo.explain(model)(X)
    return [found.graph_count, found.graph_break_count, found.op_count]


if __name__ == "__main__":
    checks.run(globals())
