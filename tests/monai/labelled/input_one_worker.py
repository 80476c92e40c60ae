# label: INPUT_BOUND
# check: run.num_workers == 1
from _parts import Slow, loader, trainer

if __name__ == "__main__":
    trainer(loader(100, transform=Slow(0.025), num_workers=1)).run()
