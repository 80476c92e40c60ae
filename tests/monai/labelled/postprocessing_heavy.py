# label: RESIDUAL_HEAVY
# phase: residual
# check: "postprocessing" in primary.why
# check: step_time.residual_by_cause["postprocessing"] > 15
from _parts import loader, spin, trainer


def postprocess(item):
    spin(0.01)
    return item


trainer(loader(80), postprocessing=postprocess).run()
