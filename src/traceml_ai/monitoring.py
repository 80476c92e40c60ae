"""Monitoring utilities for training loops that account for their phases themselves.

`ThroughputMonitor` works on its own, with no collector. Under ``traceml run`` its phases and samples
also appear in the run's summary, there on the host clock and without synchronisation.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from traceml_ai import api
from traceml_ai.errors import UsageError
from traceml_ai.probe import session as sessions
from traceml_ai.spool.atomic import write_atomic

__all__ = ["ThroughputMonitor"]

Item = TypeVar("Item")

_DATA = "data"
_GB = 1024**3


class ThroughputMonitor:
    """Wall-clock time per phase, throughput and GPU memory of a training loop.

    The loop marks its phases and says when a step is done::

        monitor = ThroughputMonitor(device)
        for batch in monitor.iterate(loader):
            with monitor.phase("features"):
                features = model.forward_features(batch["image"])
            monitor.record_samples(len(batch["image"]))
            stats = monitor.step(step)

    A snapshot is due when ``step % record_every_n_steps == 0``. It covers the time since the last
    one, so snapshots are disjoint.

    Args:
        device: Where the monitored work runs, a ``torch.device`` or a string. Devices other than
            the CPU are synchronised when a phase ends, as its time would otherwise be that of
            queueing the work.
        record_every_n_steps: Steps between snapshots; None disables everything, synchronisation
            included.
        clock: Returns seconds; for tests.

    Raises:
        UsageError: ``record_every_n_steps`` is less than one.
    """

    def __init__(
        self,
        device: Any,
        record_every_n_steps: int | None = 50,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if record_every_n_steps is not None and record_every_n_steps < 1:
            raise UsageError(
                f"record_every_n_steps={record_every_n_steps}: use a number of steps from 1 on, "
                "or None to disable monitoring"
            )
        self._device = device
        self._kind = str(device).partition(":")[0]
        self._every = record_every_n_steps
        self._clock = clock
        self._records: list[dict[str, Any]] = []
        self._seen: dict[str, None] = {}  # phases in the order first entered
        self._durations: dict[str, float] = {}
        self._accounted = 0.0  # nested phases counted once
        self._depth = 0
        self._samples = 0
        self._of_run: bool | None = None  # whether our samples are the run's; None: not known yet

    @property
    def enabled(self) -> bool:
        """Whether timings are accumulated."""
        return self._every is not None

    @property
    def records(self) -> list[dict[str, Any]]:
        """The snapshots recorded so far."""
        return self._records

    def iterate(self, iterable: Iterable[Item]) -> Iterator[Item]:
        """Iterate, accounting the time needed to produce each item as ``data``.

        Args:
            iterable: Typically a data loader.

        Yields:
            The items, unchanged.
        """
        if not self.enabled:
            yield from iterable
            return
        items = iter(_timed_by_the_run(iterable))
        while True:
            begin = self._clock()
            try:
                item = next(items)
            except StopIteration:
                return
            self._account(_DATA, self._clock() - begin)
            yield item

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Account the time of a block to ``name``; nothing is recorded if it raises.

        A phase inside another one is accounted to both, and once in the throughput.

        Args:
            name: The phase; a snapshot has it as ``t_<name>``, in the order first seen.
        """
        return _Phase(self, name) if self.enabled else nullcontext()

    def _entered(self, name: str) -> float:
        self._seen.setdefault(name)
        self._depth += 1
        return self._clock()

    def _left(self, name: str, begin: float, *, failed: bool) -> None:
        if not failed and self._kind != "cpu":
            self._synchronize()
        self._depth -= 1
        if not failed:
            self._account(name, self._clock() - begin)

    def _account(self, name: str, seconds: float) -> None:
        self._seen.setdefault(name)
        self._durations[name] = self._durations.get(name, 0.0) + seconds
        if self._depth == 0:
            self._accounted += seconds

    def record_samples(self, count: int) -> None:
        """Register processed samples.

        Args:
            count: How many; batches may be uneven.
        """
        if not self.enabled:
            return
        self._samples += count
        if sessions.current is not None and self._of_run is not False:
            self._of_run = api.count_samples(count, again=self._of_run is True)

    def reset(self) -> None:
        """Reset the accumulated timings, the samples and the peak memory."""
        self._durations = dict.fromkeys(self._durations, 0.0)
        self._accounted = 0.0
        self._samples = 0
        if self.enabled and self._kind == "cuda":
            _torch().cuda.reset_peak_memory_stats(self._device)

    def step(self, step: int) -> dict[str, Any] | None:
        """Register a completed step.

        Args:
            step: The current step; need not grow by one, or grow at all.

        Returns:
            The snapshot if one is due at this step, else None: ``step``, ``t_<name>`` (seconds),
            ``samples_per_sec`` (samples over the time accounted to phases, 0.0 without any) and
            ``gpu_mem_gb``, ``gpu_mem_peak_gb`` (GiB, 0.0 without a GPU).
        """
        if self._every is None or step % self._every:
            return None
        current, peak = self._memory()
        snapshot: dict[str, Any] = {"step": step}
        known = self._durations
        snapshot |= {f"t_{name}": known[name] for name in self._seen if name in known}
        snapshot["samples_per_sec"] = self._samples / self._accounted if self._accounted > 0 else 0.0
        snapshot |= {"gpu_mem_gb": current, "gpu_mem_peak_gb": peak}
        self._records.append(snapshot)
        self.reset()
        return snapshot

    def save(self, path: str | Path) -> None:
        """Write the snapshots, replacing the file as a whole.

        Args:
            path: ``*.json`` for a list of objects, ``*.csv`` for a table with one column for each
                key (empty where a snapshot has none).

        Raises:
            UsageError: Another suffix.
            OSError: The file can't be written.
        """
        path = Path(path)
        if path.suffix == ".json":
            content = json.dumps(self._records, indent=2, allow_nan=False) + "\n"
        elif path.suffix == ".csv":
            content = _table(self._records)
        else:
            raise UsageError(f"{path}: save to a name that ends in .json or .csv")
        write_atomic(path, content.encode())

    def _synchronize(self) -> None:
        backend = getattr(_torch(), self._kind, None)
        if backend is not None and hasattr(backend, "synchronize"):
            # `mps` takes no device.
            backend.synchronize(*([] if self._kind == "mps" else [self._device]))

    def _memory(self) -> tuple[float, float]:
        if self._kind != "cuda":
            return 0.0, 0.0
        cuda = _torch().cuda
        return (
            cuda.memory_allocated(self._device) / _GB,
            cuda.max_memory_allocated(self._device) / _GB,
        )


class _Phase:
    """One entered block of a monitor's phase, which is a named phase of the run as well."""

    __slots__ = ("_begin", "_monitor", "_name", "_of_run")

    def __init__(self, monitor: ThroughputMonitor, name: str) -> None:
        self._monitor = monitor
        self._name = name
        self._of_run = api.phase(name) if sessions.current is not None else None
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = self._monitor._entered(self._name)  # noqa: SLF001
        if self._of_run is not None:
            self._of_run.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._of_run is not None:
            self._of_run.__exit__(kind, error, trace)
        self._monitor._left(self._name, self._begin, failed=kind is not None)  # noqa: SLF001


def _torch() -> Any:
    # Monitoring a CPU loop needs no torch.
    return import_module("torch")


def _timed_by_the_run(iterable: Iterable[Item]) -> Iterable[Item]:
    """Under ``traceml run`` a source that is no PyTorch loader becomes the run's input wait too."""
    if any(kind.__name__ == "DataLoader" for kind in type(iterable).__mro__):
        return iterable
    return api.wrap_dataloader_fetch(iterable)


def _table(records: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
