# from: https://github.com/Lightning-AI/pytorch-lightning/issues/11561
# label: COMPUTE_BOUND BALANCED
# never: OUTSIDE_HEAVY RESIDUAL_HEAVY
# check: (time.between_by_cause.checkpoint_s or 0) < 0.3
# Checkpoints are copied between steps and written by a thread: only the copy is time of the loop.
import io
import queue
import threading
import time

import torch
from _parts import batches, mlp, sgd, update

states = queue.Queue()


def write():
    for state in iter(states.get, None):
        torch.save(state, io.BytesIO())
        time.sleep(0.15)  # a slow disk


thread = threading.Thread(target=write)
thread.start()
model = mlp(width=512)
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(200)):
    update(model, optimizer, x, y)
    if i % 20 == 19:
        states.put({name: value.clone() for name, value in model.state_dict().items()})
states.put(None)
thread.join()
