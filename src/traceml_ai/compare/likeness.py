"""May two sides be compared at all, and what was set or installed differently?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from traceml_ai.compare.command import arguments, program
from traceml_ai.schema.compare import Difference
from traceml_ai.schema.summary import RunSection, Summary

Side: TypeAlias = Sequence[Summary]
Reader: TypeAlias = Callable[[Summary], str | None]

# Batches differ in size where samples per microbatch do by more than an epoch's short last batch explains.
_BATCH_TOLERANCE = 0.1


def settings_of(run: RunSection) -> dict[str, str | None]:
    """Return what must be equal for step times to mean the same; ``None``: not recorded."""
    return {
        "world size": _text(run.world_size),
        "batch size": _text(run.batch_size),
        "accumulation": _text(_accumulation(run)),
        "device": ", ".join(sorted({_device_name(device) for device in run.devices})) or None,
        "precision": run.precision,
        "thread count": _text(run.threads),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _device_name(device: str) -> str:
    """Leave the index out: ``cuda:1 NVIDIA H200`` is as good as ``cuda:0 NVIDIA H200``."""
    kind, _, name = device.partition(" ")
    return f"{kind.partition(':')[0]} {name}".strip()


def _accumulation(run: RunSection) -> int | None:
    """Return microbatches per update: as configured, else as counted."""
    if run.accumulation is not None:
        return run.accumulation
    tried = (run.updates or 0) + run.skipped_updates
    counted = (run.microbatches or 0) / tried if tried else 0.0
    return round(counted) if counted >= 1 else None


def obstacles(a: Side, b: Side) -> list[str]:
    """Return why step times of these runs do not mean the same, one sentence each."""
    found = []
    for name in settings_of(a[0].run):
        seen = [sorted(_recorded(side, name)) for side in (a, b)]
        for label, values in zip("AB", seen, strict=True):
            if len(values) > 1:
                found.append(f"the runs of side {label} differ in {name}: {' and '.join(values)}")
        if all(len(values) == 1 for values in seen) and seen[0] != seen[1]:
            found.append(f"{name} differs: {seen[0][0]} and {seen[1][0]}")
    return found or _unlike_batches(a, b)


def _recorded(side: Side, name: str) -> set[str]:
    values = (settings_of(summary.run)[name] for summary in side)
    return {value for value in values if value is not None}


def _unlike_batches(a: Side, b: Side) -> list[str]:
    """Where no loader says its batch size, or not the true one, the samples that were seen do."""
    sizes = [_samples_per_microbatch(side[0].run) for side in (a, b)]
    if None in sizes:
        return []
    first, second = (size or 0.0 for size in sizes)
    if abs(first - second) <= _BATCH_TOLERANCE * max(first, second):
        return []
    return [f"batch size differs: {first:.1f} and {second:.1f} samples a microbatch were seen"]


def _samples_per_microbatch(run: RunSection) -> float | None:
    return run.samples / run.microbatches if run.samples and run.microbatches else None


def not_recorded(a: Side, b: Side) -> list[str]:
    """Return which of the settings can't be checked because one side did not record them."""
    found = []
    for name in settings_of(a[0].run):
        missing = [label for label, side in (("A", a), ("B", b)) if not _recorded(side, name)]
        if len(missing) == 1:
            found.append(f"{name} was not recorded on side {missing[0]}: it can't be checked")
    return found


_SETTINGS: dict[str, Reader] = {
    "num_workers": lambda s: _text(s.run.num_workers),
    "persistent_workers": lambda s: _text(s.run.persistent_workers),
    "strategy": lambda s: s.run.strategy,
    "framework": lambda s: s.run.framework,
    "model": lambda s: ", ".join(s.run.model) or None,
    "optimizers": lambda s: ", ".join(s.run.optimizers) or None,
    "nodes": lambda s: _text(s.run.nodes),
}
_ENVIRONMENT: dict[str, Reader] = {
    "host": lambda s: s.system.hostname,
    "host processors": lambda s: _text(s.system.host_cpus),
    "usable processors": lambda s: None if s.process.usable_cpus is None else f"{s.process.usable_cpus:g}",
    "memory limit (bytes)": lambda s: _text(s.process.memory_limit_bytes),
}


def differences(a: Side, b: Side) -> list[Difference]:
    """Return what was set or installed differently: shown, and compared all the same."""
    versions = sorted({name for summary in (*a, *b) for name in summary.run.versions})
    environment = {**{name: _version_reader(name) for name in versions}, **_ENVIRONMENT}
    read = ((name, _values(a, reader), _values(b, reader)) for name, reader in _SETTINGS.items())
    found = [Difference(about="setting", name=n, a=x, b=y) for n, x, y in read if x != y]
    seen = ((name, _values(a, reader), _values(b, reader)) for name, reader in environment.items())
    changed = [Difference(about="environment", name=n, a=x, b=y) for n, x, y in seen if x != y]
    return [*_arguments(a, b), *found, *changed]


def _version_reader(name: str) -> Reader:
    return lambda summary: summary.run.versions.get(name)


def _values(side: Side, reader: Reader) -> str | None:
    values = {value for summary in side if (value := reader(summary)) is not None}
    return ", ".join(sorted(values)) or None


def _arguments(a: Side, b: Side) -> list[Difference]:
    names = dict.fromkeys(name for summary in (*a, *b) for name in arguments(summary.run.command))
    readers: Mapping[str, Reader] = {
        "program": lambda summary: program(summary.run.command),
        **{name: _argument_reader(name) for name in names},
    }
    read = ((name, _values(a, reader), _values(b, reader)) for name, reader in readers.items())
    return [Difference(about="argument", name=n, a=x, b=y) for n, x, y in read if x != y]


def _argument_reader(name: str) -> Reader:
    return lambda summary: arguments(summary.run.command).get(name)


def cautions(a: Side, b: Side) -> list[str]:
    """Return what makes a comparison less sure without forbidding it."""
    found = not_recorded(a, b)
    for label, side in (("A", a), ("B", b)):
        found += [
            f"run {s.run.name} of side {label} is {s.run.status}: figures up to there"
            for s in side
            if s.run.status != "completed"
        ]
    if _values(a, lambda s: s.step_time.clock) != _values(b, lambda s: s.step_time.clock):
        found.append("one side was timed on the host clock, the other on the device clock")
    if _values(a, lambda s: s.run.mode) != _values(b, lambda s: s.run.mode):
        found.append("steps were marked on one side and inferred on the other: check that they mean the same")
    if _values(a, lambda s: s.system.hostname) != _values(b, lambda s: s.system.hostname):
        found.append("the sides ran on different hosts: the change may be the machine's")
    return found
