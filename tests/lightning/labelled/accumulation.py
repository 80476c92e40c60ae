# label: COMPUTE_BOUND
# check: run.accumulation == 4
# check: run.microbatches == 4 * run.steps
# never: PERIODIC_STALL
from _parts import Net, batches, fit

fit(Net(1024), batches(120, 256), accumulate_grad_batches=4)
