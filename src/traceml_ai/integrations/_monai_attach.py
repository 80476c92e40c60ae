"""Which of MONAI's trainers is measured, and what is said where one can't be."""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from traceml_ai import api
from traceml_ai.integrations import _ignite_attach as ignite_attach
from traceml_ai.integrations._ignite_calls import Adapter, adapter_of
from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.integrations._monai_noted import PREPARED, ZEROED, NotedRun
from traceml_ai.probe import session as sessions
from traceml_ai.probe.columns import (
    T_BACKWARDED,
    T_FETCHED,
    T_HANDLERS,
    T_INFERRING,
    T_OPTIMIZER,
    T_READY,
    T_TRAINING,
    T_ZEROING,
)
from traceml_ai.probe.session import Session
from traceml_ai.schema.step import TOLD

TRAINERS = "monai.engines.trainer"
SAMPLES = TOLD["samples"]
_READ = ("prepare_batch", "network", "optimizer", "inferer")
_BATCHWISE = "; TraceMLHandler(batch_scoped=True) measures it batch by batch"

# What each engine's handler was told; engines are not marked themselves.
_claims: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
_installed: list[Adapter] = []


class Reading(property):
    """An attribute of a trainer whose readings are told. What is read and written is the real one."""


# What a reading ends in a plain step: list and position for its time stamp, and the stage that follows.
_Due = tuple[list[int], int, int]


def _dues(adapter: Adapter, name: str) -> dict[int, _Due]:
    """By the stage in which a reading is due."""
    told, marks = adapter.session.st.told, adapter.marks
    dues: dict[str, dict[int, _Due]] = {
        "prepare_batch": {T_FETCHED: (told, TOLD["open"], T_READY)},
        "network": {T_READY: (marks, PREPARED, T_TRAINING)},
        "optimizer": {
            T_TRAINING: (marks, ZEROED, T_ZEROING),
            T_BACKWARDED: (told, TOLD["optimizer_begin"], T_OPTIMIZER),
        },
        "inferer": {T_ZEROING: (told, TOLD["forward_begin"], T_INFERRING)},
    }
    return dues[name]


def _reading(adapter: Adapter, name: str) -> Reading:
    st = adapter.session.st
    told, clock = st.told, st.clock
    dues, counts = _dues(adapter, name), name == "prepare_batch"

    def read(engine: Any) -> Any:
        run = adapter.run
        if run is not None and run.engine is engine:
            try:
                due = dues.get(st.stage)
                if due is not None:
                    # Like the other fast paths it does not ask which thread this is.
                    stamps, at, then = due
                    if counts:
                        told[SAMPLES] = run.samples()
                    stamps[at] = clock()
                    st.stage = then
                elif st.stage < T_HANDLERS and name in run.reads and st.ident == get_ident():
                    run.reads[name]()
            except Exception as error:  # noqa: BLE001 - ours must not become the training's
                st.fail("monai", error)
        try:
            return engine.__dict__[name]
        except KeyError:
            message = f"{type(engine).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=engine) from None

    return Reading(read, *_changing(name), f"The trainer's own ``{name}``.")


def _changing(name: str) -> tuple[Callable[[Any, Any], None], Callable[[Any], None]]:
    """Writing and deleting an attribute of a trainer."""

    def write(engine: Any, value: Any) -> None:
        engine.__dict__[name] = value

    def delete(engine: Any) -> None:
        if name not in engine.__dict__:
            raise AttributeError(name)
        del engine.__dict__[name]

    return write, delete


def install(session: Session) -> Adapter | None:
    """Have MONAI's trainers tell what they do; None where this version can't be measured."""
    for adapter in _installed:
        if adapter.session is session:
            return adapter
    try:
        adapter = adapter_of(session)
        trainer = sys.modules[TRAINERS].SupervisedTrainer
        for name in _READ:
            adapter.patches.set(trainer, name, _reading(adapter, name))
    except (AttributeError, KeyError) as error:
        session.warn("monai", f"this version of MONAI or Ignite is not known, and not measured ({error})")
        return None
    adapter.plans.append(lambda engine: _plan(adapter, engine))
    adapter.is_evaluator = _is_evaluator
    adapter.is_unwanted = _is_unwanted
    _installed.append(adapter)
    return adapter


def claim(engine: Any, *, batch_scoped: bool) -> None:
    """A handler was attached to an engine: measure it when it runs, or say why not."""
    session = sessions.current
    if session is None or TRAINERS not in sys.modules:
        return
    adapter = install(session)
    if adapter is None:
        return
    if engine in _claims:
        session.warn(
            "monai",
            f"a second TraceMLHandler on one {type(engine).__name__} is not attached: "
            "the first one measures it",
            say=True,
        )
        return
    reason = refusal(engine, batch_scoped=batch_scoped)
    _claims[engine] = reason is None
    if reason is not None:
        session.warn("monai", reason, say=True)


def refusal(engine: Any, *, batch_scoped: bool) -> str | None:
    """Why an engine can't be measured; None when it can."""
    trainers = sys.modules[TRAINERS]
    kind = type(engine)
    if not isinstance(engine, trainers.Trainer):
        return f"MONAI's {kind.__name__} is no trainer and is not attached: only trainers are measured"
    if _is_standard(engine) or batch_scoped:
        return None
    if not isinstance(engine, trainers.SupervisedTrainer):
        return f"MONAI's {kind.__name__} is not attached: only SupervisedTrainer is measured" + _BATCHWISE
    if not _runs_own_iteration(engine):
        return (
            f"{kind.__name__} with iteration_update= is not attached: its iteration is not MONAI's"
            + _BATCHWISE
        )
    if kind._iteration is not trainers.SupervisedTrainer._iteration:  # noqa: SLF001
        return (
            f"{kind.__name__} overrides _iteration and is not attached: its iteration is not MONAI's"
            + _BATCHWISE
        )
    return f"{kind.__name__} replaces one of {', '.join(_READ)} by its own and is not attached" + _BATCHWISE


def _is_standard(engine: Any) -> bool:
    """Whether an engine runs the iteration of MONAI's own ``SupervisedTrainer``."""
    own = sys.modules[TRAINERS].SupervisedTrainer
    kind = type(engine)
    if not isinstance(engine, own) or kind._iteration is not own._iteration:  # noqa: SLF001
        return False
    return _runs_own_iteration(engine) and all(isinstance(_looked_up(kind, name), Reading) for name in _READ)


def _runs_own_iteration(engine: Any) -> bool:
    function = getattr(engine._process_function, "__func__", None)  # noqa: SLF001
    return function is getattr(type(engine), "_iteration", None)


def _looked_up(kind: type, name: str) -> object:
    return next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), None)


def _is_evaluator(engine: Any) -> bool:
    evaluators = sys.modules.get("monai.engines.evaluator")
    return evaluators is not None and isinstance(engine, evaluators.Evaluator)


def _is_unwanted(engine: Any) -> bool:
    """Whether the script initialised TraceML itself: then nothing of a trainer is published."""
    if not api.is_initialised_by_script():
        return False
    return _claims.get(engine, False) or _is_standard(engine)


_PLAIN_INIT = (
    "traceml.init() was called in this process, and counts every fetch of a batch by itself: MONAI's trainer "
    "is not attached and nothing of it is published (use traceml_ai.integrations.monai.init() only)"
)


def _plan(adapter: Adapter, engine: Any) -> EngineRun | None:
    """What to measure of an engine that is about to run."""
    session = adapter.session
    if not isinstance(engine, sys.modules[TRAINERS].Trainer):
        return None
    if _is_unwanted(engine):
        session.warn("monai", _PLAIN_INIT, say=True)
        return None
    if engine not in _claims:
        claim(engine, batch_scoped=False)
    if not _claims.get(engine, False):
        return None
    if not _is_standard(engine):
        return ignite_attach.batch_run(adapter, engine, "monai", _version())
    events = sys.modules["monai.engines.utils"].IterationEvents
    run = NotedRun(session, engine, adapter, events)
    run.describe(_version(), [engine.network])
    session.facts.values["accumulation"] = getattr(engine, "accumulation_steps", None)
    return run


def _version() -> str | None:
    return getattr(sys.modules["monai"], "__version__", None)
