# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.validation_s > 0.7 * time.between_steps_s
# check: next(iter(time.handlers)) == "ValidationHandler"
import torch
from _parts import loader, network, trainer
from monai.engines import SupervisedEvaluator
from monai.handlers import ValidationHandler

net = network()
evaluator = SupervisedEvaluator(device=torch.device("cpu"), val_data_loader=loader(30), network=net)
trainer(
    loader(12), net, max_epochs=7, train_handlers=[ValidationHandler(interval=1, validator=evaluator)]
).run()
