# label: RESIDUAL_HEAVY
# phase: residual
# check: "of it loss" in primary.why
from _parts import loader, spin, trainer
from torch import nn


def loss(pred, target):
    spin(0.02)
    return nn.functional.mse_loss(pred, target)


trainer(loader(80), loss_function=loss).run()
