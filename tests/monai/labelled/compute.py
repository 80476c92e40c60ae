# label: COMPUTE_BOUND
# check: run.updates == run.steps == 60
from _parts import loader, network, trainer

trainer(loader(60), network(24)).run()
