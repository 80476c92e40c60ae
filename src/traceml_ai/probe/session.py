"""One process's measurement: built when torch has been imported, ended at exit.

Holds everything that is not on the step path: which patches are in, the log, the facts, what
happens after a fork and at exit. There is at most one session in a process, `current`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple

from traceml_ai.probe import patches as timed
from traceml_ai.probe import tracebacks, updating
from traceml_ai.probe.books import Books
from traceml_ai.probe.comm import CommProbe, is_distributed
from traceml_ai.probe.compilers import hide_from_compilers
from traceml_ai.probe.device import DeviceTimer, Events, accelerator_events, memory_reader
from traceml_ai.probe.discover import live_instances
from traceml_ai.probe.facts import Facts, describe_torch
from traceml_ai.probe.models import Models
from traceml_ai.probe.plain import Plain
from traceml_ai.probe.replaced import Patches
from traceml_ai.probe.safety import name_of
from traceml_ai.probe.state import StepState
from traceml_ai.probe.surroundings import calibrate, ranks, sample_counter
from traceml_ai.schema import env
from traceml_ai.schema.step import USER_SLOTS
from traceml_ai.spool import layout
from traceml_ai.spool.writer import Identity, StepLogWriter

_FACTS_AT_STEPS = frozenset({1, 10, 100, 1000})
_CHORE_EVERY = 256
# The wrappers hold `raw` itself; the models and optimizers are the child's as well.
_KEPT_OVER_FORK = frozenset({"raw", "told", "targets", "optimizers", "watches", "versioned"})
_MANY_FOREIGN = 5

current: Session | None = None
chosen: Which | None = None  # what init() asked for, possibly before there was a torch to measure
joined: str | None = None  # the spool folder that init() found, where no launcher named one
run_folder: str | None = None  # and its run folder


class Session:
    """The measurement of this process.

    Args:
        torch: The imported torch module.
        spool: The run's spool folder.
        max_steps: Stop recording after so many steps; 0: never.
        late: Whether the program may have made optimizers before now.
    """

    def __init__(self, torch: Any, spool: str, *, max_steps: int = 0, late: bool = False) -> None:
        begin = perf_counter_ns()
        self.torch = torch
        self.spool = spool
        self.max_steps = max_steps
        self.late = late
        self.facts = Facts(spool)
        self.patches = Patches()
        self.writer: StepLogWriter | None = None
        self.comm: CommProbe | None = None
        self._no_comm = False
        self.pair_ns = 0
        self.which = Which()
        self.origin = (begin, time_ns())
        self._patched_classes: set[type] = set()
        self._optimizers: list[weakref.ref[Any]] = []
        self._finished = False
        self._restore_excepthook: Callable[[], None] = _nothing
        self.models = Models(self)
        self.st = self._new_state()

    def _new_state(self) -> StepState:
        st = StepState(
            ident=get_ident(),
            open_log=self._open_log,
            grad_enabled=self.torch.is_grad_enabled,
            batch_samples=sample_counter(self.torch.Tensor),
        )
        st.chore = self._after_step
        st.on_missing_forward = self.models.find
        st.on_first_forward = self.models.note_precision
        st.on_loader = self.facts.add_loader
        st.on_fail = self._failed
        return st

    # -- patches ------------------------------------------------------------------------------

    def install(self, which: Which) -> None:
        """Put the timed calls in place."""
        begin = perf_counter_ns()
        hide_from_compilers(self.torch)
        self.which = which
        torch, st, ident = self.torch, self.st, get_ident
        compiling = torch.compiler.is_dynamo_compiling
        put = self.patches.set
        if which.loader:
            data = torch.utils.data.dataloader
            base = data._BaseDataLoaderIter  # noqa: SLF001
            put(base, "__next__", timed.timed_next(st, base.__next__, ident))
            kind = data.DataLoader
            put(kind, "__iter__", timed.timed_iter(st, kind.__iter__, ident))
        if not which.forward:
            st.on_missing_forward = None
        if which.backward:
            for name in ("backward", "grad"):
                inner = getattr(torch.autograd, name)
                put(torch.autograd, name, timed.timed_backward(st, inner, ident, compiling))
        if which.optimizer:
            self._install_optimizer()
        save = timed.timed_save(st, torch.save, ident)
        put(torch, "save", save)
        put(torch.serialization, "save", save)
        gc.callbacks.append(self._on_gc)
        self._restore_excepthook = tracebacks.install()
        self.pair_ns = self.facts.values["own_pair_ns"] = calibrate(torch)
        self.facts.values["attach_cost_ns"] += perf_counter_ns() - begin

    def _install_optimizer(self) -> None:
        torch, st, ident = self.torch, self.st, get_ident
        base = torch.optim.Optimizer
        patch_step = base._patch_step_function  # noqa: SLF001

        def _patch_step_function(optimizer: Any) -> None:
            # torch wraps a class's `step` when its first instance is made; ours goes around that.
            patch_step(optimizer)
            try:
                self._new_optimizer(optimizer)
            except Exception as error:  # noqa: BLE001 - ours must not become the user's
                st.fail("optimizer", error)

        self.patches.set(base, "_patch_step_function", _patch_step_function)
        scaler = torch.amp.GradScaler
        self.patches.set(scaler, "step", updating.timed_scaler_step(st, scaler.step, ident))
        optimizers, self._optimizers = self.optimizers(), []
        for optimizer in live_instances(base) if self.late else optimizers:
            if hasattr(optimizer, "param_groups"):
                self._new_optimizer(optimizer)

    def _new_optimizer(self, optimizer: Any) -> None:
        self._optimizers.append(weakref.ref(optimizer, _quietly(self._optimizer_is_gone)))
        self.st.optimizers = len(self._optimizers)
        self.models.look_again()
        if self.which.forward:
            self.st.on_missing_forward = self.models.find
        kind = type(optimizer)
        names = self.facts.values["optimizers"]
        if kind.__name__ not in names and len(names) < 8:  # noqa: PLR2004
            names.append(kind.__name__)
        owner = next(c for c in kind.__mro__ if "step" in vars(c))
        if owner in self._patched_classes:
            return
        self._patched_classes.add(owner)
        step = updating.timed_step(
            self.st, vars(owner)["step"], get_ident, self.torch.compiler.is_dynamo_compiling
        )
        self.patches.set(owner, "step", step)

    def optimizers(self) -> list[Any]:
        """The optimizers that there are."""
        return [o for o in (ref() for ref in self._optimizers) if o is not None]

    def _optimizer_is_gone(self, reference: weakref.ref[Any]) -> None:
        """An optimizer was deleted; a loop may go on with updates by hand."""
        with contextlib.suppress(ValueError):
            self._optimizers.remove(reference)
        self.st.optimizers = len(self._optimizers)

    def reinstall(self, which: Which) -> None:
        """Time other calls than before (`init` with a mode of its own)."""
        self.uninstall()
        self.st.ident = get_ident()
        self.st.cur = self.st.base()
        self.st.mark = self.st.clock()
        self.install(which)

    def user_slot(self, name: str) -> int | None:
        """The slot of a named phase; None when all slots are taken."""
        names = self.facts.values["user_phases"]
        if name in names:
            return names.index(name)
        if len(names) >= USER_SLOTS:
            return None
        names.append(name)
        return len(names) - 1

    def uninstall(self) -> None:
        """Put the originals back and stop measuring."""
        self.st.turn_off()
        self.patches.restore()
        self.comm = None
        self._patched_classes.clear()
        self.models.forget()
        self._restore_excepthook()
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        st = self.st
        if get_ident() != st.ident:
            return
        if phase == "start":
            st.gc_start()
        else:
            st.gc_stop()

    # -- the log ------------------------------------------------------------------------------

    def _identity(self) -> Identity:
        return Identity(os.getpid(), *ranks(self.torch), *self.origin)

    def _open_log(self) -> StepLogWriter:
        who = self._identity()
        events = accelerator_events(self.torch)
        self.writer = StepLogWriter(self.spool, who, settles_later=events is not None)
        if events is not None:
            self._use_device(events)
        self.writer.put(layout.OWN_PAIR_NS, self.pair_ns)
        values = self.facts.values
        if "host_memory_own_bytes" in values:
            values["host_memory_own_bytes"] += self.writer.mapped_bytes
        values["rank"] = None if who.rank < 0 else who.rank
        values["local_rank"] = None if who.local_rank < 0 else who.local_rank
        values["world_size"] = None if who.world_size < 0 else who.world_size
        return self.writer

    def _use_device(self, events: Events) -> None:
        """From the second step on the phases are timed on the device's clock too."""
        writer = self.writer
        if writer is None:
            return
        st, tensor = self.st, self.torch.Tensor
        st.device = DeviceTimer(events, writer.patch, writer.settle)
        st.memory = memory_reader(self.torch)
        for name in ("to", "cuda"):
            self.patches.set(tensor, name, timed.timed_to(st, getattr(tensor, name), get_ident))

    def _after_step(self, steps: int) -> int:
        """Rare chores after a closed step; returns the step count at which the next are due."""
        if self.writer is not None and self.st.aborted:
            self.writer.put(layout.ABORTED, self.st.aborted)
        self._watch_collectives()
        if steps in _FACTS_AT_STEPS:
            self._refresh_facts()
        if self.max_steps and steps >= self.max_steps:
            self.facts.values["trace_stopped_at_step"] = steps
            self._refresh_facts()
            self.uninstall()
        due = steps + _CHORE_EVERY
        return min(due, *(n for n in (*_FACTS_AT_STEPS, self.max_steps, due) if n > steps))

    def _watch_collectives(self) -> None:
        """Measure what this rank waits for the others, once it is known to be one of several."""
        if self.comm is not None:
            self.comm.attach_log()
        elif self._may_stand() and is_distributed(self.torch):
            try:
                self.comm = CommProbe(self.torch, self.st, self.patches, get_ident)
            except Exception as error:  # noqa: BLE001 - another torch, say: the rest is measured
                self._no_comm = True
                self.warn("collectives", f"waiting for other ranks is not measured ({name_of(error)})")

    def _may_stand(self) -> bool:
        """Whether the host is what waits at collectives, and we may still measure it."""
        return self.st.ident != -1 and not self._no_comm and self.st.device is None

    def _refresh_facts(self) -> None:
        values = self.facts.values
        values.update(describe_torch(self.torch))
        framed = values["framework"] != "pytorch"
        values["mode"] = "marked" if self.st.marked or framed else "inferred"
        values["aborted_steps"] = self.st.aborted
        if self.st.foreign >= _MANY_FOREIGN:
            self.facts.warn("thread", "another thread trains too; only the first one is measured")
        self.facts.write()

    # -- trouble and the end ------------------------------------------------------------------

    def warn(self, probe: str, message: str, *, say: bool = False) -> None:
        """Record what was not seen; ``say`` also prints one line on stderr."""
        if not self.facts.warn(probe, message):
            return
        if say:
            say_once(message)
        self.facts.write()

    def _failed(self, probe: str, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError) and not os.path.isdir(self.spool):
            why = "measuring stopped: its collector has ended, or is on another machine (each needs its own)"
        else:
            why = f"measuring stopped after an error of TraceML's own ({name_of(error)})"
        self.warn(probe, f"{why}; the training goes on unmeasured", say=True)

    def finish(self) -> None:
        """At exit: write what followed the last step, and the facts."""
        if self._finished or self.facts.values["pid"] != os.getpid():
            return
        self._finished = True
        try:
            self._finish()
        except Exception as error:  # noqa: BLE001
            say_once(f"the end of this process could not be recorded ({name_of(error)})")

    def _finish(self) -> None:
        st, values = self.st, self.facts.values
        if st.stage >= 0:
            st.settle()
        values["clean_exit"] = True
        values["window_open"] = st.window and not st.hand_open
        error = getattr(sys, "last_value", None)
        values["exception"] = None if error is None else type(error).__name__
        if values["window_open"] and error is not None:
            st.aborted += 1
        if st.hand_open:
            st.end_hand_step()
        if st.device is not None:
            st.device.finish_soon()
        if self.writer is not None:
            self.writer.put(layout.ABORTED, st.aborted)
            if st.ident != -1:
                self.writer.append(st.tail_record())
            self.writer.close()
        if self.writer is not None or st.aborted or values["warnings"]:
            self._refresh_facts()
        self.uninstall()

    def after_fork(self) -> None:
        """In a forked child: let go of the parent's log; a child that trains opens its own."""
        self.writer = None
        self.facts = Facts(self.spool)
        new = self._new_state()
        for slot in (*Plain.__slots__, *Books.__slots__):
            if slot not in _KEPT_OVER_FORK:
                setattr(self.st, slot, getattr(new, slot))


class Which(NamedTuple):
    """Which calls are timed without being asked for one by one."""

    loader: bool = True
    forward: bool = True
    backward: bool = True
    optimizer: bool = True


def attach(torch: Any, spool: str, *, max_steps: int = 0, late: bool = False) -> Session:
    """Start measuring this process; a second call returns the same session."""
    global current  # noqa: PLW0603 - there is one session in a process, that is the point
    if current is None:
        current = Session(torch, spool, max_steps=max_steps, late=late)
        current.install(chosen or Which())
        atexit.register(current.finish)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=current.after_fork)
    return current


def attach_from_environment(torch: Any, *, late: bool = False) -> Session | None:
    """`attach` as the environment asks; None when it does not, or when it can't be done."""
    spool = os.environ.get(env.SPOOL) or joined
    if not spool or env.is_disabled(os.environ.get(env.DISABLED)):
        return None
    try:
        steps = int(os.environ.get(env.TRACE_MAX_STEPS) or 0)
        return attach(torch, spool, max_steps=steps, late=late)
    except Exception as error:  # noqa: BLE001
        say_once(f"can't measure this process ({name_of(error)}); it runs on unmeasured")
        return None


def _quietly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """For what runs wherever an object happens to die."""

    def quiet(reference: Any) -> None:
        with contextlib.suppress(Exception):
            method(reference)

    return quiet


def _nothing() -> None:
    """Nothing to restore."""


def say_once(message: str) -> None:
    """One line on stderr; never raises."""
    with contextlib.suppress(Exception):  # stderr may be closed
        sys.stderr.write(f"traceml: {message}\n")
