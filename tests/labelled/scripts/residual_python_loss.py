# label: RESIDUAL_HEAVY
# phase: residual
from _parts import batches, mlp, sgd, update
from torch.nn import functional


def loss_in_python(logits, y):
    """Weighs each sample by a ranking worked out in plain Python."""
    rows = logits.detach().tolist()
    weights = []
    for _ in range(12):
        weights = [sum(a > b for a in row for b in row) / len(row) ** 2 for row in rows]
    return functional.cross_entropy(logits, y) * (1 + sum(weights) / len(weights))


model = mlp()
optimizer = sgd(model)
for x, y in batches(100):
    update(model, optimizer, x, y, loss_in_python)
