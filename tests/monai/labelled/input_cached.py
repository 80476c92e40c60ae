# label: COMPUTE_BOUND BALANCED
# The same transform, done once before training.
from _parts import Slow, items, network, trainer
from monai.data import CacheDataset, DataLoader

data = CacheDataset(items(20), Slow(0.02), progress=False)
trainer(DataLoader(data, batch_size=2), network(16), max_epochs=10).run()
