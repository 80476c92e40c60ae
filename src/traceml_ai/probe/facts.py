"""What this process says about itself, gathered off the step path and written as JSON."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from traceml_ai.schema.facts import LoaderFacts, ProbeWarning, ProcessFacts
from traceml_ai.spool import layout

_MAX_WARNINGS = 50
_MAX_LOADERS = 8


class Facts:
    """The facts of one process and where they are written.

    Args:
        folder: The spool folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._described: weakref.WeakSet[Any] = weakref.WeakSet()
        self.values: ProcessFacts = {
            "pid": os.getpid(),
            "node": os.uname().nodename if hasattr(os, "uname") else "",
            "framework": "pytorch",
            "mode": "inferred",
            "attempt": elastic_attempt(os.environ),
            "agent": os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0,
            "python_version": ".".join(map(str, sys.version_info[:3])),
            "loaders": [],
            "optimizers": [],
            "model": [],
            "user_phases": [],
            "warnings": [],
            "aborted_steps": 0,
            "dropped_groups": 0,
            "clean_exit": False,
            "window_open": False,
            "attach_cost_ns": 0,
        }

    def warn(self, probe: str, message: str) -> bool:
        """Record something that was not seen; False when it was said before (or too much was)."""
        warning: ProbeWarning = {"probe": probe, "message": message}
        known = self.values["warnings"]
        if warning in known or len(known) >= _MAX_WARNINGS:
            return False
        known.append(warning)
        return True

    def add_loader(self, loader: Any) -> None:
        """Describe one training loader, once: its length may be a computation of the user's."""
        try:
            if loader in self._described:
                return
            self._described.add(loader)
        except TypeError:  # neither hashable nor weakly referable
            return
        described = describe_loader(loader)
        known = self.values["loaders"]
        if described not in known and len(known) < _MAX_LOADERS:
            known.append(described)

    def write(self) -> None:
        """Write the facts, replacing the file as a whole. Errors are swallowed: facts are optional."""
        path = os.path.join(self.folder, layout.facts_name(os.getpid()))
        temporary = path + ".tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self.values, file)
            os.chmod(temporary, 0o600)
            os.replace(temporary, path)
        except Exception:  # noqa: BLE001 - never worth the training
            return


def elastic_attempt(environ: Mapping[str, str]) -> int:
    """How often torchrun has restarted the job."""
    count = environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def describe_loader(loader: Any) -> LoaderFacts:
    """A loader's settings as its attributes tell them; nothing of the user's is called."""
    context = getattr(loader, "multiprocessing_context", None)
    facts: LoaderFacts = {
        "kind": type(loader).__name__,
        "batch_size": _batch_size(loader),
        "num_workers": getattr(loader, "num_workers", 0),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
        "pin_memory": bool(getattr(loader, "pin_memory", False)),
        "multiprocessing_context": None if context is None else type(context).__name__,
    }
    return facts


def describe_torch(torch: Any) -> ProcessFacts:
    """Versions, devices, threads and precision; no call here may start a device."""
    facts: ProcessFacts = {
        "torch_version": str(torch.__version__),
        "torch_threads": int(torch.get_num_threads()),
        "devices": ["cpu"],
    }
    cuda = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        index = cuda.current_device()
        facts["devices"] = [f"cuda:{index} {cuda.get_device_name(index)}"]
        driver = driver_version()
        if driver is not None:
            facts["driver_version"] = driver
    return facts


def driver_version(told: str = "/proc/driver/nvidia/version") -> str | None:
    """Version of NVIDIA's kernel driver; None where there is none.

    Args:
        told: The file in which the driver tells it, in a line such as ``NVRM version: NVIDIA UNIX x86_64
            Kernel Module  550.54.15  Tue Mar ...``.
    """
    try:
        with open(told, encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def _batch_size(loader: Any) -> int | None:
    """Samples a batch: the loader's own setting, or its batch sampler's."""
    own = getattr(loader, "batch_size", None)
    if own is None:
        own = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return own if isinstance(own, int) else None


_SHORT_DTYPES = {"float32": "32", "float64": "64", "float16": "16", "bfloat16": "bf16"}


def precision(torch: Any, optimizers: list[Any]) -> str | None:
    """Precision of the computation, in the words trainers use: ``32-true``, ``bf16-mixed``, ...

    Args:
        torch: The torch module, asked for autocast as it is now.
        optimizers: Optimizers whose first parameter tells the dtype without autocast.
    """
    kind = "cuda" if torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
    if torch.is_autocast_enabled(kind):
        return f"{_short(torch.get_autocast_dtype(kind))}-mixed"
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                return f"{_short(parameter.dtype)}-true"
    return None


def _short(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return _SHORT_DTYPES.get(name, name)
