# label: COMPUTE_BOUND
# Reading the loss every step is cheap on a processor.
from _parts import batches, mlp, sgd, update

model = mlp(width=512)
optimizer = sgd(model)
smooth = 0.0
for i, (x, y) in enumerate(batches(150)):
    loss = update(model, optimizer, x, y)
    smooth = 0.9 * smooth + 0.1 * loss.item()
    print(f"step {i} loss {loss.item():.4f} smooth {smooth:.4f}")
