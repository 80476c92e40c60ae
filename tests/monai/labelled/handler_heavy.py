# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.handlers_s > 0.7 * time.between_steps_s
# check: next(iter(time.handlers)) == "Plots"
# check: "(Plots " in primary.why
from _parts import Handler, loader, spin, trainer
from ignite.engine import Events


class Plots(Handler):
    pass


trainer(loader(80), train_handlers=[Plots(Events.ITERATION_COMPLETED, lambda _engine: spin(0.02))]).run()
