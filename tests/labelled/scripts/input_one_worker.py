# label: INPUT_BOUND
# check: run.num_workers == 1
from _parts import batches, mlp, sgd, update

if __name__ == "__main__":
    model = mlp()
    optimizer = sgd(model)
    for x, y in batches(120, 8, sleep_s=0.003, num_workers=1):
        update(model, optimizer, x, y)
