"""Real `Trainer` runs, each with what must have been recorded of it."""

import copy
import gc
import pickle
import threading
import time

import torch
from _kit import (
    Callback,
    CombinedLoader,
    L,
    Precision,
    Small,
    case,
    fit,
    loader,
    main,
    nn,
    seen,
    trainer,
    within,
)


class Sleeper(Callback):
    """Sleeps in the hooks it is told to."""

    def __init__(self, **seconds):
        self.seconds = seconds

    def __getattribute__(self, name):
        seconds = object.__getattribute__(self, "__dict__").get("seconds", {})
        if name in seconds:
            return lambda *_args, **_kwargs: time.sleep(seconds[name])
        return object.__getattribute__(self, name)


# -- steps ------------------------------------------------------------------------------------


@case
def one_step_is_one_update():
    model = Small()
    fit(model, loader(6))
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.column("updates") == s.column("microbatches") == s.column("fetches") == [1] * 6
        assert s.column("samples") == [4] * 6
        assert all(step["flags"] & 1 for step in s.steps)
        for phase in ("input_wait", "h2d", "forward", "backward", "optimizer", "residual_other"):
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return model.result()


@case
def samples_are_counted_in_batches_of_any_kind():
    class Takes(Small):
        def training_step(self, batch, batch_idx):
            x = batch["x"] if isinstance(batch, dict) else batch
            x = x if isinstance(x, torch.Tensor) else x[0]
            return self(x).square().mean()

    found = []
    x = torch.randn(4, 8)
    for batch in (x, [x], (x, x), {"x": x}):
        model = Takes()
        fit(model, torch.utils.data.DataLoader([batch] * 25, batch_size=None))
        found.append(model.result())
    s = seen()
    if s:
        assert s.column("samples") == [4] * 100
    return found


@case
def accumulated_batches_are_one_step_and_the_last_group_may_be_short():
    model = Small()
    one = fit(model, loader(10), accumulate_grad_batches=4)
    s = seen()
    if s:
        assert s.column("microbatches") == [4, 4, 2]
        assert s.column("fetches") == [4, 4, 2]
        assert s.column("samples") == [16, 16, 8]
        assert s.column("updates") == [1, 1, 1]
        assert s.column("global_step") == [1, 2, 3]
        assert s.facts["accumulation"] == 4
        assert s.dropped == s.aborted == 0
    return [model.result(), one.global_step]


@case
def an_unfinished_group_is_dropped_and_counted():
    class Stops(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if batch_idx == 5:
                self.trainer.should_stop = True

    model = Stops()
    fit(model, loader(12), accumulate_grad_batches=4)
    s = seen()
    if s:
        assert s.column("microbatches") == [4]
        assert s.dropped == 1
        assert s.aborted == 0
    return model.result()


@case
def a_step_without_loss_is_an_update_that_was_skipped():
    class Nothing(Small):
        def training_step(self, batch, batch_idx):
            return None if batch_idx % 2 else self.loss(batch)

    model = Nothing()
    fit(model, loader(6))
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.column("microbatches") == [1, 0] * 3
        assert s.column("updates") == [1, 0] * 3
        assert [bool(step["flags"] & 2) for step in s.steps] == [False, True] * 3
    return model.result()


@case
def batches_that_are_skipped_for_the_rest_of_an_epoch_are_no_steps():
    class Skips(Small):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 3 else None

    model = Skips()
    fit(model, loader(6), max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.dropped == s.aborted == 0
    return model.result()


@case
def the_global_step_is_kept_beside_the_number_of_the_step():
    first = Small()
    one = fit(first, loader(5))
    one.save_checkpoint("one.ckpt")
    second = Small()
    two = fit(second, loader(5), ckpt_path="one.ckpt", max_epochs=3)
    s = seen()
    if s:
        assert s.column("global_step") == [*range(1, 6), *range(6, 16)]
        assert s.column("step") == list(range(s.steps[0]["step"], s.steps[0]["step"] + 15))
    return [first.result(), second.result(), two.global_step]


@case
def a_trainer_may_fit_twice():
    model = Small()
    one = fit(model, loader(3))
    one.fit_loop.max_epochs = 2
    one.fit(model, loader(3))
    fit(model, loader(4))
    s = seen()
    if s:
        assert len(s.steps) == 10
        assert s.column("updates") == [1] * 10
    return model.result()


@case
def a_fit_after_a_failed_one_is_measured():
    class Fails(Small):
        fails = True

        def training_step(self, batch, batch_idx):
            if self.fails and batch_idx == 2:
                raise MemoryError("as if")
            return self.loss(batch)

    model = Fails()
    try:
        fit(model, loader(6))
    except MemoryError:
        model.fails = False
    fit(model, loader(4))
    s = seen()
    if s:
        assert len(s.steps) == 2 + 4
        assert s.aborted == 1
        assert s.dropped == 0
    return model.result()


@case
def an_exception_in_a_group_drops_it():
    class Fails(Small):
        def training_step(self, batch, batch_idx):
            if batch_idx == 5:
                raise ValueError("as if")
            return self.loss(batch)

    model = Fails()
    try:
        fit(model, loader(12), accumulate_grad_batches=4)
    except ValueError:
        pass
    s = seen()
    if s:
        assert s.column("microbatches") == [4]
        assert (s.aborted, s.dropped) == (1, 1)
    return model.result()


@case
def a_fit_that_fails_before_it_trains_leaves_nothing():
    class Fails(Small):
        def configure_optimizers(self):
            raise RuntimeError("as if")

    model = Fails()
    one = trainer()
    before = list(one.callbacks)
    try:
        one.fit(model, loader(3))
    except RuntimeError:
        pass
    assert one.callbacks == before
    good = Small()
    one.fit(good, loader(3))
    s = seen()
    if s:
        assert len(s.steps) == 3
        assert s.aborted == 0
    return good.result()


@case
def a_time_limit_ends_a_fit():
    class Slow(Small):
        def training_step(self, batch, batch_idx):
            time.sleep(0.05)
            return self.loss(batch)

    model = Slow()
    one = fit(model, loader(100), max_time={"milliseconds": 300}, accumulate_grad_batches=2)
    s = seen()
    if s:
        assert len(s.steps) == one.global_step > 0
        assert s.column("microbatches") == [2] * one.global_step


@case
def a_fast_development_run_has_one_step():
    model = Small()
    fit(model, loader(6), loader(3), fast_dev_run=True)
    s = seen()
    if s:
        assert len(s.steps) == 1
    return model.result()


@case
def limits_and_short_epochs():
    model = Small()
    fit(model, loader(9), limit_train_batches=3, max_epochs=4)
    fit(model, loader(1), max_epochs=3)
    fit(model, loader(9), overfit_batches=2, max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 12 + 3 + 4
        assert s.column("fetches") == [1] * 19
        # The first batch of each epoch is marked as one.
        assert sum(bool(step["flags"] & 4) for step in s.steps) == 4 + 3 + 2
    return model.result()


@case
def no_batches_no_steps():
    model = Small()
    fit(model, loader(4), limit_train_batches=0)
    s = seen()
    if s:
        assert s.steps == []
    return model.result()


# -- what is no training input ----------------------------------------------------------------


class SlowValidation(Small):
    def validation_step(self, batch, batch_idx):
        time.sleep(0.01)
        super().validation_step(batch, batch_idx)


@case
def the_sanity_check_is_validation():
    model = SlowValidation()
    fit(model, loader(3), loader(3), num_sanity_val_steps=2, limit_val_batches=0.7)
    s = seen()
    if s:
        assert len(s.steps) == 3
        assert s.column("fetches") == [1] * 3
        assert s.steps[0]["between_validation_ns"] > 20e6
    return model.result()


@case
def validation_lies_between_steps():
    model = SlowValidation()
    fit(model, loader(8), loader(3), val_check_interval=4)
    s = seen()
    if s:
        assert len(s.steps) == 8
        assert s.column("fetches") == [1] * 8
        # It belongs to the record of the step after it.
        assert s.steps[4]["between_validation_ns"] > 30e6
        assert within(0, s.column("input_wait_ns"), 10e6)
        assert all(step["residual_validation_ns"] == 0 for step in s.steps)
    return model.result()


@case
def validation_between_accumulated_batches_is_no_part_of_the_step():
    model = SlowValidation()
    fit(model, loader(8), loader(3), val_check_interval=2, accumulate_grad_batches=4)
    s = seen()
    if s:
        assert s.column("microbatches") == [4, 4]
        assert s.column("fetches") == [4, 4]
        assert s.steps[0]["between_validation_ns"] > 30e6
        window = ("h2d", "forward", "backward", "optimizer", "residual_other", "residual_validation")
        assert sum(s.steps[0][name + "_ns"] for name in window) < 25e6
    return model.result()


@case
def test_and_predict_and_validate_are_no_training():
    class Tested(SlowValidation):
        def test_step(self, batch, batch_idx):
            return self.loss(batch)

        def predict_step(self, batch, batch_idx):
            return self(batch[0])

    model = Tested()
    one = fit(model, loader(3), loader(2))
    one.validate(model, loader(2))
    one.test(model, loader(3))
    one.predict(model, loader(3))
    fit(model, loader(2))
    s = seen()
    if s:
        assert len(s.steps) == 5
        assert s.column("fetches") == [1] * 5
        assert s.steps[3]["between_validation_ns"] > 20e6
    return model.result()


@case
def a_plain_loop_after_a_trainer_is_recognised_again():
    model = Small()
    fit(model, loader(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in loader(5):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    s = seen()
    if s:
        assert len(s.steps) == 8
        assert [step["flags"] & 1 for step in s.steps] == [1] * 3 + [0] * 5
    return model.result()


# -- input ------------------------------------------------------------------------------------


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(8) * index, index % 3


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for i in range(4 * self.batches):
            time.sleep(0.002)
            yield torch.ones(8) * i, i % 3


@case
def waiting_for_a_training_batch_is_input_wait():
    model = Small()
    fit(model, torch.utils.data.DataLoader(Slow(), batch_size=2))
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert all(wait > 10e6 for wait in s.column("input_wait_ns"))
        assert s.facts["loaders"][0]["batch_size"] == 2
    return model.result()


@case
def a_stream_without_a_length_is_fetched_one_ahead():
    model = Small()
    fit(model, torch.utils.data.DataLoader(Stream(4), batch_size=4), max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 8
        # One batch ahead: the first step waits for two, the last for none.
        assert s.column("fetches") == [2, 1, 1, 0] * 2
        assert s.column("microbatches") == [1] * 8
        assert sum(s.column("samples")) == 32
        assert s.total_ms("input_wait") > 8 * 4 * 2
        assert s.facts["loaders"][0].get("batches") is None
    return model.result()


@case
def combined_loaders_are_one_fetch():
    class Combined(Small):
        def training_step(self, batch, batch_idx):
            pairs = batch[0] if isinstance(batch, tuple) and isinstance(batch[0], dict) else batch
            return sum(self.loss(pair) for pair in pairs.values() if pair is not None)

    counts = []
    for mode in ("max_size_cycle", "min_size", "max_size"):
        model = Combined()
        combined = CombinedLoader({"a": loader(3), "b": loader(5)}, mode)
        counts.append(fit(model, combined, max_epochs=2).global_step)
    s = seen()
    if s:
        assert counts == [10, 6, 10]
        assert len(s.steps) == 26
        assert s.column("fetches") == [1] * 26
        # Two batches of two loaders: how many samples a step has can't be told in one number.
        assert sum(s.column("samples")) == 0
        assert len(s.facts["loaders"]) >= 2
    return model.result()


@case
def data_modules_and_reloaded_loaders():
    class Data(L.LightningDataModule):
        def train_dataloader(self):
            return loader(3)

        def val_dataloader(self):
            return [loader(1), loader(2)]

    class Two(Small):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.loss(batch)

    model = Two()
    trainer(reload_dataloaders_every_n_epochs=1, max_epochs=3).fit(model, datamodule=Data())
    s = seen()
    if s:
        assert len(s.steps) == 9
        assert s.column("fetches") == [1] * 9
        assert sum(bool(step["flags"] & 4) for step in s.steps) == 3
    return model.result()


@case
def workers_are_started_between_steps():
    model = Small()
    fit(model, loader(4, num_workers=1), max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 8
        assert s.total_ms("between_loader") > 0
        assert s.facts["loaders"][0]["num_workers"] == 1
    return model.result()


@case
def a_source_of_another_kind_is_timed():
    import traceml

    batches = list(loader(4))

    class Source:
        def __iter__(self):
            for batch in batches:
                time.sleep(0.01)
                yield batch

    model = Small()
    fit(model, traceml.wrap_dataloader_fetch(Source()))
    fit(model, Source())
    s = seen()
    if s:
        assert len(s.steps) == 8
        # One is fetched ahead, so the last step of each has none.
        assert [wait > 9e6 for wait in s.column("input_wait_ns")] == [True, True, True, False] * 2
    return model.result()


@case
def wrapping_a_loader_that_is_timed_is_refused_with_a_reason():
    import traceml

    one = loader(3)
    assert traceml.wrap_dataloader_fetch(one) is one
    model = Small()
    fit(model, one)
    s = seen()
    if s:
        assert any("timed already" in w["message"] for w in s.facts["warnings"])
        assert s.column("fetches") == [1] * 3
    return model.result()


@case
def a_loader_that_the_module_iterates_itself():
    class Takes(Small):
        def training_step(self, dataloader_iter):
            batch, _, _ = next(dataloader_iter)
            return self.loss(batch)

    model = Takes()
    fit(model, loader(4), log_every_n_steps=1)
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert s.column("fetches") == [1] * 4
        assert all(wait > 0 for wait in s.column("input_wait_ns"))
    return model.result()


@case
def batches_that_are_none():
    class Holes(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.ones(8) * index, index % 3

    def collate(items):
        return None if items[0][0][0] == 2 else torch.utils.data.default_collate(items)

    model = Small()
    one = fit(model, torch.utils.data.DataLoader(Holes(), batch_size=1, collate_fn=collate))
    s = seen()
    if s:
        assert len(s.steps) == one.global_step == 3
    return model.result()


# -- phases -----------------------------------------------------------------------------------


@case
def transfer_hooks_are_transfer():
    class Moves(Small):
        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            time.sleep(0.01)
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

    model = Moves()
    fit(model, loader(3))
    s = seen()
    if s:
        assert within(9e6, s.column("h2d_ns"), 40e6)
    return model.result()


class SlowNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.01)
        return self.inner(x)


@case
def forward_is_the_outermost_module_call():
    class Modules(Small):
        def __init__(self):
            super().__init__()
            self.net = SlowNet()
            self.criterion = nn.CrossEntropyLoss()

        def training_step(self, batch, batch_idx):
            x, y = batch
            time.sleep(0.005)
            loss = self.criterion(self(x) if batch_idx % 2 else self.net(x), y)
            self.losses.append(loss.item().hex())
            return loss

    model = Modules()
    fit(model, loader(4))
    s = seen()
    if s:
        assert within(10e6, s.column("forward_ns"), 20e6)
        assert all(t > 5e6 for t in s.column("residual_other_ns"))
        assert within(0, s.column("residual_other_ns"), 20e6)
    return model.result()


@case
def modules_in_a_list_count_as_children():
    class Listed(Small):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([SlowNet()])

        def training_step(self, batch, batch_idx):
            x, y = batch
            return nn.functional.cross_entropy(self.layers[0](x), y)

    fit(Listed(), loader(2))
    s = seen()
    if s:
        assert within(10e6, s.column("forward_ns"), 30e6)


@case
def a_step_without_a_module_call_has_no_forward_and_says_so():
    class Functional(Small):
        def training_step(self, batch, batch_idx):
            x, y = batch
            hidden = self.net[0](x) if batch_idx else x @ self.net[0].weight.T
            return nn.functional.cross_entropy(hidden, y)

    model = Functional()
    fit(model, loader(3))
    s = seen()
    if s:
        assert s.column("forward_ns") == [0, 0, 0]
        assert not any(step["observed"] & 4 for step in s.steps)
        assert any(w["probe"] == "forward" for w in s.facts["warnings"])
    return model.result()


@case
def forward_in_hooks_is_not_forward():
    class Hooked(Small):
        def __init__(self):
            super().__init__()
            self.net = SlowNet()

        def on_train_batch_start(self, batch, batch_idx):
            self.net(batch[0])

    model = Hooked()
    fit(model, loader(3))
    s = seen()
    if s:
        assert within(0, s.column("forward_ns"), 19e6)
        assert all(t > 10e6 for t in s.column("residual_other_ns"))
    return model.result()


@case
def backward_lies_between_its_hooks():
    class Backward(Small):
        def backward(self, loss):
            time.sleep(0.01)
            loss.backward()

    model = Backward()
    fit(model, loader(3))
    s = seen()
    if s:
        assert within(10e6, s.column("backward_ns"), 30e6)
        assert s.column("microbatches") == [1] * 3
    return model.result()


@case
def the_optimizer_goes_to_the_end_of_the_batch():
    class Clips(Small):
        def configure_gradient_clipping(
            self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None
        ):
            time.sleep(0.01)
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

        def lr_scheduler_step(self, scheduler, metric):
            time.sleep(0.01)
            scheduler.step()

    model = Clips()
    fit(model, loader(3), gradient_clip_val=0.5)
    s = seen()
    if s:
        assert all(t > 20e6 for t in s.column("optimizer_ns"))
    return model.result()


@case
def callbacks_after_the_step_are_between_steps():
    model = Small()
    fit(model, loader(4), callbacks=[Sleeper(on_train_batch_end=0.01)])
    s = seen()
    if s:
        assert all(t > 10e6 for t in s.column("between_handlers_ns")[1:])
        assert within(0, s.column("optimizer_ns"), 10e6)
    return model.result()


@case
def callbacks_before_the_step_are_inside_it():
    model = Small()
    fit(model, loader(3), callbacks=[Sleeper(on_train_batch_start=0.01)])
    s = seen()
    if s:
        assert all(t > 10e6 for t in s.column("residual_other_ns"))
    return model.result()


@case
def callbacks_after_an_epoch_are_between_steps():
    model = Small()
    fit(model, loader(2), callbacks=[Sleeper(on_train_epoch_end=0.02)], max_epochs=3)
    s = seen()
    if s:
        assert [t > 20e6 for t in s.column("between_handlers_ns")] == [False, False, True, False, True, False]
    return model.result()


@case
def checkpoints_are_checkpoints():
    from _kit import NAMESPACE

    if NAMESPACE == "lightning":
        from lightning.pytorch.callbacks import ModelCheckpoint
    else:
        from pytorch_lightning.callbacks import ModelCheckpoint

    model = Small()
    keep = ModelCheckpoint(dirpath=".", every_n_train_steps=1, save_top_k=-1)
    fit(model, loader(4), callbacks=[keep], enable_checkpointing=True)
    s = seen()
    if s:
        assert all(t > 0 for t in s.column("between_checkpoint_ns")[1:])
        assert all(t == 0 for t in s.column("residual_checkpoint_ns"))
    return model.result()


@case
def a_pass_over_parameters_in_backward_is_not_forward():
    from torch.utils.checkpoint import checkpoint

    class Again(Small):
        def __init__(self):
            super().__init__()
            self.net = SlowNet()

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=False)

    model = Again()
    fit(model, loader(3))
    s = seen()
    if s:
        assert within(10e6, s.column("forward_ns"), 19e6)
        assert all(t > 10e6 for t in s.column("backward_ns"))
    return model.result()


# -- optimization -----------------------------------------------------------------------------


@case
def manual_optimization_is_one_step_a_batch():
    class Manual(Small):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.head = nn.Linear(8, 3)

        def training_step(self, batch, batch_idx):
            if batch_idx == 3:
                return
            for optimizer, module in zip(self.optimizers(), (self.net, self.head), strict=True):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(batch[0]), batch[1])
                self.losses.append(loss.item().hex())
                self.manual_backward(loss)
                optimizer.step()
                time.sleep(0.01)

        def configure_optimizers(self):
            return [torch.optim.SGD(self.net.parameters(), lr=0.1), torch.optim.Adam(self.head.parameters())]

    model = Manual()
    one = fit(model, loader(5))
    s = seen()
    if s:
        assert len(s.steps) == 5
        assert s.column("updates") == [2, 2, 2, 0, 2]
        assert s.column("microbatches") == [1, 1, 1, 0, 1]
        assert s.column("global_step") == [2, 4, 6, 6, 8]
        assert not any(step["flags"] & 2 for step in s.steps)
        # What follows an optimizer's step is not the optimizer's.
        assert within(0, s.column("optimizer_ns"), 10e6)
        assert s.steps[0]["residual_other_ns"] > 20e6
    return [model.result(), one.global_step]


@case
def direct_backwards_are_seen():
    class Direct(Small):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.loss(batch).backward()
            optimizer.step()

    model = Direct()
    fit(model, loader(3))
    s = seen()
    if s:
        assert s.column("microbatches") == s.column("updates") == [1] * 3
        assert all(t > 0 for t in s.column("backward_ns"))
    return model.result()


@case
def lbfgs_evaluates_its_closure_in_one_step():
    class Quasi(Small):
        def training_step(self, batch, batch_idx):
            time.sleep(0.002)
            return self.loss(batch)

        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

    model = Quasi()
    # One batch all along: on another a direction may lead upwards, and all stays as it is.
    fit(model, loader(1), max_epochs=3)
    s = seen()
    if s:
        assert len(s.steps) == 3
        assert s.column("updates") == [1] * 3, s.column("updates")
        assert s.column("microbatches") == [1] * 3
        # The closure's own code is not the optimizer's.
        assert all(t > 5e6 for t in s.column("residual_other_ns"))
    return model.result()


@case
def reduced_precision_is_named():
    model = Small()
    fit(model, loader(4), precision="bf16-mixed")
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert s.facts["precision"] == "bf16-mixed"
        assert all(t > 0 for t in s.column("forward_ns"))
    return model.result()


def _callbacks():
    from _kit import NAMESPACE

    if NAMESPACE == "lightning":
        from lightning.pytorch import callbacks
    else:
        from pytorch_lightning import callbacks
    return callbacks


@case
def averaging_weights_adds_no_step():
    class Normed(Small):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))

    model = Normed()
    fit(
        model,
        loader(3),
        max_epochs=4,
        callbacks=[_callbacks().StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2)],
    )
    s = seen()
    if s:
        # The fifth epoch only renews the batch statistics.
        assert len(s.steps) == 12
        assert s.column("updates") == [1] * 12
    return model.result()


@case
def an_average_kept_beside_the_model():
    if not hasattr(_callbacks(), "EMAWeightAveraging"):
        return None
    model = Small()
    fit(model, loader(4), callbacks=[_callbacks().EMAWeightAveraging()])
    s = seen()
    if s:
        assert s.column("updates") == [1] * 4
    return model.result()


@case
def tuners_do_not_train():
    from _kit import NAMESPACE

    if NAMESPACE == "lightning":
        from lightning.pytorch.tuner import Tuner
    else:
        from pytorch_lightning.tuner import Tuner

    class Tuned(Small):
        batch_size = 2

        def train_dataloader(self):
            return loader(20, self.batch_size)

        def val_dataloader(self):
            return loader(1)

    model = Tuned()
    one = trainer(max_steps=3, max_epochs=None)
    before = list(one.callbacks)
    Tuner(one).lr_find(model, attr_name="rate", num_training=10)
    Tuner(one).scale_batch_size(model, max_trials=2, steps_per_trial=2)
    assert one.callbacks == before
    s = seen()
    if s:
        assert s.steps == []
    one.fit(model)
    s = seen()
    if s:
        assert len(s.steps) == 3
    return model.result()


# -- nothing of ours --------------------------------------------------------------------------


@case
def nothing_of_ours_stays_in_trainer_or_module():
    model = Small()
    one = trainer()
    one.fit(model, loader(3))
    assert not any("traceml" in type(callback).__module__ for callback in one.callbacks)
    assert not any("traceml" in repr(value) for value in vars(model).values())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    return sorted(vars(model))


@case
def checkpoints_hold_nothing_of_ours():
    class Keeps(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if batch_idx == 1:
                self.trainer.save_checkpoint("inside.ckpt")

    model = Keeps()
    fit(model, loader(3))
    raw = open("inside.ckpt", "rb").read()  # noqa: SIM115
    assert b"traceml" not in raw.lower()
    held = torch.load("inside.ckpt", weights_only=False)
    return sorted(held), sorted(held["callbacks"])


@case
def modules_are_copied_and_pickled_as_ever():
    class Copied(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.copy = copy.deepcopy(pl_module.net)
            self.raw = pickle.dumps(pl_module.net)

    copied = Copied()
    model = Small()
    fit(model, loader(3), callbacks=[copied])
    assert b"traceml" not in copied.raw
    assert pickle.loads(copied.raw)(torch.ones(8)).equal(model.net(torch.ones(8)))
    return len(copied.raw)


@case
def callbacks_keep_their_order():
    order = []

    class One(Callback):
        def on_train_batch_end(self, *args):
            order.append(type(self).__name__)

    class Two(One):
        pass

    class Three(One):
        pass

    class Configured(Small):
        def configure_callbacks(self):
            return [Three()]

    model = Configured()
    one = fit(model, loader(1), callbacks=[Two(), One()])
    return order, [type(callback).__name__ for callback in one.callbacks]


@case
def a_trainer_is_garbage_when_it_is_let_go():
    import weakref

    model = Small()
    one = weakref.ref(fit(model, loader(2)))
    model.trainer = None
    gc.collect()
    assert one() is None


# -- our own callback -------------------------------------------------------------------------


@case
def our_callback_by_hand_is_used_and_not_doubled():
    from traceml_ai.integrations import lightning as traceml_lightning

    traceml_lightning.init()
    traceml_lightning.init()
    ours = traceml_lightning.TraceMLCallback()
    assert isinstance(ours, Callback)
    counted = []

    class Counts(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            counted.append(
                sum(isinstance(c, traceml_lightning.TraceMLCallback) for c in self.trainer.callbacks)
            )

    model = Counts()
    one = fit(model, loader(3), callbacks=[ours])
    assert counted == [1] * 3
    assert ours in one.callbacks
    s = seen()
    if s:
        assert len(s.steps) == 3
        assert s.column("updates") == [1] * 3
    return model.result()


@case
def our_callback_is_pickled_without_its_trainer():
    from traceml_ai.integrations import lightning as traceml_lightning

    class Pickles(Small):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            again = pickle.loads(pickle.dumps(self.trainer.callbacks[0]))
            assert isinstance(again, traceml_lightning.TraceMLCallback)
            assert again.fit is None
            copy.deepcopy(self.trainer.callbacks[0])

    model = Pickles()
    fit(model, loader(2), callbacks=[traceml_lightning.TraceMLCallback()])
    return model.result()


@case
def a_callback_derived_from_ours_keeps_its_own_hooks():
    from traceml_ai.integrations import lightning as traceml_lightning

    heard = []

    class Theirs(traceml_lightning.TraceMLCallback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            heard.append("start")

        def on_before_backward(self, trainer, pl_module, loss):
            heard.append("backward")

        def on_train_batch_end(self, *args):
            heard.append("end")

    model = Small()
    fit(model, loader(3), callbacks=[Theirs()])
    assert heard == ["start", "backward", "end"] * 3
    s = seen()
    if s:
        assert s.column("updates") == [1] * 3
        assert all(v > 0 for v in s.column("backward_ns"))
    return [model.result(), heard]


@case
def a_precision_plugin_that_calls_the_hooks_itself():
    class Own(Precision):
        def pre_backward(self, tensor, module):
            for callback in module.trainer.callbacks:
                if callable(callback.on_before_backward):
                    callback.on_before_backward(module.trainer, module, tensor)
            return tensor

    model = Small()
    fit(model, loader(25), plugins=[Own()])
    s = seen()
    if s:
        assert s.column("updates") == s.column("microbatches") == [1] * 25
        for phase in ("forward", "backward", "optimizer"):
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return model.result()


@case
def a_fit_on_another_thread_is_measured():
    model = Small()
    thread = threading.Thread(target=fit, args=(model, loader(4)))
    thread.start()
    thread.join()
    s = seen()
    if s:
        assert s.column("updates") == [1] * 4
    return model.result()


@case
def the_users_profiler_agrees():
    class Wide(Small):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(8, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 3)
            )

    model = Wide()
    one = fit(model, loader(20, 256), profiler="simple")
    theirs = sum(one.profiler.recorded_durations["run_training_batch"])
    s = seen()
    if s:
        window = ("forward", "backward", "optimizer", "residual_other")
        ours = sum(s.total_ms(name) for name in window) / 1e3
        assert abs(ours - theirs) < 0.03 * theirs, (ours, theirs)
    return model.result()


main()
