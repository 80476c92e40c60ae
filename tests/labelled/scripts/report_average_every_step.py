# from: https://github.com/ecmwf/WeatherGenerator/issues/2520
# label: OUTSIDE_HEAVY
# phase: between_steps
# An average of the weights is brought up to date after every update, parameter by parameter.
import copy

import torch
from _parts import batches, mlp, sgd, update

model = mlp(width=1024, depth=6)
optimizer = sgd(model)
average = copy.deepcopy(model)
for x, y in batches(80, 8):
    update(model, optimizer, x, y)
    with torch.no_grad():
        new = model.state_dict()
        for name, kept in average.state_dict().items():
            kept.copy_(kept * 0.999 + new[name] * 0.001)
