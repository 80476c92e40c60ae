"""Which of MONAI's trainers is measured, and what is said where one can't be."""

from __future__ import annotations

import sys
from typing import Any

from traceml_ai import api
from traceml_ai.integrations import _ignite_attach as ignite_attach
from traceml_ai.integrations._ignite_calls import Adapter, Claims, adapter_of
from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.integrations._monai_noted import NotedRun
from traceml_ai.integrations._monai_readings import NAMES, TRAINERS, Reading
from traceml_ai.probe import session as sessions
from traceml_ai.probe.session import Session

_BATCHWISE = "; TraceMLHandler(batch_scoped=True) measures it batch by batch"

# What each engine's handler was told; engines are not marked themselves.
_claims = Claims()
_installed: list[Adapter] = []


def install(session: Session) -> Adapter | None:
    """Have MONAI's trainers tell what they do; None where this version can't be measured."""
    for adapter in _installed:
        if adapter.session is session:
            return adapter
    try:
        adapter = adapter_of(session)
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
    return f"{kind.__name__} replaces one of {', '.join(NAMES)} by its own and is not attached" + _BATCHWISE


def _is_standard(engine: Any) -> bool:
    """Whether an engine runs the iteration of MONAI's own ``SupervisedTrainer``."""
    own = sys.modules[TRAINERS].SupervisedTrainer
    kind = type(engine)
    if not isinstance(engine, own) or kind._iteration is not own._iteration:  # noqa: SLF001
        return False
    return _runs_own_iteration(engine) and all(_is_own(kind, name) for name in NAMES)


def _runs_own_iteration(engine: Any) -> bool:
    function = getattr(engine._process_function, "__func__", None)  # noqa: SLF001
    return function is getattr(type(engine), "_iteration", None)


def _is_own(kind: type, name: str) -> bool:
    """Whether an attribute is the trainer's, or told while another one runs, and not its class's."""
    found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), None)
    return found is None or isinstance(found, Reading)


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
