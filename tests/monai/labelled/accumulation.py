# label: COMPUTE_BOUND
# check: run.accumulation == 4
# check: run.microbatches == 4 * run.steps
# never: PERIODIC_STALL
from _parts import loader, network, trainer

trainer(loader(120), network(20), accumulation_steps=4).run()
