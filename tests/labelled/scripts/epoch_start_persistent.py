# label: COMPUTE_BOUND BALANCED INPUT_BOUND
# never: EPOCH_START_STALL
# also: INPUT_BOUND
# Workers that live from epoch to epoch, and epochs long enough to pay for their first batch.
from _parts import batches, mlp, sgd, update

if __name__ == "__main__":
    model = mlp(width=768)
    optimizer = sgd(model)
    loader = batches(40, 32, num_workers=1, persistent_workers=True)
    for _ in range(5):
        for x, y in loader:
            update(model, optimizer, x, y)
