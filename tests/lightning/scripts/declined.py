"""Fits that are not attached to; each is said once, and trains as ever."""

import json
import sys
from pathlib import Path

from _kit import NAMESPACE, L, Small, fit, loader
from lightning.pytorch.strategies import SingleDeviceStrategy

import traceml
from traceml_ai.errors import UsageError
from traceml_ai.integrations import lightning as traceml_lightning


class Odd(SingleDeviceStrategy):
    def training_step(self, *args, **kwargs):
        return super().training_step(*args, **kwargs)


L.seed_everything(3, verbose=False)
model = Small()
if sys.argv[3] == "strategy":
    fit(model, loader(4), strategy=Odd(device="cpu"))
    fit(model, loader(4), strategy=Odd(device="cpu"))
elif sys.argv[3] == "mode":
    traceml.init(mode="manual")
    fit(model, loader(4))
    try:
        traceml_lightning.init()
    except UsageError:
        model.losses.append("refused")
elif sys.argv[3] == "selective":
    traceml.init(mode="selective", patch_optimizer=True)
    fit(model, loader(4))
Path(sys.argv[1]).write_text(json.dumps({"losses": model.losses, "namespace": NAMESPACE}))
