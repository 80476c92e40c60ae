"""Real trainer runs, each with what must have been recorded of it."""

import copy
import functools
import gc
import threading
import time

from _kit import (
    TRACED,
    Events,
    IterationEvents,
    Net,
    On,
    SupervisedTrainer,
    Trained,
    Volumes,
    case,
    loader,
    main,
    nn,
    seen,
    sleeps,
    stream,
    torch,
    train,
    within,
)
from ignite.metrics import MeanSquaredError
from monai.data import CacheDataset, PersistentDataset, SmartCacheDataset, ThreadDataLoader
from monai.engines import SupervisedEvaluator
from monai.engines.utils import default_prepare_batch
from monai.engines.workflow import Workflow
from monai.handlers import (
    CheckpointLoader,
    CheckpointSaver,
    LrScheduleHandler,
    SmartCacheHandler,
    StatsHandler,
    ValidationHandler,
    from_engine,
)
from monai.inferers import Inferer, SimpleInferer, SlidingWindowInferer

import monai

SKIPPED, FIRST = 2, 4
PHASES = ("input_wait", "forward", "backward", "optimizer", "residual_other")


# -- steps ------------------------------------------------------------------------------------


@case
def one_step_is_one_update():
    made = train(loader(6), max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 12
        assert s.column("updates") == s.column("microbatches") == s.column("fetches") == [1] * 12
        assert s.column("samples") == [4] * 12
        assert s.column("global_step") == list(range(1, 13))
        assert s.flagged(1) == [True] * 12
        assert s.flagged(FIRST) == [i % 6 == 0 for i in range(12)]
        for phase in PHASES:
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
        # On the CPU the batch goes nowhere: its transfer is residual.
        assert s.column("h2d_ns") == [0] * 12
        assert s.facts["framework"] == "monai"
        assert s.facts["accumulation"] == 1
    return made.result()


@case
def accumulated_iterations_are_one_step_and_an_epoch_forces_its_last_group():
    made = train(loader(10), max_epochs=2, accumulation_steps=4)
    s = seen()
    if s:
        assert s.column("microbatches") == [4, 4, 2] * 2
        assert s.column("fetches") == [4, 4, 2] * 2
        assert s.column("samples") == [16, 16, 8] * 2
        assert s.column("updates") == [1] * 6
        assert s.dropped == s.aborted == 0
        assert s.facts["accumulation"] == 4
    return made.result()


@case
def the_windows_of_a_group_are_added_up():
    made = train(
        loader(6, sleep_s=0.004),
        accumulation_steps=3,
        inferer=lambda x, network: time.sleep(0.003) or network(x),
        handlers=[sleeps(Events.ITERATION_COMPLETED, 0.005)],
    )
    s = seen()
    if s:
        assert min(s.ms("input_wait")) >= 12
        assert min(s.ms("forward")) >= 9
        # What lies between the iterations of a group is between steps.
        assert s.total_ms("between_handlers") >= 5 * 5
    return made.result()


@case
def the_open_group_of_an_unsized_epoch_is_dropped_where_monai_zeroes_it():
    made = train(stream(10), max_epochs=3, accumulation_steps=4)
    s = seen()
    if s:
        # First epoch: two groups and an open one. Then the length is known, and forces the last.
        assert s.column("microbatches") == [4, 4, 4, 4, 2, 4, 4, 2]
        assert s.column("fetches") == s.column("microbatches")
        assert s.column("global_step")[:3] == [4, 8, 14]
        assert s.dropped == 1
        assert s.aborted == 0
    return made.result()


@case
def a_group_that_is_open_when_the_run_ends_is_dropped():
    made = train(stream(10), accumulation_steps=4)
    s = seen()
    if s:
        assert s.column("microbatches") == [4, 4]
        assert s.dropped == 1
    return made.result()


@case
def a_group_spans_the_epochs_of_an_unsized_loader_no_longer_than_monai_lets_it():
    made = train(stream(3), max_epochs=2, accumulation_steps=5)
    s = seen()
    if s:
        assert s.column("microbatches") == [3]
        assert s.dropped == 1
    return made.result()


@case
def terminating_drops_the_open_group_and_keeps_the_rest():
    made = train(
        loader(10),
        accumulation_steps=4,
        handlers=[On(Events.ITERATION_COMPLETED(once=6), lambda engine: engine.terminate())],
    )
    s = seen()
    if s:
        assert s.column("microbatches") == [4]
        assert s.dropped == 1
        assert s.aborted == 0
    return made.result()


@case
def ending_an_epoch_early_goes_on_with_the_next():
    made = train(
        loader(6),
        max_epochs=2,
        handlers=[On(Events.ITERATION_COMPLETED(once=3), lambda engine: engine.terminate_epoch())],
    )
    s = seen()
    if s:
        assert len(s.steps) == made.engine.state.iteration
        assert s.flagged(FIRST)[3]
    return made.result()


@case
def a_trainer_may_run_again():
    made = Trained(loader(4))
    made.run()
    made.engine.state.max_epochs = 3
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 12
        assert s.column("updates") == [1] * 12
    return made.result()


@case
def an_interrupted_run_goes_on():
    made = Trained(loader(6), handlers=[On(Events.ITERATION_COMPLETED(once=2), lambda e: e.interrupt())])
    made.run()
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.dropped == s.aborted == 0
    return made.result()


@case
def a_resumed_run_counts_on_in_monais_own_steps():
    first = train(loader(5), handlers=[])
    second = Trained(loader(5), max_epochs=3)
    second.net.load_state_dict(first.net.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.engine.load_state_dict({"epoch_length": 5, "max_epochs": 3, "iteration": 5})
    second.run()
    s = seen()
    if s:
        assert s.column("global_step") == [*range(1, 6), *range(6, 16)]
    return [first.result(), second.result()]


@case
def a_run_resumed_inside_a_group_publishes_the_update_it_makes():
    made = Trained(loader(8), max_epochs=1, accumulation_steps=4)
    made.engine.load_state_dict({"epoch_length": 8, "max_epochs": 1, "iteration": 2})
    made.run()
    s = seen()
    if s:
        assert s.column("microbatches") == [2, 4]
        assert s.column("updates") == [1, 1]
    return made.result()


@case
def a_checkpoint_is_loaded_before_the_first_step():
    first = Trained(loader(3))
    objects = {"net": first.net, "opt": first.optimizer, "trainer": first.engine}
    CheckpointSaver(".", objects, save_final=True, final_filename="one.pt").attach(first.engine)
    first.run()
    second = Trained(loader(3), max_epochs=2)
    again = {"net": second.net, "opt": second.optimizer}
    CheckpointLoader("one.pt", again).attach(second.engine)
    second.run()
    s = seen()
    if s:
        assert len(s.steps) == 9
    return [first.result(), second.result()]


# -- phases -----------------------------------------------------------------------------------


@case
def input_wait_is_the_wait_for_a_training_batch():
    made = train(loader(5, sleep_s=0.01))
    s = seen()
    if s:
        assert within(10, s.ms("input_wait"), 36)
        assert sum(s.ms("residual_other")) < 25
    return made.result()


@case
def handlers_around_a_fetch_are_no_input_wait():
    slow = [sleeps(event, 0.004) for event in (Events.GET_BATCH_STARTED, Events.GET_BATCH_COMPLETED)]
    made = train(loader(5), first=slow)
    s = seen()
    if s:
        assert min(s.ms("input_wait")) < 4
        assert s.total_ms("between_handlers") >= 2 * 4 * 4
    return made.result()


@case
def a_threaded_loader_measures_what_the_loop_waited():
    data = Volumes(24, 0.002)
    made = train(
        ThreadDataLoader(data, batch_size=4, buffer_size=2),
        inferer=lambda x, network: time.sleep(0.02) or network(x),
    )
    s = seen()
    if s:
        assert s.column("fetches") == [1] * 6
        # The thread makes a batch in 8 ms while the step takes 20.
        assert sorted(s.ms("input_wait"))[2] < 4
    return made.result()


@case
def a_threaded_loader_that_does_not_keep_up_is_waited_for():
    made = train(ThreadDataLoader(Volumes(24, 0.003), batch_size=4, buffer_size=1))
    s = seen()
    if s:
        assert sorted(s.ms("input_wait"))[3] > 6
    return made.result()


class Waits(SimpleInferer):
    def __init__(self, seconds=0.006):
        super().__init__()
        self.seconds = seconds

    def __call__(self, inputs, network, *args, **kwargs):
        time.sleep(self.seconds)
        return super().__call__(inputs, network, *args, **kwargs)


def _waits(inputs, network, seconds=0.006):
    time.sleep(seconds)
    return network(inputs)


@case
def forward_is_the_call_of_the_inferer_whatever_it_is():
    inferers = [Waits(), _waits, functools.partial(_waits, seconds=0.006), Waits().__call__]
    results = [train(loader(3), inferer=inferer).result() for inferer in inferers]
    s = seen()
    if s:
        assert len(s.steps) == 12
        assert within(6, s.ms("forward"), 24)
        assert min(s.ms("residual_other")) < 4
    return results


@case
def a_sliding_window_is_one_forward():
    made = train(loader(4), inferer=SlidingWindowInferer((4, 4), overlap=0))
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert all(v > 0 for v in s.column("forward_ns"))
        assert s.column("microbatches") == [1] * 4
    return made.result()


@case
def backward_is_only_backward_whichever_handlers_surround_it():
    events = (
        IterationEvents.FORWARD_COMPLETED,
        IterationEvents.LOSS_COMPLETED,
        IterationEvents.BACKWARD_COMPLETED,
    )
    before, after = ([sleeps(event, 0.004) for event in events] for _ in range(2))
    made = train(loader(4), first=before, handlers=after)
    s = seen()
    if s:
        assert min(s.ms("backward")) < 4
        assert min(s.ms("forward")) < 4
        assert within(24, s.ms("residual_other"), 80)
        assert s.parts["handler On"] >= 2 * 24
    return made.result()


class Slow(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.005)
        return super().step(closure)


@case
def optimizer_is_its_step_and_nothing_else():
    made = Trained(loader(4), optimizer=lambda parameters: Slow(parameters, lr=1e-2))
    schedule = torch.optim.lr_scheduler.LambdaLR(made.optimizer, lambda n: time.sleep(0.004) or 0.9**n)
    LrScheduleHandler(schedule, epoch_level=False).attach(made.engine)
    made.run()
    s = seen()
    if s:
        assert within(5, s.ms("optimizer"), 18)
        assert s.column("updates") == [1] * 4
        assert s.handlers["LrScheduleHandler"] >= 3 * 4
    return [made.result(), made.optimizer.param_groups[0]["lr"]]


def _slow_batch(batch, device, non_blocking, **kwargs):
    time.sleep(0.005)
    return default_prepare_batch(batch, device, non_blocking, **kwargs)


class TrainSlowly(Net):
    def train(self, mode=True):
        if mode:
            time.sleep(0.002)
        return super().train(mode)


class ZeroesSlowly(torch.optim.SGD):
    def zero_grad(self, set_to_none=True):
        time.sleep(0.003)
        super().zero_grad(set_to_none)


@case
def what_lies_between_the_phases_is_residual_and_named():
    net = TrainSlowly()
    made = Trained(
        loader(10),
        network=net,
        optimizer=lambda _own: ZeroesSlowly(net.parameters(), lr=1e-2),
        loss_function=lambda pred, target: time.sleep(0.004) or nn.functional.mse_loss(pred, target),
        prepare_batch=_slow_batch,
        postprocessing=lambda item: time.sleep(0.0015) or item,
    )
    made.run()
    s = seen()
    if s:
        assert within(20, s.ms("residual_other"), 60)
        spent = {"prepare_batch": 5, "network.train": 2, "zero_grad": 3, "loss": 4, "postprocessing": 6}
        for name, least in spent.items():
            assert s.parts[name] >= 8 * least, (name, s.parts)
        # Sleeping takes as long as it takes, but it is nowhere else.
        assert min(map(sum, zip(s.ms("forward"), s.ms("backward"), s.ms("optimizer"), strict=True))) < 10
        assert s.parts["decollation"] > 0
        assert sum(s.parts.values()) <= s.total_ms("residual_other") + 1
    return made.result()


@case
def handlers_after_an_iteration_are_between_steps_and_named():
    class Plots(On):
        pass

    def slow_report(_engine):
        time.sleep(0.003)

    made = Trained(loader(5), first=[Plots(Events.ITERATION_COMPLETED, lambda _e: time.sleep(0.006))])
    made.engine.add_event_handler(Events.ITERATION_COMPLETED(every=1), slow_report)
    made.run()
    s = seen()
    if s:
        assert s.total_ms("between_handlers") >= 4 * 9
        assert min(s.ms("residual_other")) < 6
        assert s.handlers["Plots"] >= 4 * 6
        assert s.handlers["slow_report"] >= 4 * 3
        assert s.handlers["Losses"] < s.handlers["Plots"]
    return made.result()


@case
def every_handler_of_the_last_event_of_an_iteration_is_inside_the_step():
    event = IterationEvents.MODEL_COMPLETED
    made = train(loader(4), first=[sleeps(event, 0.003)], handlers=[sleeps(event, 0.003)])
    s = seen()
    if s:
        assert min(s.ms("residual_other")) >= 6
        assert "On" not in s.handlers
    return made.result()


@case
def the_batch_may_stay_whole():
    made = train(loader(4), decollate=False)
    s = seen()
    if s:
        assert s.column("samples") == [4] * 4
        assert "decollation" not in s.parts
    return made.result()


# -- what the optimizer did -------------------------------------------------------------------


class OnCpu(SupervisedTrainer):
    """Mixed precision's scaler on the CPU, as `Trainer.run` makes one for CUDA."""

    def run(self):
        self.amp = True
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        Workflow.run(self)


def _infinite_at(*calls):
    count = iter(range(1000))

    def loss(pred, target):
        found = nn.functional.mse_loss(pred, target)
        return found * float("inf") if next(count) in calls else found

    return loss


@case
def an_update_that_the_scaler_skips_is_a_step_and_no_update():
    made = train(loader(6), kind=OnCpu, loss_function=_infinite_at(1, 4))
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.column("updates") == [1, 0, 1, 1, 0, 1]
        assert s.flagged(SKIPPED) == [False, True, False, False, True, False]
        # Not a step of the optimizer: the scaler's own work is residual, and named.
        assert [v > 0 for v in s.column("optimizer_ns")] == [True, False, True, True, False, True]
        assert s.parts["gradient scaler"] > 0
    return made.result()


@case
def when_every_update_is_skipped_there_is_no_optimizer_time():
    made = train(loader(4), kind=OnCpu, loss_function=_infinite_at(*range(4)))
    s = seen()
    if s:
        assert s.column("updates") == [0] * 4
        assert s.column("optimizer_ns") == [0] * 4
        assert s.flagged(SKIPPED) == [True] * 4
    return made.result()


@case
def a_fused_optimizer_is_stepped_when_it_skips_the_update_itself():
    made = train(
        loader(5),
        kind=OnCpu,
        loss_function=_infinite_at(2),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-2, fused=True),
    )
    s = seen()
    if s:
        assert all(v > 0 for v in s.column("optimizer_ns"))
        assert s.column("updates") == [1, 1, 0, 1, 1]
        assert s.flagged(SKIPPED) == [False, False, True, False, False]
    return made.result()


@case
def a_skipped_update_ends_its_group():
    made = train(loader(6), kind=OnCpu, accumulation_steps=3, loss_function=_infinite_at(1))
    s = seen()
    if s:
        assert s.column("microbatches") == [3, 3]
        assert s.column("updates") == [0, 1]
    return made.result()


@case
def another_optimizer_is_not_the_trainers():
    other = nn.Linear(2, 2)
    own = torch.optim.SGD(other.parameters(), lr=0.1)

    def steps(_engine):
        own.zero_grad()
        other(torch.ones(1, 2)).sum().backward()
        own.step()

    made = train(
        loader(4),
        handlers=[On(Events.ITERATION_COMPLETED, steps), On(IterationEvents.MODEL_COMPLETED, steps)],
    )
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert s.column("updates") == [1] * 4
    return [made.result(), float(other.weight.sum()).hex()]


# -- data -------------------------------------------------------------------------------------


def _double(item):
    return {key: 2 * value for key, value in item.items()}


@case
def monais_datasets_are_training_input():
    items = [Volumes(16)[i] for i in range(16)]
    smart = SmartCacheDataset(
        items, _double, replace_rate=0.5, cache_num=8, progress=False, num_init_workers=1
    )
    sets = [
        (CacheDataset(items, _double, progress=False), ()),
        (PersistentDataset(items, _double, cache_dir="cache"), ()),
        (smart, (SmartCacheHandler(smart),)),
    ]
    results, counts = [], []
    for data, handlers in sets:
        made = train(monai.data.DataLoader(data, batch_size=4), max_epochs=2, handlers=handlers)
        results.append(made.result())
        counts.append(made.engine.state.iteration)
    s = seen()
    if s:
        assert len(s.steps) == sum(counts) == 8 + 8 + 4
        assert s.column("samples") == [4] * 20
        assert s.column("fetches") == [1] * 20
    return results


@case
def workers_start_between_steps():
    made = train(loader(4, num_workers=1), max_epochs=2)
    s = seen()
    if s:
        assert len(s.steps) == 8
        assert s.column("between_loader_ns")[4] > 1e6
    return made.result()


@case
def any_iterable_is_training_input():
    batches = [{"image": torch.ones(2, 1, 8, 8), "label": torch.zeros(2, 1, 8, 8)}] * 5
    made = train(batches)
    s = seen()
    if s:
        assert s.column("samples") == [2] * 5
        assert all(v > 0 for v in s.column("input_wait_ns"))
    return made.result()


@case
def batches_of_metatensors_are_counted():
    items = [{k: monai.data.MetaTensor(v) for k, v in Volumes(8)[i].items()} for i in range(8)]
    made = train(monai.data.DataLoader(monai.data.Dataset(items), batch_size=4))
    s = seen()
    if s:
        assert s.column("samples") == [4, 4]
    return made.result()


# -- beside the training ----------------------------------------------------------------------


def _evaluator(net, seconds=0.0):
    return SupervisedEvaluator(
        device=torch.device("cpu"),
        val_data_loader=loader(3),
        network=net,
        inferer=Waits(seconds),
        key_val_metric={"mse": MeanSquaredError(from_engine(["pred", "label"], first=True))},
    )


@case
def validation_by_a_handler_is_validation_and_no_input_wait():
    made = Trained(loader(4), max_epochs=2)
    evaluator = _evaluator(made.net, 0.01)
    ValidationHandler(interval=1, validator=evaluator).attach(made.engine)
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 8
        assert s.column("fetches") == [1] * 8
        assert s.column("between_validation_ns")[4] > 30e6
        assert s.handlers["ValidationHandler"] >= 30
    return [made.result(), evaluator.state.metrics["mse"]]


@case
def validation_inside_a_step_is_named_residual():
    made = Trained(loader(4))
    evaluator = _evaluator(made.net, 0.005)
    made.engine.add_event_handler(IterationEvents.MODEL_COMPLETED, lambda _e: evaluator.run())
    made.run()
    s = seen()
    if s:
        assert within(15, s.ms("residual_validation"), 60)
    return made.result()


@case
def an_evaluator_by_itself_is_validation():
    made = train(loader(3))
    _evaluator(made.net, 0.01).run()
    made.engine.state.max_epochs = 2
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.column("between_validation_ns")[3] > 30e6
    return made.result()


@case
def checkpoints_are_checkpoints():
    made = Trained(loader(4))
    saver = CheckpointSaver(".", {"net": made.net}, save_interval=2, epoch_level=False)
    saver.attach(made.engine)
    made.run()
    s = seen()
    if s:
        assert s.total_ms("between_checkpoint") > 0
        assert s.handlers["CheckpointSaver"] > 0
    return made.result()


@case
def key_metrics_and_statistics_are_between_steps():
    made = train(
        loader(4),
        key_train_metric={"mse": MeanSquaredError(from_engine(["pred", "label"], first=True))},
        handlers=[StatsHandler(tag_name="loss", output_transform=from_engine(["loss"], first=True))],
    )
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert {"StatsHandler", "MeanSquaredError"} <= set(s.handlers)
    return [made.result(), made.engine.state.metrics["mse"]]


@case
def a_trainer_inside_a_handler_is_not_the_one_that_is_measured():
    inner = []

    def trains_another(_engine):
        inner.append(train(loader(2)).result())

    made = train(loader(4), handlers=[On(Events.ITERATION_COMPLETED, trains_another)])
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert s.column("global_step") == [1, 2, 3, 4]
    return [made.result(), inner]


@case
def a_plain_loop_before_and_after_is_inferred():
    def plain():
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        for batch in loader(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(batch["image"]), batch["label"]).backward()
            optimizer.step()

    plain()
    made = train(loader(4))
    plain()
    s = seen()
    if s:
        assert len(s.steps) == 10
        assert s.flagged(1) == [False] * 3 + [True] * 4 + [False] * 3
    return made.result()


# -- exceptions -------------------------------------------------------------------------------


@case
def an_exception_in_a_step_aborts_it_and_a_new_run_goes_on():
    class Fails(Waits):
        calls = 0

        def __call__(self, inputs, network, *args, **kwargs):
            Fails.calls += 1
            if Fails.calls == 3:
                raise RuntimeError("the third")
            return network(inputs)

    made = Trained(loader(4), inferer=Fails())
    try:
        made.run()
    except RuntimeError as error:
        told = str(error)
    s = seen()
    if s:
        assert len(s.steps) == 2
        assert s.aborted == 1
    inferer = made.engine.inferer
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == [1] * len(s.steps)
        assert s.aborted == 1
    return [made.result(), told, type(inferer).__name__]


@case
def an_exception_that_a_handler_swallows_aborts_the_step():
    def fails(_pred, _target):
        raise ValueError

    made = Trained(loader(4), max_epochs=1)
    own = made.engine.loss_function

    def loss(pred, target):
        return fails(pred, target) if made.engine.state.iteration == 2 else own(pred, target)

    made.engine.loss_function = loss
    made.engine.add_event_handler(Events.EXCEPTION_RAISED, lambda _engine, _error: None)
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 1
        assert s.aborted == 1
    return made.result()


@case
def an_exception_of_the_loader_is_no_step():
    class Breaks(Volumes):
        def __getitem__(self, index):
            if index == 9:
                raise OSError("a file")
            return super().__getitem__(index)

    made = Trained(torch.utils.data.DataLoader(Breaks(), batch_size=4))
    try:
        made.run()
    except OSError:
        pass
    made.engine.data_loader = loader(2)
    other = train(loader(3))
    s = seen()
    if s:
        assert len(s.steps) == 5
        assert s.aborted == 0
    return [made.result(), other.result()]


@case
def an_exception_in_a_group_drops_it():
    def stops(engine):
        if engine.state.iteration == 6:
            raise KeyboardInterrupt

    made = Trained(loader(8), accumulation_steps=4, handlers=[On(Events.ITERATION_COMPLETED, stops)])
    try:
        made.run()
    except KeyboardInterrupt:
        pass
    s = seen()
    if s:
        assert s.column("microbatches") == [4]
        assert s.dropped == 1
    return made.result()


# -- the trainer's own objects ----------------------------------------------------------------


@case
def the_inferer_is_the_real_one():
    found = []

    class Keeps(Waits):
        state = 0

    def looks(engine):
        inferer = engine.inferer
        inferer.state += 1
        copied = copy.deepcopy(inferer)
        found.append(
            [
                isinstance(inferer, Inferer),
                type(inferer) is Keeps,
                repr(inferer) == object.__repr__(inferer),
                copied.state,
                vars(engine)["inferer"] is inferer,
            ]
        )

    given = Keeps(0)
    made = Trained(loader(3), inferer=given, handlers=[On(Events.ITERATION_COMPLETED, looks)])
    made.run()
    assert made.engine.inferer is given
    assert given.state == 3
    seen()
    return [made.result(), found]


@case
def what_a_handler_puts_in_place_is_used_and_stays():
    class Other(Waits):
        pass

    def replaces(engine):
        engine.inferer = Other(0.005)

    made = Trained(loader(4), handlers=[On(Events.ITERATION_COMPLETED(once=1), replaces)])
    made.run()
    s = seen()
    if s:
        assert within(5, s.ms("forward")[1:], 20)
    return [made.result(), type(made.engine.inferer).__name__]


@case
def what_is_put_into_the_trainers_dictionary_is_used_at_once():
    class Other(Waits):
        pass

    sizes = []

    def replaces(engine):
        sizes.append(len(gc.get_referents(engine)))
        if engine.state.iteration == 25:  # among plain steps
            vars(engine)["inferer"] = Other(0.005)
        if engine.state.iteration == 27:
            vars(engine).update(inferer=SimpleInferer())
        if engine.state.iteration == 29:
            engine.__dict__ = {**vars(engine), "inferer": Other(0.005)}
        if engine.state.iteration == 31:
            engine.inferer = Other(0.01)

    made = Trained(loader(35), handlers=[On(Events.ITERATION_COMPLETED, replaces)])
    made.run()
    s = seen()
    if s:
        forward = s.ms("forward")
        assert within(5, [*forward[25:27], *forward[29:31]], 20)
        assert within(10, forward[31:], 30)
        assert min(forward[27:29]) < 5
        assert s.column("updates") == [1] * 35
    return [made.result(), sizes, type(made.engine.inferer).__name__]


@case
def an_attribute_that_is_missing_is_missing():
    said = []

    def deletes(engine):
        if engine.state.iteration == 25:
            del engine.inferer
            try:
                del engine.inferer
            except AttributeError:
                said.append("gone already")

    made = Trained(loader(30), handlers=[On(Events.ITERATION_COMPLETED, deletes)])
    try:
        made.run()
    except AttributeError as error:
        said.append(str(error))
    s = seen()
    if s:
        assert len(s.steps) == 25
        assert s.aborted == 1
    made.engine.inferer = SimpleInferer()
    made.engine.state.max_epochs = 2
    made.run()
    seen()
    return [made.result(), said]


@case
def a_second_trainer_reads_its_own_while_another_runs():
    other = Trained(loader(2))

    def looks(engine):
        mine = other.engine
        found.append([mine.network is other.net, mine.network is not engine.network, mine.inferer is given])
        mine.inferer = mine.inferer

    found = []
    given = other.engine.inferer
    made = Trained(loader(30), handlers=[On(Events.ITERATION_COMPLETED, looks)])
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 30
    return [made.result(), found, "network" in vars(SupervisedTrainer)]


@case
def readings_by_handlers_and_threads_mean_nothing():
    stop = threading.Event()

    def reads(engine):
        return engine.prepare_batch, engine.network, engine.optimizer, engine.inferer

    made = Trained(
        loader(5),
        first=[On(event, reads) for event in [*Events, *IterationEvents] if event.name != "EXCEPTION_RAISED"][
            :-1
        ],
    )

    def other_thread():
        while not stop.is_set():
            reads(made.engine)
            time.sleep(0.0002)

    thread = threading.Thread(target=other_thread)
    thread.start()
    try:
        made.run()
    finally:
        stop.set()
        thread.join()
    s = seen()
    if s:
        assert s.column("updates") == s.column("microbatches") == [1] * 5
        for phase in PHASES:
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return made.result()


@case
def nothing_of_ours_stays_in_the_engine():
    made = Trained(loader(3), handlers=[sleeps(Events.ITERATION_COMPLETED, 0)])
    before = {key: id(value) for key, value in vars(made.engine).items()}
    made.run()
    assert set(vars(made.engine)) == set(before)
    kinds = {type(entries) for entries in made.engine._event_handlers.values()}
    assert kinds == {list}
    assert "traceml" not in repr(vars(made.engine))
    hooks = [*made.optimizer._optimizer_step_pre_hooks, *made.optimizer._optimizer_step_post_hooks]
    seen()
    return [made.result(), len(hooks), hasattr(made.engine, "nothing")]


@case
def handlers_may_add_and_remove_handlers_while_it_runs():
    calls = []

    def late(_engine):
        calls.append("late")

    def changes(engine):
        calls.append("changes")
        if engine.state.iteration == 1:
            engine.add_event_handler(Events.ITERATION_COMPLETED, late)
        if engine.state.iteration == 3:
            engine.remove_event_handler(late, Events.ITERATION_COMPLETED)
        calls.append(engine.has_event_handler(late, Events.ITERATION_COMPLETED))

    made = Trained(loader(4))
    made.engine.add_event_handler(Events.ITERATION_COMPLETED, changes)
    made.run()
    seen()
    return [made.result(), calls]


@case
def a_subclass_that_inherits_the_iteration_is_measured():
    class Own(SupervisedTrainer):
        def run(self):
            return super().run()

    made = train(loader(4), kind=Own)
    s = seen()
    if s:
        assert len(s.steps) == 4
    return made.result()


@case
def a_compiled_network_is_measured():
    made = train(loader(3), compile=True, compile_kwargs={"backend": "eager"})
    s = seen()
    if s:
        assert len(s.steps) == 3
        assert all(v > 0 for v in s.column("forward_ns"))
    return made.result()


@case
def a_handler_by_hand_is_the_same():
    if TRACED:
        from traceml_ai.integrations import monai as traceml_monai

        handlers = [traceml_monai.TraceMLHandler()]
    else:
        handlers = []
    made = train(loader(4), first=handlers)
    s = seen()
    if s:
        assert s.column("updates") == [1] * 4
    return made.result()


# -- plain steps ------------------------------------------------------------------------------


def _is_noted():
    """Whether the steps are only noted; not at all without TraceML."""
    if not TRACED:
        return False
    from traceml_ai.probe import session

    return session.current.st.telling is not None


def held_out_of(made, data):
    """What validates the net that is trained."""
    return SupervisedEvaluator(
        device=torch.device("cpu"), val_data_loader=data, network=made.net, decollate=False
    )


@case
def plain_steps_are_only_noted_and_say_the_same():
    noted = []
    made = Trained(
        loader(40, sleep_s=0.002),
        handlers=[On(Events.ITERATION_COMPLETED, lambda _e: noted.append(_is_noted()))],
        loss_function=lambda pred, target: time.sleep(0.001) or nn.functional.mse_loss(pred, target),
        postprocessing=lambda item: time.sleep(0.0005) or item,
    )
    made.run()
    s = seen()
    if s:
        assert sum(noted) > 20  # a collection ends them for a step or two
        assert within(2, s.ms("input_wait"), 9)
        assert within(3, s.ms("residual_other"), 14)
        assert s.column("samples") == [4] * 40
        assert s.column("global_step") == list(range(1, 41))
        assert s.column("updates") == s.column("microbatches") == s.column("fetches") == [1] * 40
        assert s.parts["loss"] >= 38
        assert s.parts["postprocessing"] >= 38 * 2
        assert s.handlers["Losses"] > 0
        assert sum(s.parts.values()) <= s.total_ms("residual_other") + 1
    return made.result()


@case
def lists_of_handlers_that_are_looked_at_or_replaced_lose_no_input_wait():
    def other(_engine):
        pass

    found = []

    def looks(engine):
        if engine.state.iteration % 9 == 0:
            found.append(engine.has_event_handler(other, Events.GET_BATCH_STARTED))
        if engine.state.iteration == 12:
            engine.add_event_handler(Events.GET_BATCH_STARTED, other)
        if engine.state.iteration == 21:
            engine.remove_event_handler(other, Events.GET_BATCH_STARTED)

    made = Trained(loader(20, sleep_s=0.004), handlers=[On(Events.ITERATION_COMPLETED, looks)], max_epochs=2)
    made.run()
    s = seen()
    if s:
        assert within(4, s.ms("input_wait"), 14)
    return [made.result(), found]


@case
def validation_among_plain_steps_is_validation():
    def validates(engine):
        if engine.state.iteration % 10 == 0:
            held_out.run()

    made = Trained(loader(40), handlers=[On(Events.ITERATION_COMPLETED, validates)])
    held_out = held_out_of(made, loader(2, sleep_s=0.003))
    made.run()
    s = seen()
    if s:
        assert s.total_ms("between_validation") >= 3 * 2 * 3
        assert s.column("updates") == [1] * 40
        assert min(s.ms("input_wait")) < 3
    return made.result()


@case
def an_optimizer_that_steps_only_now_and_then_among_plain_steps():
    class Lazy(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls in (25, 26, 31):
                return None
            return super().step(closure)

    made = Trained(loader(36), optimizer=lambda parameters: Lazy(parameters, lr=1e-2))
    made.run()
    s = seen()
    if s:
        skipped = [i + 1 in (25, 26, 31) for i in range(36)]
        assert s.column("updates") == [int(not s) for s in skipped]
        assert s.flagged(SKIPPED) == skipped
        assert all(v > 0 for v in s.column("optimizer_ns"))
    return made.result()


@case
def backwards_at_other_places_of_plain_steps_are_backwards():
    class Looks(torch.optim.Optimizer):
        calls = 0

        @torch.no_grad()
        def step(self):
            self.calls += 1
            if self.calls == 27:
                with torch.enable_grad():
                    hard()
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(parameter.grad, alpha=-0.01)

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * 2

        @staticmethod
        def backward(_ctx, gradient):
            time.sleep(0.005)
            return gradient * 2

    def hard():
        Slow.apply(torch.ones(1, requires_grad=True)).sum().backward()

    def prepares(batch, *args, **kwargs):
        calls.append(len(calls))
        if len(calls) == 24:
            hard()
        return default_prepare_batch(batch, *args, **kwargs)

    calls = []
    made = Trained(loader(33), prepare_batch=prepares, optimizer=lambda p: Looks(p, {}))
    made.run()
    s = seen()
    if s:
        assert len(s.steps) == 33
        assert s.column("updates") == [1] * 33
        backward, optimizer = s.ms("backward"), s.ms("optimizer")
        assert backward[23] >= 5
        assert max(backward[26], optimizer[26]) >= 5
        assert sum(value >= 5 for value in backward) <= 2
    return made.result()


@case
def what_is_put_around_a_backward_among_plain_steps_stays():
    found, before = [], torch.autograd.backward

    def around(*args, **kwargs):
        found.append(1)
        return inner(*args, **kwargs)

    inner = None

    def replaces(engine):
        nonlocal inner
        if engine.state.iteration == 24:
            inner, torch.autograd.backward = torch.autograd.backward, around
        if engine.state.iteration == 27:
            torch.autograd.backward = inner

    made = Trained(loader(32), handlers=[On(Events.ITERATION_COMPLETED, replaces)])
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == s.column("microbatches") == [1] * 32
        assert all(v > 0 for v in s.column("backward_ns"))
    return [made.result(), len(found), torch.autograd.backward is before]


@case
def an_error_in_a_backward_among_plain_steps_leaves_everything_in_place():
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x

        @staticmethod
        def backward(_ctx, gradient):
            if made.engine.state.iteration == 25:
                raise RuntimeError("in the backward")
            return gradient

    before = torch.autograd.backward, torch.optim.Adam.step
    made = Trained(loader(30), inferer=lambda x, network: Breaks.apply(network(x)))
    said = ""
    try:
        made.run()
    except RuntimeError as error:
        said = str(error)
    s = seen()
    if s:
        assert len(s.steps) == 24
        assert s.aborted == 1
    return [made.result(), said, before == (torch.autograd.backward, torch.optim.Adam.step)]


@case
def what_is_put_into_the_trainers_dictionary_within_a_step_is_used_in_it():
    class Other(Waits):
        pass

    def prepares(batch, *args, **kwargs):
        if made.engine.state.iteration == 25:
            vars(made.engine)["inferer"] = Other(0.005)
        return default_prepare_batch(batch, *args, **kwargs)

    def swaps(pred, target):
        if made.engine.state.iteration == 28:
            vars(made.engine)["optimizer"] = torch.optim.SGD(made.net.parameters(), lr=0.5)
        return nn.functional.mse_loss(pred, target)

    made = Trained(loader(32), prepare_batch=prepares, loss_function=swaps)
    made.run()
    s = seen()
    if s:
        assert within(5, s.ms("forward")[24:], 20)
        assert min(s.ms("forward")[:24]) < 5
        assert s.column("updates") == [1] * 32
    return made.result()


@case
def a_subclass_that_keeps_its_attributes_elsewhere_is_read_there():
    class Elsewhere(SupervisedTrainer):
        def __setattr__(self, name, value):
            if name == "network":
                self.__dict__.setdefault("kept", {})[name] = value
            else:
                super().__setattr__(name, value)

        def __getattr__(self, name):
            if name == "network":
                return self.__dict__["kept"][name]
            raise AttributeError(name)

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    def replaces(engine):
        if engine.state.iteration == 25:
            engine.network = Doubled(made.net)

    made = Trained(loader(32), kind=Elsewhere, handlers=[On(Events.ITERATION_COMPLETED, replaces)])
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == [1] * 32
    return [made.result(), type(made.engine.network).__name__]


@case
def a_trainer_that_is_not_hashable_is_measured():
    class Equal(SupervisedTrainer):  # noqa: PLW1641 - without a hash, as Python has it
        def __eq__(self, other):
            return self is other

    made = train(loader(4), kind=Equal)
    s = seen()
    if s:
        assert s.column("updates") == [1] * 4
    return made.result()


@case
def a_compiled_loss_that_reads_the_trainer_is_compiled_as_without():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    def loss(pred, target):
        return nn.functional.mse_loss(pred, target) + made.engine.network.out.bias.square().sum()

    made = Trained(loader(40), loss_function=torch.compile(loss, backend=backend, fullgraph=True))
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == [1] * 40
    return [made.result(), graphs]


@case
def a_scheduler_that_is_made_among_plain_steps_hides_no_update():
    def makes(engine):
        if engine.state.iteration == 25:
            made.schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, 100)
        if engine.state.iteration == 30:
            held_out.run()

    made = Trained(loader(40), handlers=[On(Events.ITERATION_COMPLETED, makes)])
    held_out = held_out_of(made, loader(2))
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == [1] * 40
        assert s.flagged(SKIPPED) == [False] * 40
    return made.result()


@case
def what_is_put_around_the_firing_of_events_among_plain_steps_loses_none():
    fired = []

    def replaces(engine):
        if engine.state.iteration == 25:
            inner = engine._fire_event

            def logged(name, *args, **kwargs):
                fired.append(str(name))
                return inner(name, *args, **kwargs)

            engine._fire_event = logged
        if engine.state.iteration == 30:
            held_out.run()

    made = Trained(loader(40), handlers=[On(Events.ITERATION_COMPLETED, replaces)])
    held_out = held_out_of(made, loader(2))
    made.run()
    s = seen()
    if s:
        assert s.column("updates") == s.column("microbatches") == s.column("fetches") == [1] * 40
        for phase in PHASES:
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return [made.result(), fired]


@case
def a_skipped_update_is_one_though_the_parameters_change_otherwise():
    class Guards(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls % 3 == 0:
                return None
            return super().step(closure)

    def clips(_engine):
        with torch.no_grad():
            for parameter in made.net.parameters():
                parameter.clamp_(-1, 1)

    made = Trained(
        loader(45), optimizer=lambda p: Guards(p, lr=1e-2), handlers=[On(Events.ITERATION_COMPLETED, clips)]
    )
    made.run()
    s = seen()
    if s:
        assert s.flagged(SKIPPED) == [i % 3 == 2 for i in range(45)]
        assert sum(s.column("updates")) == 30
    return made.result()


@case
def a_thread_that_asks_for_handlers_or_attributes_moves_no_phase():
    stop = threading.Event()

    def other(_engine):
        pass

    def asks():
        while not stop.is_set():
            for event in (
                Events.ITERATION_COMPLETED,
                Events.GET_BATCH_STARTED,
                IterationEvents.MODEL_COMPLETED,
            ):
                made.engine.has_event_handler(other, event)
                made.engine.has_event_handler(made.losses, event)
            _ = made.engine.network, made.engine.optimizer, made.engine.inferer
            time.sleep(0.0005)

    def prepares(batch, *args, **kwargs):
        time.sleep(0.003)
        return default_prepare_batch(batch, *args, **kwargs)

    made = Trained(loader(60), prepare_batch=prepares)
    thread = threading.Thread(target=asks)
    thread.start()
    try:
        made.run()
    finally:
        stop.set()
        thread.join()
    s = seen()
    if s:
        assert s.column("updates") == s.column("microbatches") == [1] * 60
        assert s.parts["prepare_batch"] >= 3 * 58
        assert min(s.ms("forward")) < 3
    return made.result()


@case
def a_prepare_batch_that_reads_the_trainer_is_no_other_part():
    def prepares(batch, *args, **kwargs):
        _ = made.engine.network, made.engine.optimizer, made.engine.inferer
        time.sleep(0.003)
        return default_prepare_batch(batch, *args, **kwargs)

    made = Trained(loader(40), prepare_batch=prepares)
    made.run()
    s = seen()
    if s:
        assert s.parts["prepare_batch"] >= 3 * 38
        assert min(s.ms("forward")) < 3
        assert s.parts["zero_grad"] < s.parts["prepare_batch"] / 2
    return made.result()


@case
def a_handler_that_raises_among_plain_steps_and_is_forgiven():
    def fails(engine):
        if engine.state.iteration == 26:
            raise ValueError("forgiven")

    def forgives(engine):
        if engine.state.iteration == 24:
            engine.add_event_handler(Events.EXCEPTION_RAISED, lambda _engine, _error: None)

    def slow(_engine):
        time.sleep(0.001)

    made = Trained(
        loader(40),
        max_epochs=2,
        handlers=[On(Events.ITERATION_COMPLETED, f) for f in (forgives, slow, fails)],
    )
    made.run()
    s = seen()
    if s:
        assert sum(s.column("updates")) == len(s.steps) == made.engine.state.iteration
        assert s.flagged(SKIPPED) == [False] * len(s.steps)
        assert s.total_ms("between_handlers") >= len(s.steps) - 3
    return made.result()


@case
def a_failed_step_is_aborted_though_the_forgiving_handler_came_late():
    def infers(x, network):
        if made.engine.state.iteration == 26:
            raise ValueError("forgiven")
        return network(x)

    def forgives(engine):
        if engine.state.iteration == 24:
            engine.add_event_handler(Events.EXCEPTION_RAISED, lambda _engine, _error: None)

    made = Trained(
        loader(40), max_epochs=2, inferer=infers, handlers=[On(Events.ITERATION_COMPLETED, forgives)]
    )
    made.run()
    s = seen()
    if s:
        assert s.aborted == 1
        assert s.column("fetches") == s.column("updates") == [1] * len(s.steps)
    return made.result()


if __name__ == "__main__":
    import by_hand  # noqa: F401 - its cases come after these

    main()
