"""Many loops, each in a forked process with a step log of its own; at the end the logs are kept."""

import atexit
import copy
import gc
import importlib
import json
import os
import shutil
import sys
import threading
import time

import models
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data import default_collate as collate

import traceml_ai as traceml
from traceml_ai.errors import UsageError

torch.set_num_threads(1)
N = 60


def loss_of(model, x, y):
    return (model(x) - y).square().mean()


def net(lr=1e-3):
    model = models.Net()
    return model, torch.optim.SGD(model.parameters(), lr=lr)


def data(batches=N, **more):
    return models.loader(batches, **more)


class Slow(Dataset):
    """Takes ``ms`` for each sample."""

    def __init__(self, n, ms):
        self.n, self.ms = n, ms

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.ms / 1000)
        return torch.ones(8) * (i % 3), torch.ones(1)


class Pause(nn.Module):
    """Sleeps on its way through."""

    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def forward(self, x):
        time.sleep(self.ms / 1000)
        return x


def loop_plain():
    models.train(*net(), data())


def _accumulate(k):
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        (loss_of(model, x, y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == N:
            optimizer.step()
            optimizer.zero_grad()


def loop_accumulate_2():
    _accumulate(2)


def loop_accumulate_4():
    _accumulate(4)


def loop_accumulate_8_with_a_short_last_group():
    _accumulate(8)


def loop_accumulate_without_a_loader():
    model, optimizer = net()
    whole = torch.randn(400, 8)
    for _ in range(15):
        for _ in range(4):
            at = torch.randint(0, 390, (4,))
            (loss_of(model, whole[at], 0) / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def loop_gan():
    generator, g = net()
    critic, d = net()
    for x, _ in data():
        d.zero_grad()
        fake = generator(x).expand(-1, 8)
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        d.step()
        g.zero_grad()
        critic(fake).mean().backward()
        g.step()


def loop_gan_with_two_backwards_for_the_critic():
    generator, g = net()
    critic, d = net()
    for x, _ in data():
        critic.zero_grad()
        critic(x).mean().backward()
        fake = generator(x).expand(-1, 8)
        (-critic(fake.detach()).mean()).backward()
        d.step()
        generator.zero_grad()
        critic(fake).mean().backward()
        g.step()


def loop_generator_every_fifth_batch():
    generator, g = net()
    critic, d = net()
    for i, (x, _) in enumerate(data()):
        d.zero_grad()
        fake = generator(x).expand(-1, 8)
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        d.step()
        if i % 5 == 4:
            g.zero_grad()
            critic(generator(x).expand(-1, 8)).mean().backward()
            g.step()


def loop_five_critic_updates_on_each_batch():
    generator, g = net()
    critic, d = net()
    for x, _ in data():
        for _ in range(5):
            d.zero_grad()
            (critic(x).mean() - critic(generator(x).detach().expand(-1, 8)).mean()).backward()
            d.step()
        g.zero_grad()
        critic(generator(x).expand(-1, 8)).mean().backward()
        g.step()


def loop_two_optimizers():
    model, first = net()
    second = torch.optim.Adam(model.out.parameters(), lr=1e-3)
    for x, y in data():
        model.zero_grad()
        loss_of(model, x, y).backward()
        first.step()
        second.step()


def loop_lbfgs():
    model, _ = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for x, y in data():

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            return loss

        optimizer.step(closure)


def loop_scaler_with_two_infinite_steps():
    model, optimizer = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, x, y) * (float("inf") if i in (5, 40) else 1)).backward()
        scaler.step(optimizer)
        scaler.update()


def loop_optimizer_that_works_every_fourth_call():
    class Every4(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls % 4 == 0:
                return super().step(closure)
            return None

    model, _ = net()
    optimizer = Every4(model.parameters(), lr=1e-3)
    for x, y in data():
        loss_of(model, x, y).backward()
        optimizer.step()


def loop_wrapper_that_steps_every_fourth_call():
    class Wrapper:
        def __init__(self, inner):
            self.inner, self.calls = inner, 0

        def step(self):
            self.calls += 1
            if self.calls % 4 == 0:
                self.inner.step()
                self.inner.zero_grad()

    model, inner = net()
    optimizer = Wrapper(inner)
    for x, y in data():
        loss_of(model, x, y).backward()
        optimizer.step()


def loop_update_by_hand():
    model = models.Net()
    for x, y in data():
        model.zero_grad()
        loss_of(model, x, y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-3 * p.grad


def loop_update_of_data_by_hand():
    model = models.Net()
    for x, y in data():
        model.zero_grad()
        loss_of(model, x, y).backward()
        for p in model.parameters():
            p.data -= 1e-3 * p.grad.data


def loop_raw_tensors():
    w = torch.zeros(8, 1, requires_grad=True)
    for x, y in data():
        loss = (x @ w - y).square().mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.01 * w.grad
        w.grad = None


def loop_raw_tensors_without_a_loader():
    w = torch.zeros(8, 1, requires_grad=True)
    whole = torch.randn(400, 8)
    for _ in range(N):
        x = whole[torch.randint(0, 400, (4,))]
        (x @ w).square().mean().backward()
        with torch.no_grad():
            w -= 0.01 * w.grad
        w.grad = None


def loop_autograd_grad_only():
    model = models.Net()
    parameters = list(model.parameters())
    for x, y in data():
        grads = torch.autograd.grad(loss_of(model, x, y), parameters)
        with torch.no_grad():
            for p, g in zip(parameters, grads, strict=True):
                p -= 1e-3 * g


def loop_gradient_penalty():
    model, optimizer = net()
    for x, y in data():
        x.requires_grad_()
        out = model(x)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        optimizer.zero_grad()
        ((out - y).square().mean() + g.square().sum()).backward()
        optimizer.step()


def loop_backward_twice_on_one_graph():
    model, optimizer = net()
    for x, y in data():
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()


def loop_batch_used_again_now_and_then():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        for _ in range(2 if i in (30, 50) else 1):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_batches_skipped():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        if i % 6 == 5:
            continue
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()


def loop_two_loaders_zipped():
    model, optimizer = net()
    for (x, y), (u, _) in zip(data(), data(), strict=True):
        optimizer.zero_grad()
        (loss_of(model, x, y) + model(u).square().mean()).backward()
        optimizer.step()


def loop_nested_loaders():
    model, optimizer = net()
    for x, y in data(6):
        for u, _ in data(10):
            optimizer.zero_grad()
            (loss_of(model, x, y) + model(u).square().mean()).backward()
            optimizer.step()


def loop_stream_without_length():
    class Stream(IterableDataset):
        def __iter__(self):
            for i in range(N * 4):
                yield torch.ones(8) * i / 99, torch.ones(1)

    models.train(*net(), DataLoader(Stream(), batch_size=4))


def loop_persistent_workers_over_five_epochs():
    model, optimizer = net()
    loader = data(12, num_workers=2, persistent_workers=True)
    for _ in range(5):
        models.train(model, optimizer, loader)


def loop_workers_that_start_again_each_epoch():
    model, optimizer = net()
    for _ in range(3):
        models.train(model, optimizer, data(20, num_workers=1))


def loop_next_by_hand():
    model, optimizer = net()
    loader = data(20)
    iterator = iter(loader)
    done = 0
    while done < N:
        try:
            x, y = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            x, y = next(iterator)
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        done += 1


def loop_one_batch_ahead():
    model, optimizer = net()
    iterator = iter(data())
    following = next(iterator)
    while following is not None:
        x, y = following
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        following = next(iterator, None)
        loss.backward()
        optimizer.step()


def _ahead(batches):
    """As Accelerate's loaders do: whether this is the last one is known by then."""
    iterator = iter(batches)
    following = next(iterator, None)
    while following is not None:
        now, following = following, next(iterator, None)
        yield now


def loop_short_epochs_fetched_ahead():
    model, optimizer = net()
    loader = data(5)
    for _ in range(12):
        for x, y in _ahead(loader):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_groups_of_short_epochs_fetched_ahead():
    model, optimizer = net()
    loader = data(5)
    for _ in range(12):
        for i, (x, y) in enumerate(_ahead(loader)):
            loss_of(model, x, y).backward()
            if i in (1, 3, 4):
                optimizer.step()
                optimizer.zero_grad()


def loop_gan_of_short_epochs_fetched_ahead():
    generator, g = net()
    critic, d = net()
    loader = data(5)
    for _ in range(12):
        for x, _ in _ahead(loader):
            d.zero_grad()
            (critic(x).mean() - critic(generator(x).detach().expand(-1, 8)).mean()).backward()
            d.step()
            g.zero_grad()
            critic(generator(x).expand(-1, 8)).mean().backward()
            g.step()


def loop_list_of_batches():
    models.train(*net(), list(data()))


def loop_validation_after_each_epoch():
    model, optimizer = net()
    valid = DataLoader(Slow(20, 2), batch_size=4)
    for _ in range(3):
        model.train()
        models.train(model, optimizer, data(20))
        model.eval()
        with torch.no_grad():
            for x, y in valid:
                loss_of(model, x, y)


def loop_validation_without_no_grad():
    model, optimizer = net()
    valid = DataLoader(Slow(20, 2), batch_size=4)
    for _ in range(3):
        model.train()
        models.train(model, optimizer, data(20))
        model.eval()
        for x, y in valid:
            loss_of(model, x, y).item()


def loop_validation_that_forgets_eval():
    model, optimizer = net()
    valid = DataLoader(Slow(20, 2), batch_size=4)
    for _ in range(3):
        models.train(model, optimizer, data(20))
        with torch.no_grad():
            for x, y in valid:
                loss_of(model, x, y)


def loop_validation_every_ten_steps():
    model, optimizer = net()
    valid = DataLoader(Slow(8, 2), batch_size=4)
    for i, (x, y) in enumerate(data()):
        model.train()
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        if i % 10 == 9:
            model.eval()
            with torch.inference_mode():
                for u, v in valid:
                    loss_of(model, u, v)


def loop_validation_inside_marked_steps():
    model, optimizer = net()
    valid = DataLoader(Slow(8, 2), batch_size=4)
    for i, (x, y) in enumerate(data()):
        with traceml.trace_step(model):
            model.train()
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
            if i % 10 == 9:
                model.eval()
                with torch.no_grad():
                    for u, v in valid:
                        loss_of(model, u, v)


def loop_slow_loader():
    models.train(*net(), DataLoader(Slow(240, 0.5), batch_size=4))


def loop_checkpointing_reentrant():
    _checkpointed(True)


def loop_checkpointing():
    _checkpointed(False)


def _checkpointed(reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(Pause(2), nn.Linear(8, 8), nn.Tanh())
            self.out = nn.Linear(8, 1)

        def forward(self, x):
            return self.out(checkpoint(self.inner, x, use_reentrant=reentrant))

    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in data(30):
        optimizer.zero_grad()
        loss_of(model, x.requires_grad_(), y).backward()
        optimizer.step()


class Nest(nn.Module):
    """Modules of one class inside one another."""

    def __init__(self, depth):
        super().__init__()
        self.inner = Nest(depth - 1) if depth > 1 else nn.Sequential(Pause(2), nn.Linear(8, 1))

    def forward(self, x):
        return self.inner(x)


def loop_nested_1():
    _nested(1)


def loop_nested_3():
    _nested(3)


def loop_nested_5():
    _nested(5)


def _nested(depth):
    model = Nest(depth)
    models.train(model, torch.optim.SGD(model.parameters(), lr=1e-3), data(30))


def loop_average_and_teacher():
    """An average of the weights, a frozen teacher and a loss module take 2 ms each beside the model."""

    class Model(nn.Module):
        def __init__(self, ms):
            super().__init__()
            self.a, self.pause = nn.Linear(8, 1), Pause(ms)

        def forward(self, x):
            return self.a(self.pause(x))

    class Loss(nn.Module):
        def forward(self, a, b):
            time.sleep(0.002)
            return (a - b).square().mean()

    model, teacher, loss = Model(0), Model(2).requires_grad_(False), Loss()
    average = copy.deepcopy(model)
    average.pause.ms = 2
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in data(40):
        with torch.no_grad():
            target = teacher(x) + average(x)
        optimizer.zero_grad()
        loss(model(x), target + y).backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.lerp_(q, 0.1)


def loop_model_inside_a_wrapper():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module, self.pause = module, Pause(2)

        def forward(self, *args, **kwargs):
            return self.module(self.pause(args[0]), **kwargs)

    model, optimizer = net()
    models.train(Wrapper(model), optimizer, data(30))


def loop_encoder_and_decoder_called_apart():
    encoder = nn.Sequential(nn.Linear(8, 8), Pause(1))
    decoder = nn.Sequential(Pause(1), nn.Linear(8, 1))
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for x, y in data(30):
        optimizer.zero_grad()
        (decoder(encoder(x)) - y).square().mean().backward()
        optimizer.step()


def loop_container_that_is_never_called():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(8, 8), Pause(1))
            self.decoder = nn.Sequential(Pause(1), nn.Linear(8, 1))

    holder = Holder()
    optimizer = torch.optim.SGD(holder.parameters(), lr=1e-3)
    for x, y in data(30):
        optimizer.zero_grad()
        (holder.decoder(holder.encoder(x)) - y).square().mean().backward()
        optimizer.step()


def loop_method_that_is_not_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 1), Pause(2))

        def training_step(self, x, y):
            return (self.body(x) - y).square().mean()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in data(30):
        optimizer.zero_grad()
        model.training_step(x, y).backward()
        optimizer.step()


def loop_twelve_folds_with_a_new_model_each():
    for _ in range(12):
        models.train(*net(), data(10))


def loop_model_in_eval_mode_is_trained():
    model, optimizer = net()
    models.train(model.eval(), optimizer, data())


def loop_functional_call():
    from torch.func import functional_call

    model = models.Net()
    parameters = {k: v.detach().requires_grad_() for k, v in model.named_parameters()}
    optimizer = torch.optim.SGD(parameters.values(), lr=1e-3)
    for x, y in data():
        optimizer.zero_grad()
        (functional_call(model, parameters, (x,)) - y).square().mean().backward()
        optimizer.step()


def loop_direct_forward_now_and_then():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        out = model.forward(x) if i % 20 == 19 else model(x)
        (out - y).square().mean().backward()
        optimizer.step()


def loop_scripted_model():
    model = torch.jit.script(models.Net())
    models.train(model, torch.optim.SGD(model.parameters(), lr=1e-3), data())


def loop_reinforcement():
    """Acts without gradients, then trains four times on slices of what it collected."""
    model, optimizer = net()
    for _ in range(15):
        seen = []
        with torch.no_grad():
            for _ in range(5):
                x = torch.randn(4, 8)
                model(x)
                seen.append(x)
        batch = torch.cat(seen)
        for k in range(4):
            optimizer.zero_grad()
            loss_of(model, batch[k * 5 : k * 5 + 5], 0).backward()
            optimizer.step()


def loop_error_caught_in_a_batch():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        try:
            loss_of(model, x[:, :3] if i == 40 else x, y).backward()
        except RuntimeError:
            continue
        optimizer.step()


def loop_error_in_the_backward_is_caught():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("bad")

    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        try:
            out = model(x)
            ((Bad.apply(out) if i in (3, 40) else out) - y).square().mean().backward()
        except RuntimeError:
            continue
        optimizer.step()


def loop_ends_by_an_exception():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        loss_of(model, x[:, :3] if i == 50 else x, y).backward()
        optimizer.step()


def loop_ends_by_an_exception_in_the_optimizer():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if i == 50:
            optimizer.param_groups[0]["lr"] = "nonsense"
        optimizer.step()


def loop_ends_by_break_after_a_fetch():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        if i == 50:
            break
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()


def loop_marked():
    model, optimizer = net()
    for x, y in data():
        with traceml.trace_step(model):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_marked_microbatches():
    """What the user marked is the step, even where it is only a microbatch."""
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        with traceml.trace_step(model):
            loss_of(model, x, y).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()


def loop_marked_groups():
    model, optimizer = net()
    iterator = iter(data())
    for _ in range(15):
        group = [next(iterator) for _ in range(4)]
        with traceml.trace_step(model):
            for x, y in group:
                loss_of(model, x, y).backward()
            optimizer.step()
            optimizer.zero_grad()


def loop_marked_steps_inside_one_another():
    model, optimizer = net()
    for x, y in data():
        with traceml.trace_step(model), traceml.trace_step(model):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            with traceml.trace_step():
                optimizer.step()


def loop_marked_after_twenty_plain_steps():
    model, optimizer = net()
    models.train(model, optimizer, data(20))
    for x, y in data(40):
        with traceml.trace_step(model):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_marked_with_an_error():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        try:
            with traceml.trace_step(model):
                optimizer.zero_grad()
                if i in (4, 45):
                    raise KeyError(i)
                loss_of(model, x, y).backward()
                optimizer.step()
        except KeyError:
            continue


def loop_marked_on_another_thread():
    model, optimizer = net()

    def other():
        for _ in range(30):
            with traceml.trace_step(), traceml.phase("other"):
                time.sleep(0.001)

    thread = threading.Thread(target=other)
    thread.start()
    for x, y in data():
        with traceml.trace_step(model):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
    thread.join()


def loop_named_phases():
    model, optimizer = net()
    for x, y in data(30):
        with traceml.trace_step(model):
            with traceml.phase("augment"):
                time.sleep(0.002)
            with traceml.phase("h2d"):
                x = x.clone()
            optimizer.zero_grad()
            with traceml.phase("loss"):
                loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
        with traceml.phase("outside"):
            pass


def loop_ten_named_phases():
    model, optimizer = net()
    for x, y in data(30):
        with traceml.trace_step(model):
            for name in range(10):
                with traceml.phase(f"p{name}"):
                    pass
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_wrapped_list():
    models.train(*net(), traceml.wrap_dataloader_fetch(list(data())))


def loop_wrapped_generator():
    def batches():
        for _ in range(30):
            time.sleep(0.002)
            yield collate([(torch.ones(8), torch.ones(1))] * 4)

    models.train(*net(), traceml.wrap_dataloader_fetch(batches()))


def loop_wrapped_loader_is_refused():
    loader = data()
    assert traceml.wrap_dataloader_fetch(loader) is loader
    models.train(*net(), loader)


def loop_prefetch_thread():
    """A thread fetches ahead, 2 ms a batch; the loop itself hardly waits."""
    import queue

    batches = queue.Queue(maxsize=60)

    def fill():
        for batch in DataLoader(Slow(120, 0.5), batch_size=4):
            batches.put(batch)
        batches.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    time.sleep(0.2)
    models.train(*net(), iter(batches.get, None))
    thread.join()


def loop_training_on_another_thread():
    thread = threading.Thread(target=lambda: models.train(*net(), data()))
    thread.start()
    thread.join()


def loop_training_on_several_threads():
    threads = [threading.Thread(target=lambda: models.train(*net(), data())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def loop_init_twice_and_in_conflict():
    traceml.init(mode="auto")
    traceml.init()
    for words in ({"mode": "manual"}, {"mode": "nonsense"}, {"patch_forward": True}):
        try:
            traceml.init(**words)
        except UsageError as error:
            if "traceml.init(" not in str(error):
                raise
        else:
            raise AssertionError(words)
    models.train(*net(), data())


def loop_init_manual():
    traceml.init(mode="manual")
    assert "traceml_ai" not in DataLoader.__iter__.__code__.co_filename
    assert "traceml_ai" not in torch.autograd.backward.__code__.co_filename
    model, optimizer = net()
    models.train(model, optimizer, data(20))
    for x, y in data(40):
        with traceml.trace_step(model), traceml.phase("all"):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_init_selective():
    traceml.init(mode="selective", patch_forward=True, patch_optimizer=True)
    assert "traceml_ai" not in DataLoader.__iter__.__code__.co_filename
    model, optimizer = net()
    for x, y in data():
        with traceml.trace_step(model):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()


def loop_saves_checkpoints():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        if i % 20 == 19:
            torch.save(model.state_dict(), os.devnull)


def loop_saves_safetensors():
    from safetensors.torch import save_file

    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
        if i % 20 == 19:
            save_file(model.state_dict(), "weights.safetensors")


def loop_collects_garbage():
    model, optimizer = net()
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        if i % 20 == 18:
            gc.collect()
        loss.backward()
        optimizer.step()
        if i % 20 == 19:
            gc.collect()


def loop_much_garbage():
    gc.set_threshold(10, 2, 2)
    models.train(*net(), data(300))


def loop_update_by_hand_after_an_optimizer_is_gone():
    models.train(*net(), data(5))
    gc.collect()
    loop_update_by_hand()


def loop_never_trains():
    model, _ = net()
    with torch.no_grad():
        for x, _ in data(5):
            model(x)


def loop_trains_after_inference():
    """A thousand predictions first, then training with the same model and loader."""
    model, optimizer = net()
    model.eval()
    with torch.no_grad():
        for x, _ in data(100):
            model(x)
    models.train(model.train(), optimizer, data())


def loop_two_epochs_on_one_loader_with_inference_between():
    model, optimizer = net()
    loader = data(30)
    models.train(model, optimizer, loader)
    with torch.no_grad():
        for x, _ in loader:
            model(x)
    models.train(model, optimizer, loader)


def end_of(loop):
    """Run a loop and end this process in the interpreter's order, without its slow tearing down."""
    code = 0
    if "garbage" not in loop.__name__:
        gc.disable()  # when it comes is chance
    try:
        loop()
    except Exception as error:
        code, sys.last_value = 1, error
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    os._exit(code)


def main():
    folder = os.path.dirname(sys.argv[1])
    wanted = sys.argv[2:]
    found = {}
    # The first optimizer imports a second's worth of torch: once, and not in each child.
    importlib.import_module("torch._dynamo")
    for name, loop in list(globals().items()):
        if not name.startswith("loop_") or (wanted and name[5:] not in wanted):
            continue
        sys.stdout.flush()
        child = os.fork()
        if not child:
            with open(f"{folder}/{name}.stderr", "w") as file:
                os.dup2(file.fileno(), 2)
            end_of(loop)
        _, status = os.waitpid(child, 0)
        found[name[5:]] = [child, os.waitstatus_to_exitcode(status)]
    if "TRACEML_SPOOL" in os.environ:
        shutil.copytree(os.environ["TRACEML_SPOOL"], f"{folder}/spool")
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
