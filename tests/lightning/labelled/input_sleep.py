# label: INPUT_BOUND
# phase: input_wait
# check: run.framework == "lightning"
from _parts import Net, batches, fit

fit(Net(), batches(100, 8, sleep_s=0.002))
