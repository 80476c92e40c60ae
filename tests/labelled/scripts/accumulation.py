# label: INPUT_BOUND
# check: run.steps == 40
# check: run.updates == 40
# check: run.microbatches == 160
# check: 4 * 8 * 0.9 <= step_time.phases["input_wait"].mean_ms
# check: step_time.phases["input_wait"].share_pct > 60
# Four microbatches a step, each 8 ms in the making.
from _parts import batches, mlp, sgd
from torch.nn import functional

model = mlp(width=256)
optimizer = sgd(model)
for i, (x, y) in enumerate(batches(160, 8, sleep_s=0.001)):
    (functional.cross_entropy(model(x), y) / 4).backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
