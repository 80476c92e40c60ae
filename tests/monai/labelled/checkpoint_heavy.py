# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.checkpoint_s > 0.7 * time.between_steps_s
# check: next(iter(time.handlers)) == "CheckpointSaver"
import torch
from _parts import loader, network, trainer
from monai.handlers import CheckpointSaver

net = network()
net.register_buffer("table", torch.randn(12_000_000))
saver = CheckpointSaver("kept", {"net": net}, save_interval=3, epoch_level=False, n_saved=1)
trainer(loader(80), net, train_handlers=[saver]).run()
