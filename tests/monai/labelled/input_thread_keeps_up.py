# label: COMPUTE_BOUND
# never: INPUT_BOUND
# The thread sleeps through most of each step, and the loop does not wait.
from _parts import Slow, items, network, trainer
from monai.data import Dataset, ThreadDataLoader

data = ThreadDataLoader(Dataset(items(160), Slow(0.004)), batch_size=2, buffer_size=2)
trainer(data, network(24)).run()
