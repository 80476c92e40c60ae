# label: INPUT_BOUND
# check: run.num_workers == 1
from _parts import Net, batches, fit

if __name__ == "__main__":
    fit(Net(), batches(120, 8, sleep_s=0.003, num_workers=1))
