# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.checkpoint_s > 0.7 * time.between_steps_s
import torch
from _parts import Net, batches, fit
from lightning.pytorch.callbacks import ModelCheckpoint


class Large(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(12_000_000))


keep = ModelCheckpoint(dirpath="kept", every_n_train_steps=3, save_top_k=1)
fit(Large(), batches(90), callbacks=[keep], enable_checkpointing=True)
