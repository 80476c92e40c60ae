# label: EPOCH_START_STALL
# also: INPUT_BOUND OUTSIDE_HEAVY
# Workers are started anew in each of many short epochs.
from _parts import Net, batches, fit

if __name__ == "__main__":
    fit(Net(), batches(20, num_workers=2), max_epochs=8)
