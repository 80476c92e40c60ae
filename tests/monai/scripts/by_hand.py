"""Trainers with a handler by hand: what is refused, and what is measured batch by batch."""

from _thread import get_ident

from _kit import (
    TRACED,
    Events,
    Net,
    On,
    SupervisedTrainer,
    Trained,
    case,
    loader,
    nn,
    seen,
    torch,
    train,
)
from monai.engines import AdversarialTrainer, GanTrainer, SupervisedEvaluator
from monai.engines.utils import default_prepare_batch

from traceml_ai.integrations import monai as traceml_monai


def own_update(engine, batch):
    engine.network.train()
    engine.optimizer.zero_grad()
    loss = nn.functional.mse_loss(engine.network(batch["image"]), batch["label"])
    loss.backward()
    engine.optimizer.step()
    return {"loss": loss.item()}


class Own(SupervisedTrainer):
    def _iteration(self, engine, batchdata):
        return super()._iteration(engine, batchdata)


class Replaces(SupervisedTrainer):
    @property
    def inferer(self):
        return self.__dict__["own_inferer"]

    @inferer.setter
    def inferer(self, value):
        self.__dict__["own_inferer"] = value


def batches(items):
    return torch.utils.data.DataLoader(items, batch_size=4)


def gan(**options):
    torch.manual_seed(1)
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    data = batches([{"reals": torch.ones(8) * i} for i in range(20)])
    engine = GanTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=data,
        g_network=generator,
        g_optimizer=torch.optim.SGD(generator.parameters(), lr=0.01),
        g_loss_function=lambda fakes: critic(fakes).mean(),
        d_network=critic,
        d_optimizer=torch.optim.SGD(critic.parameters(), lr=0.01),
        d_loss_function=lambda fakes, reals: critic(fakes).mean() - critic(reals).mean(),
        latent_shape=4,
        **options,
    )
    engine.run()
    return [float(generator.weight.sum()).hex(), float(critic.weight.sum()).hex()]


def adversarial(**options):
    torch.manual_seed(1)
    generator, critic = nn.Linear(8, 8), nn.Linear(8, 1)
    data = batches([{"image": torch.ones(8) * i, "label": torch.ones(8)} for i in range(20)])
    engine = AdversarialTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=data,
        g_network=generator,
        g_optimizer=torch.optim.SGD(generator.parameters(), lr=0.01),
        g_loss_function=lambda logits: -logits.mean(),
        recon_loss_function=nn.functional.l1_loss,
        d_network=critic,
        d_optimizer=torch.optim.SGD(critic.parameters(), lr=0.01),
        d_loss_function=lambda real, fake: fake.mean() - real.mean(),
        **options,
    )
    engine.run()
    return [float(generator.weight.sum()).hex(), float(critic.weight.sum()).hex()]


def evaluate(**options):
    engine = SupervisedEvaluator(
        device=torch.device("cpu"), val_data_loader=loader(2), network=Net(), **options
    )
    engine.run()
    return engine.state.iteration


def handler(**options):
    return [traceml_monai.TraceMLHandler(**options)]


@case
def a_gan_is_refused():
    return [gan(train_handlers=handler()), gan()]


@case
def an_adversarial_trainer_is_refused():
    return adversarial(train_handlers=handler())


@case
def an_evaluator_is_refused():
    return [evaluate(val_handlers=handler()), evaluate()]


@case
def an_iteration_of_its_own_is_refused():
    return train(loader(3), iteration_update=own_update, first=handler(), decollate=False).result()


@case
def an_overridden_iteration_is_refused():
    return train(loader(3), kind=Own, first=handler()).result()


@case
def a_replaced_attribute_is_refused():
    return train(loader(3), kind=Replaces, first=handler()).result()


@case
def a_second_handler_is_refused_and_the_first_one_measures():
    made = train(loader(3), first=[*handler(), *handler()])
    s = seen()
    if s:
        assert s.column("updates") == [1] * 3
    return made.result()


@case
def a_gan_is_measured_batch_by_batch():
    result = gan(train_handlers=handler(batch_scoped=True))
    s = seen()
    if s:
        assert len(s.steps) == 5
        assert s.column("updates") == [2] * 5
        for phase in ("input_wait", "forward", "backward", "optimizer"):
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return result


@case
def an_adversarial_trainer_is_measured_batch_by_batch():
    result = adversarial(train_handlers=handler(batch_scoped=True))
    s = seen()
    if s:
        assert len(s.steps) == 5
        assert s.column("updates") == [2] * 5
        assert all(v > 0 for v in s.column("forward_ns"))
    return result


@case
def an_iteration_of_its_own_is_measured_batch_by_batch():
    slow = On(Events.ITERATION_COMPLETED, lambda _e: None)
    made = train(
        loader(6),
        iteration_update=own_update,
        first=handler(batch_scoped=True),
        handlers=[slow],
        decollate=False,
    )
    s = seen()
    if s:
        assert len(s.steps) == 6
        assert s.column("updates") == s.column("microbatches") == s.column("fetches") == [1] * 6
        assert s.column("samples") == [4] * 6
        for phase in ("input_wait", "forward", "backward", "optimizer", "residual_other"):
            assert all(v > 0 for v in s.column(phase + "_ns")), phase
    return made.result()


@case
def an_overridden_iteration_is_measured_batch_by_batch():
    made = train(loader(4), kind=Own, first=handler(batch_scoped=True))
    s = seen()
    if s:
        assert len(s.steps) == 4
        assert s.column("updates") == [1] * 4
        assert all(v > 0 for v in s.column("forward_ns"))
    return made.result()


@case
def a_standard_trainer_is_measured_by_its_updates_all_the_same():
    made = train(loader(4), first=handler(batch_scoped=True), accumulation_steps=2)
    s = seen()
    if s:
        assert s.column("microbatches") == [2, 2]
    return made.result()


@case
def a_step_that_raises_is_aborted():
    def fails(engine, batch):
        if engine.state.iteration == 3:
            raise RuntimeError
        return own_update(engine, batch)

    made = Trained(loader(4), iteration_update=fails, first=handler(batch_scoped=True), decollate=False)
    try:
        made.run()
    except RuntimeError:
        pass
    s = seen()
    if s:
        assert len(s.steps) == 2
        assert s.aborted == 1
    return made.result()


def _moves(batch, device, non_blocking, **kwargs):
    batch["image"].to("meta"), batch["label"].to(device="meta")
    return default_prepare_batch(batch, device, non_blocking, **kwargs)


@case
def transfers_of_prepare_batch_are_transfer_on_a_device():
    own = torch.Tensor.to
    if TRACED:
        # What is put in place where there is an accelerator; "meta" stands in for one here.
        from traceml_ai.probe import patches, session

        torch.Tensor.to = patches.timed_to(session.current.st, own, get_ident)
    try:
        made = train(
            loader(4),
            prepare_batch=_moves,
            handlers=[On(Events.ITERATION_COMPLETED, lambda _e: torch.ones(1).to("meta"))],
        )
    finally:
        torch.Tensor.to = own
    s = seen()
    if s:
        assert all(v > 0 for v in s.column("h2d_ns"))
        assert s.parts["prepare_batch"] > 0
    return made.result()
