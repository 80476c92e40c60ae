"""Say what was found on this machine, and what will be n/a and why."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import traceml_ai
from traceml_ai.schema import env

_TORCH_PATIENCE_S = 120
_INTEGRATIONS = ("lightning", "pytorch-lightning", "transformers", "accelerate", "monai", "pytorch-ignite",
                 "deepspeed", "ray")  # fmt: skip
# Of each extra: what it imports, and what is not there without it.
_EXTRAS = {
    "report": (("bokeh", "jinja2"), "no HTML pages"),
    "dashboard": (("bokeh",), "no live page"),
    "wandb": (("wandb",), "no W&B logging"),
    "mlflow": (("mlflow",), "no MLflow logging"),
    "tensorboard": (("tensorboard",), "no event files"),
    "parquet": (("pyarrow",), "no Parquet export"),
    "otlp": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), "no OpenTelemetry metrics"),
    "prometheus": (("prometheus_client",), "no Prometheus endpoint"),
    "nodes": (("zmq",), "no link between nodes"),
    "lightning": (("lightning", "pytorch_lightning"), "no Trainer to measure"),
    "monai": (("monai", "ignite"), "no MONAI trainers"),
    "ignite": (("ignite",), "no engines to measure"),
}
_EITHER = frozenset({"lightning"})  # one of the packages is enough
_DEVICE_PROBE = """
import json, torch
facts = {"version": torch.__version__, "threads": torch.get_num_threads(), "devices": [], "problem": None}
try:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        module = torch.get_device_module(accelerator)
        facts["devices"] = [
            f"{accelerator.type}:{i} {getattr(module, 'get_device_name', lambda i: '')(i)}".strip()
            for i in range(module.device_count())
        ]
except Exception as error:
    facts["problem"] = f"{type(error).__name__}: {error}"
print(json.dumps(facts))
"""


class Check(NamedTuple):
    """One line of the page."""

    topic: str
    found: str  # empty: nothing, which only what is missing tells
    missing: str | None = None  # what will be n/a because of it, and why


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``traceml doctor``."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Read the words."""
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Print what was found to standard output."""
    checks = examine(os.environ)
    if args.json:
        rows = [check._asdict() for check in checks]
        print(json.dumps({"traceml_version": traceml_ai.__version__, "checks": rows}, indent=2))
        return 0
    print(page(checks))
    return 0


def page(checks: list[Check]) -> str:
    """Return the checks as text: what was found, then what will be n/a."""
    shown = [check for check in checks if check.found]
    width = max(len(check.topic) for check in shown)
    lines = [f"{check.topic:<{width}}  {check.found}" for check in shown]
    missing = [f"  {check.topic}: {check.missing}" for check in checks if check.missing]
    return "\n".join([*lines, "", "n/a here:", *(missing or ["  nothing"])])


def examine(environ: Mapping[str, str]) -> list[Check]:
    """Look at everything a run depends on."""
    own = [Check("traceml", traceml_ai.__version__), _python(environ)]
    measured = [_spool(), _memory_per_process(), _clock(), _integrations(), *extras(_is_there)]
    return [*own, *_torch(), *_machine(environ), *measured]


def _python(environ: Mapping[str, str]) -> Check:
    found = f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"
    if env.is_disabled(environ.get(env.DISABLED)):
        return Check("python", found, f"everything: {env.DISABLED} is set")
    return Check("python", found)


def _torch() -> list[Check]:
    """Ask another process about devices: importing torch here would take seconds and the device's memory."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return [Check("torch", "not installed for this python", "steps: only PyTorch training is measured")]
    try:
        output = subprocess.run(
            [sys.executable, "-c", _DEVICE_PROBE],
            capture_output=True,
            text=True,
            timeout=_TORCH_PATIENCE_S,
            check=True,
            env={**os.environ, env.DISABLED: "1"},
        ).stdout
        return [Check("torch", version), _devices(json.loads(output.splitlines()[-1]))]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return [Check("torch", version, f"steps: torch can't be imported here ({type(error).__name__})")]


def _devices(facts: dict[str, Any]) -> Check:
    if facts["devices"]:
        return Check("devices", ", ".join(facts["devices"]))
    reason = facts["problem"] or "there is no accelerator"
    found = f"cpu, {facts['threads']} threads"
    return Check("devices", found, f"device clock, H2D and device memory: {reason}")


def _machine(environ: Mapping[str, str]) -> list[Check]:
    from traceml_ai.collect.files import Files
    from traceml_ai.collect.limits import read_machine
    from traceml_ai.collect.notes import Notes

    notes = Notes()
    machine = read_machine(Files(notes=notes), environ)
    cpus = f"{machine.usable_cpus:g} of {machine.host_cpus} usable (limit: {machine.usable_cpus_source})"
    limit = _gib(machine.memory_limit_bytes) if machine.memory_limit_bytes else "none"
    memory = f"{_gib(machine.memory_total_bytes)} in all, control-group limit: {limit}"
    unread = "; ".join(notes.messages()) or None
    return [Check("processors", cpus), Check("memory", memory, unread)]


def _spool() -> Check:
    from traceml_ai.spool.place import candidates, judge

    places = [judge(folder) for folder in candidates(Path.cwd())]
    good = next((place for place in places if place.refused is None), None)
    refused = "".join(f"; not {place.folder}: {place.refused}" for place in places if place.refused)
    if good is None:
        return Check("step log", f"no place{refused}", "steps: there is nowhere to record them")
    room = f"{good.filesystem or '?'}, {_gib(good.free_bytes)} free"
    return Check("step log", f"{good.folder} ({room}){refused}")


def _memory_per_process() -> Check:
    from traceml_ai.collect.files import Files
    from traceml_ai.collect.sampler import Processes

    if Processes(Files()).pss_bytes(os.getpid()) is not None:
        return Check("worker memory", "PSS, from smaps_rollup")
    return Check("worker memory", "RSS less shared pages", "PSS of workers: the kernel does not give it")


def _clock() -> Check:
    """Measure the host clock: a step is timed with about ten of its readings."""
    rounds = 2000
    begin = time.perf_counter_ns()
    for _ in range(rounds):
        time.perf_counter_ns()
    cost_ns = (time.perf_counter_ns() - begin) / rounds
    resolution_ns = time.get_clock_info("perf_counter").resolution * 1e9
    found = f"perf_counter_ns, {cost_ns:.0f} ns a reading, resolution {resolution_ns:.0f} ns"
    slow_ns = 500  # a clock source other than the processor's own, as in some virtual machines
    return Check("clock", found, "phases below 0.1 ms: the clock is slow here" if cost_ns > slow_ns else None)


def _integrations() -> Check:
    found = [f"{name} {version}" for name in _INTEGRATIONS if (version := _version(name))]
    return Check("frameworks", ", ".join(found) or "none installed (plain loops need none)")


def extras(is_there: Callable[[str], bool]) -> list[Check]:
    """Return a line for the optional extras, and for each that is not installed what that means.

    Args:
        is_there: Whether a module can be imported.
    """
    here: list[str] = []
    gone: list[Check] = []
    for name, (modules, without) in _EXTRAS.items():
        enough = any if name in _EITHER else all
        if enough(is_there(module) for module in modules):
            here.append(name)
        else:
            gone.append(Check(f"[{name}]", "", f"{without} (not installed)"))
    return [Check("extras", ", ".join(here) or "none installed (a run needs none)"), *gone]


def _is_there(module: str) -> bool:
    """Look for a module without importing it: some of them take seconds."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # the package that it would lie in is not there, or half
        return False


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / (1 << 30):.1f} GiB"
