# label: COMPUTE_BOUND BALANCED
# never: OUTSIDE_HEAVY
# A validation and a checkpoint now and then are nobody's fault.
from _parts import Net, batches, fit

if __name__ == "__main__":
    fit(Net(1024), batches(60, 256), batches(4), max_epochs=2, enable_checkpointing=True)
