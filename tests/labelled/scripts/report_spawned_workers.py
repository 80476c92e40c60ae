# from: https://github.com/pytorch/pytorch/issues/12831
# label: EPOCH_START_STALL
# also: INPUT_BOUND OUTSIDE_HEAVY
# check: "persistent_workers=True" in primary.next
# Workers are spawned anew for every epoch, and each imports everything first.
from _parts import batches, mlp, sgd, update

if __name__ == "__main__":
    model = mlp()
    optimizer = sgd(model)
    for _ in range(4):
        for x, y in batches(20, num_workers=1, multiprocessing_context="spawn"):
            update(model, optimizer, x, y)
