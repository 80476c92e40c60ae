# label: COMPUTE_BOUND
from _parts import Net, batches, fit

fit(Net(1024), batches(100, 256))
