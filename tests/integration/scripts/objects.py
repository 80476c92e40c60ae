"""What a user's objects are after 60 plain steps: each check returns something to compare."""

import copy
import hashlib
import inspect
import io
import json
import os
import pickle
import pickletools
import subprocess
import sys
import tempfile
import threading
import types
import warnings

import checks
import cloudpickle
import models
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Mine(torch.nn.Module):
    """Defined in ``__main__``: pickled by value by cloudpickle."""

    def __init__(self):
        super().__init__()
        self.body = models.Inner()
        self.out = torch.nn.Linear(8, 1)

    def forward(self, x, scale: float = 1.0):
        return self.out(self.body(x)) * scale


class OwnCall(torch.nn.Module):
    """Overrides ``__call__``, as some libraries do."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(8, 1)
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return super().__call__(x)

    def forward(self, x):
        return self.out(x)


class MyOptimizer(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


class MyLoader(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield [t * 2 for t in batch]


class Endless(IterableDataset):
    def __iter__(self):
        for i in range(12):
            yield torch.full((8,), float(i))


ORIGINAL_LR = 0.01
MODEL, NET, OWN = Mine(), models.Net(), OwnCall()
X = torch.randn(4, 8)
for trained in (MODEL, NET, OWN):
    OPTIMIZER = torch.optim.AdamW(trained.parameters(), lr=ORIGINAL_LR)
    models.train(trained, OPTIMIZER, models.loader())
for model in (MODEL, NET, OWN):
    model.eval()
    model.zero_grad(set_to_none=True)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def numbers(tensor):
    return [v.hex() for v in tensor.detach().flatten().tolist()]


def elsewhere(program, *args):
    """Run a program in a process that can't import TraceML and knows nothing of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(
            "import sys, importlib.util\n"
            "sys.path[:] = [p for p in sys.path if not p.rstrip('/').endswith('/src')]\n"
            "assert importlib.util.find_spec('traceml_ai') is None\n" + program
        )
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEML", "PYTHONPATH"))}
    ended = subprocess.run(
        [sys.executable, file.name, *args], env=environ, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    return json.loads(ended.stdout)


def check_pickles_load_where_traceml_is_not_installed():
    folder = tempfile.mkdtemp()
    x = torch.ones(2, 8)
    with open(f"{folder}/by_value", "wb") as file:
        cloudpickle.dump((MODEL, Mine, OwnCall, MyOptimizer, OWN, x), file)
    torch.save(NET, f"{folder}/net.pt")
    with open(f"{folder}/net.pickle", "wb") as file:
        pickle.dump((NET, x), file)
    program = """
import json, pickle, torch
folder, models = sys.argv[1:]
sys.path.insert(0, models)
model, Mine, OwnCall, MyOptimizer, own, x = pickle.load(open(folder + "/by_value", "rb"))
hexes = lambda t: [v.hex() for v in t.flatten().tolist()]
out = [hexes(model(x)), hexes(own(x)), own.calls]
torch.manual_seed(1)
for kind in (Mine, OwnCall):
    fresh = kind()
    optimizer = MyOptimizer(fresh.parameters(), lr=0.1)
    for _ in range(3):
        loss = fresh(x).square().sum(); loss.backward(); optimizer.step()
        out.append(loss.item().hex())
net = torch.load(folder + "/net.pt", weights_only=False)
again, _ = pickle.load(open(folder + "/net.pickle", "rb"))
out += [hexes(net(x)), hexes(again(x)), sorted(net.__dict__), [m for m in sys.modules if "traceml" in m]]
print(json.dumps(out))
"""
    return elsewhere(program, folder, os.path.dirname(os.path.abspath(models.__file__)))


def check_pickle_writes_the_same_names():
    """Not the same bytes: torch writes the addresses of storages."""
    out = []
    for thing in (MODEL, NET, OWN, OPTIMIZER, models.loader()):
        data = pickle.dumps(thing)
        names = [a for _, a, _ in pickletools.genops(data) if isinstance(a, str)]
        out.append([names, b"traceml" in data])
    return out


def check_state_dict_writes_the_same_bytes():
    buffer = io.BytesIO()
    torch.save(MODEL.state_dict(), buffer)
    return digest(buffer.getvalue())


def check_a_deep_copy_with_zeroed_weights_gives_zero():
    out = []
    for model in (MODEL, NET, OWN):
        twin = copy.deepcopy(model)
        for p in twin.parameters():
            torch.nn.init.zeros_(p)
        out.append([type(twin) is type(model), numbers(twin(X)), numbers(model(X))])
    return out


def check_attributes_of_instances():
    loader = models.loader()
    iterator = iter(loader)
    things = (MODEL, OWN, OPTIMIZER, loader, iterator)
    return [[sorted(vars(t)), dir(t), repr(type(t)), [repr(c) for c in type(t).__mro__]] for t in things]


def check_isinstance_and_identity_of_types():
    return [
        isinstance(MODEL, Mine),
        type(MODEL) is Mine,
        isinstance(OPTIMIZER, torch.optim.Optimizer),
        isinstance(iter(models.loader()), torch.utils.data.dataloader._SingleProcessDataLoaderIter),
        isinstance(models.loader(), DataLoader),
        issubclass(MyOptimizer, torch.optim.SGD),
    ]


def check_state_dict_keys():
    return [list(MODEL.state_dict()), list(OPTIMIZER.state_dict()), [n for n, _ in MODEL.named_modules()]]


def check_the_loader_iterator_has_a_length_and_starts_once():
    loader = models.loader()
    iterator = iter(loader)
    next(iterator)
    return [len(iterator), len(loader), iter(iterator) is iterator, type(iterator).__name__]


def check_loader_subclass_with_its_own_iter():
    loader = MyLoader(TensorDataset(torch.arange(12.0)), batch_size=5)
    return [[b[0].tolist() for b in loader], len(loader), inspect.isgenerator(iter(loader))]


def check_iterable_dataset_without_a_length():
    loader = DataLoader(Endless(), batch_size=5)
    try:
        length = len(loader)
    except TypeError as error:
        length = str(error)
    return [[b[:, 0].tolist() for b in loader], length]


def check_copies_of_a_loader_and_an_optimizer():
    loader = copy.deepcopy(models.loader(3))
    shallow = copy.copy(loader)
    model, optimizer = copy.deepcopy((MODEL, OPTIMIZER))
    before = numbers(next(iter(MODEL.parameters())))
    model(X).sum().backward()
    optimizer.step()
    return [
        [b[0].sum().item().hex() for b in loader],
        [b[0].sum().item().hex() for b in shallow],
        before == numbers(next(iter(MODEL.parameters()))),
        [numbers(p) for p in model.parameters()],
        [
            [k, v if not torch.is_tensor(v) else numbers(v)]
            for s in optimizer.state_dict()["state"].values()
            for k, v in s.items()
        ],
    ]


def check_signature_of_a_model():
    return _described({"model": MODEL, "call": type(MODEL).__call__, "bound": MODEL.__call__, "own": OWN})


def check_signatures_of_torch():
    things = {
        "module_call": torch.nn.Module.__call__,
        "iter": DataLoader.__iter__,
        "bound_iter": models.loader().__iter__,
        "next": torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        "step": torch.optim.AdamW.step,
        "bound_step": OPTIMIZER.step,
        "my_step": MyOptimizer.step,
        "scaler": torch.amp.GradScaler.step,
        "save": torch.save,
        "backward": torch.autograd.backward,
        "grad": torch.autograd.grad,
        "tensor_backward": torch.Tensor.backward,
    }
    return _described(things)


def _described(things):
    out = {}
    for name, thing in things.items():
        out[name] = [
            str(inspect.signature(thing)),
            getattr(thing, "__name__", None),
            getattr(thing, "__qualname__", None),
            getattr(thing, "__module__", None),
            digest((inspect.getdoc(thing) or "").encode()),
        ]
    return out


def check_source_code_of_replaced_functions():
    things = (torch.save, torch.autograd.backward, DataLoader.__iter__, torch.optim.AdamW.step)
    return [inspect.getsource(t) for t in things]


def check_scripting():
    return [torch.jit.script(m).code for m in (NET, MODEL, copy.deepcopy(NET))] + [
        numbers(torch.jit.script(NET)(X)),
        torch.jit.script(torch.nn.Sequential(copy.deepcopy(NET))).code,
    ]


def check_scripting_saves_and_loads():
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(NET), buffer)
    return numbers(torch.jit.load(io.BytesIO(buffer.getvalue()))(X))


def check_jit_tracing():
    traced = torch.jit.trace(NET, X)
    return [traced.code, str(traced.graph), numbers(traced(X))]


def check_fx_tracing():
    traced = torch.fx.symbolic_trace(NET)
    outer = torch.fx.symbolic_trace(torch.nn.Sequential(NET, torch.nn.Tanh()))
    return [traced.code, [str(n) for n in traced.graph.nodes], outer.code, numbers(traced(X))]


def check_fx_keeps_a_leaf_module():
    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, models.Net)

    graph = Leaves().trace(torch.nn.Sequential(NET, torch.nn.Tanh()))
    return [[n.op, str(n.target).split(" at ")[0]] for n in graph.nodes]


def check_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(lambda x: NET(x).sum())(X).code


def check_functional_calls():
    from torch.func import functional_call, grad, jacrev, vmap

    parameters = dict(NET.named_parameters())

    def loss(p, x):
        return functional_call(NET, p, (x,)).square().sum()

    grads = grad(loss)(parameters, X)
    each = vmap(grad(loss), in_dims=(None, 0))(parameters, X)
    jacobian = jacrev(lambda x: NET(x))(X)
    return [
        {k: numbers(v) for k, v in grads.items()},
        {k: digest(str(numbers(v)).encode()) for k, v in each.items()},
        numbers(jacobian),
        numbers(vmap(NET)(X.unsqueeze(0))),
    ]


def check_double_backward_and_gradient_penalty():
    x = X.clone().requires_grad_()
    y = NET(x).square().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    penalty = (g.norm(dim=1) - 1).square().mean()
    penalty.backward()
    out = [numbers(p.grad) for p in NET.parameters() if p.grad is not None]
    NET.zero_grad(set_to_none=True)
    hessian = torch.autograd.functional.hessian(lambda v: NET(v).square().sum(), X[:1])
    return [out, numbers(hessian), numbers(x.grad)]


def check_custom_autograd_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                (inner,) = torch.autograd.grad((y * 2).sum(), y)
            return g * inner

    x = torch.ones(3, requires_grad=True)
    Double.apply(x).sum().backward()
    return [
        numbers(x.grad),
        torch.autograd.gradcheck(Double.apply, (torch.rand(2, dtype=torch.double, requires_grad=True),)),
    ]


def check_backward_arguments():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.backward(torch.ones(3), retain_graph=True)
    y.backward(gradient=torch.ones(3), inputs=[x])
    torch.autograd.backward([x.sum(), (x * 3).sum()])
    out = torch.autograd.grad(outputs=(x * x).sum(), inputs=[x], allow_unused=True)
    try:
        torch.autograd.backward(y)
    except RuntimeError as error:
        message = str(error)
    return [numbers(x.grad), numbers(out[0]), message]


def check_hooks_of_the_user():
    seen = []
    model = copy.deepcopy(MODEL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_forward_pre_hook(lambda m, a: seen.append("pre"))
    model.register_forward_hook(lambda m, a, o: seen.append("forward"))
    model.register_full_backward_hook(lambda m, gi, go: seen.append("backward"))
    optimizer.register_step_pre_hook(lambda o, a, k: seen.append(["before step", len(a), len(k)]))
    optimizer.register_step_post_hook(lambda o, a, k: seen.append("after step"))
    everywhere = torch.nn.modules.module.register_module_forward_hook(
        lambda m, a, o: seen.append(type(m).__name__)
    )
    model(X).sum().backward()
    optimizer.step()
    everywhere.remove()
    return seen


def _scheduler_warnings(order):
    model = models.Net()
    optimizer = MyOptimizer(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for word in order:
            model(X).sum().backward()
            (optimizer if word == "o" else scheduler).step()
    return [[str(w.message), os.path.basename(w.filename)] for w in caught] + [
        optimizer.param_groups[0]["lr"]
    ]


def check_scheduler_warns_about_the_wrong_order_only():
    return [_scheduler_warnings("osos"), _scheduler_warnings("soso"), _scheduler_warnings("os")]


def check_warnings_point_at_the_users_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward(create_graph=True)
        torch.nn.functional.mse_loss(torch.ones(2, 1), torch.ones(2))
    return [[str(w.message)[:60], os.path.basename(w.filename)] for w in caught]


def check_warnings_from_inside_a_backward_point_at_the_users_line():
    model = copy.deepcopy(NET)
    model.register_full_backward_hook(lambda m, gi, go: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(X).sum().backward()
    return [[str(w.message)[:60], os.path.basename(w.filename)] for w in caught]


def check_overriding_forward_and_class_on_an_instance():
    model = copy.deepcopy(NET)
    model.forward = types.MethodType(lambda self, x: x.sum() * 2, model)
    other = copy.deepcopy(NET)

    class Other(models.Net):
        def forward(self, x):
            return super().forward(x) + 1

    other.__class__ = Other
    return [model(X).item().hex(), numbers(other(X)), numbers(models.Net.__call__(NET, X))]


def check_patching_module_call_by_the_user():
    calls = []
    original = torch.nn.Module.__call__

    def mine(self, *args, **kwargs):
        calls.append(type(self).__name__)
        return original(self, *args, **kwargs)

    torch.nn.Module.__call__ = mine
    try:
        NET(X)
        MODEL(X)
    finally:
        torch.nn.Module.__call__ = original
    return calls


def check_parametrized_and_pruned_models():
    from torch.nn.utils import parametrizations, prune

    model = copy.deepcopy(NET)
    parametrizations.weight_norm(model.out)
    prune.l1_unstructured(model.inner.a, "weight", 0.5)
    first = numbers(model(X))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    return [first, models.train(model, optimizer, models.loader(5)), list(model.state_dict())]


def check_a_dead_optimizer_and_model_are_freed():
    import gc
    import weakref

    model = models.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = models.loader(30)
    models.train(model, optimizer, loader)
    references = [weakref.ref(t) for t in (model, optimizer, loader, loader.dataset, model.out.weight)]
    del model, optimizer, loader
    gc.collect()
    return [r() is None for r in references]


def check_the_last_batch_is_freed():
    import weakref

    gone = []
    model = models.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in models.loader(40):
        optimizer.zero_grad()
        out = model(x)
        loss = (out - y).square().mean()
        loss.backward()
        optimizer.step()
        references = [weakref.ref(t) for t in (x, y, out, loss)]
        del x, y, out, loss
        gone.append([r() is None for r in references])
    return gone


def check_modules_and_path():
    ours = sorted(m for m in sys.modules if m.split(".")[0] not in ("traceml_ai", "_traceml_torch_import"))
    return [ours, sys.path, [repr(type(f)) for f in sys.meta_path], len(sys.path_hooks)]


def check_threads_and_children():
    tasks = len(os.listdir("/proc/self/task"))
    return [threading.active_count(), tasks, sorted(t.name for t in threading.enumerate())]


def check_collector_settings_and_switches():
    import gc
    import signal

    return [
        gc.get_threshold(),
        gc.isenabled(),
        gc.get_debug(),
        sys.getswitchinterval(),
        sys.getrecursionlimit(),
        sys.gettrace() is None,
        sys.getprofile() is None,
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
        [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)],
        [
            len(getattr(torch.nn.modules.module, n))
            for n in ("_global_forward_hooks", "_global_backward_hooks")
        ],
        len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks),
        torch.overrides._get_current_function_mode() is None,
        os.umask(0o022),
        os.getcwd() != "",
        threading.excepthook is threading.__excepthook__,
        sys.unraisablehook is sys.__unraisablehook__,
        torch.rand(1).item().hex(),
    ]


def check_no_dictionary_is_made_of_an_objects_attributes():
    """Asking for an object's ``__dict__`` makes CPython slower with it from then on."""
    import gc

    model = models.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = models.loader()
    iterator = iter(loader)
    models.train(model, optimizer, loader)
    next(iterator)
    mine = (optimizer, loader, iterator, loader.dataset, loader.sampler, loader.batch_sampler)
    return [(type(thing).__name__, len(gc.get_referents(thing))) for thing in mine]


def check_recursion_is_as_deep():
    """A model called inside a deep recursion must not hit the limit earlier than it would."""
    model = copy.deepcopy(NET)

    def deep(n):
        return model(X) if n == 0 else deep(n - 1)

    return [numbers(deep(800))]


if __name__ == "__main__":
    checks.run(globals())
