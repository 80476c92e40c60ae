# label: INPUT_BOUND
# phase: input_wait
# check: run.framework == "monai"
from _parts import Slow, loader, trainer

trainer(loader(80, transform=Slow(0.02))).run()
