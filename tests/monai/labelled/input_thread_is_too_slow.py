# label: INPUT_BOUND
from _parts import Slow, items, trainer
from monai.data import Dataset, ThreadDataLoader

trainer(ThreadDataLoader(Dataset(items(160), Slow(0.025)), batch_size=2)).run()
