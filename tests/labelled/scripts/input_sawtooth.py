# label: INPUT_BOUND
# never: PERIODIC_STALL
# Two workers that both take four times as long as a step: waits come in bursts of two.
from _parts import batches, mlp, sgd, update

if __name__ == "__main__":
    model = mlp()
    optimizer = sgd(model)
    for x, y in batches(120, 8, sleep_s=0.004, num_workers=2):
        update(model, optimizer, x, y)
