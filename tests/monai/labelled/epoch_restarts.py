# label: EPOCH_START_STALL
# also: INPUT_BOUND OUTSIDE_HEAVY
# check: time.between_by_cause.loader_s > 0.7 * time.between_steps_s
# Epochs of eight steps, and two workers that stop and start anew for each.
from _parts import loader, trainer

if __name__ == "__main__":
    trainer(loader(8, num_workers=2), max_epochs=12).run()
