# label: EPOCH_START_STALL
# also: INPUT_BOUND
# Epochs of ten steps, and two workers that start anew for each.
from _parts import batches, mlp, sgd, update

if __name__ == "__main__":
    model = mlp()
    optimizer = sgd(model)
    loader = batches(10, 32, num_workers=2)
    for _ in range(12):
        for x, y in loader:
            update(model, optimizer, x, y)
