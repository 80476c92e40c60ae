"""Which plain Ignite engine is measured, and how its steps are told.

An update function tells nothing of what it does, so a step is one iteration, or the iterations of
one update where ``create_supervised_trainer`` was told to accumulate. Forward, backward and
optimizer are the calls themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from traceml_ai.integrations._ignite_calls import Adapter, Claims, adapter_of
from traceml_ai.integrations._ignite_run import EngineRun
from traceml_ai.probe import session as sessions
from traceml_ai.probe.session import Session

ENGINES = "ignite.engine.engine"
_UPDATES = "gradient_accumulation_steps"  # of Ignite's own update functions
_EVALUATES = "supervised_evaluation_step"  # in the names of Ignite's own evaluation functions

# Engines that a handler was attached to, and whether it was accepted.
_claims = Claims()
_installed: list[Adapter] = []


class BatchRun(EngineRun):
    """What is measured of an engine whose update function is its own.

    Args:
        session: The measurement of this process.
        engine: The Ignite engine.
        events: ``ignite.engine.Events``.
        framework: What the summary calls it.
    """

    def __init__(self, session: Session, engine: Any, events: Any, framework: str) -> None:
        super().__init__(session, engine, events, framework)
        self.models = list(_models(session.torch, engine))
        self._every = _accumulation(engine)
        self._targets: list[int] = []
        self.closing = id(events.ITERATION_STARTED)
        self.told[id(events.ITERATION_COMPLETED)] = self._ends
        self.told[id(events.EPOCH_STARTED)] = self.watch_handlers

    def begins(self) -> None:
        """`Engine.run` was called."""
        super().begins()
        session, st = self.session, self.st
        optim = sys.modules["torch.optim.optimizer"]
        self.hooks = [
            optim.register_optimizer_step_pre_hook(self.step_begins),
            optim.register_optimizer_step_post_hook(self.step_ends),
        ]
        if not session.which.forward:
            return
        st.on_missing_forward = None if self.models else session.models.find
        for model in self.models:
            if id(model) not in st.targets:
                self._targets.append(id(model))
                session.models.measure(model)

    def ends(self) -> None:
        """`Engine.run` returns."""
        for key in self._targets:
            self.st.targets.pop(key, None)
        self._targets.clear()
        super().ends()

    def closes(self) -> None:
        """What began the iteration is over: the update function is called next."""
        self.window.open(self.samples())
        self.window.begin_calls(False)

    def _ends(self) -> None:
        if not self.st.window:
            return
        self.window.end_calls()
        if self._every > 1 and self.engine.state.iteration % self._every:
            self.suspend()
        else:
            self.close(due=self._every > 1)


def batch_run(adapter: Adapter, engine: Any, framework: str, version: str | None) -> BatchRun:
    """Measure an engine iteration by iteration."""
    run = BatchRun(adapter.session, engine, adapter.events, framework)
    run.describe(version, run.models)
    adapter.session.facts.values["accumulation"] = run._every  # noqa: SLF001
    return run


def install(session: Session) -> Adapter | None:
    """Have Ignite's engines tell what they do; None where this version can't be measured."""
    for adapter in _installed:
        if adapter.session is session:
            return adapter
    try:
        adapter = adapter_of(session)
    except (AttributeError, KeyError) as error:
        session.warn("ignite", f"this version of Ignite is not known, and not measured ({error})")
        return None
    adapter.plans.append(lambda engine: _plan(adapter, engine))
    _installed.append(adapter)
    return adapter


def claim(engine: Any) -> None:
    """A handler was attached to an engine: measure it when it runs, or say why not."""
    session = sessions.current
    if session is None or ENGINES not in sys.modules or install(session) is None:
        return
    if engine in _claims:
        session.warn(
            "ignite",
            "a second TraceMLHandler on one engine is not attached: the first one measures it",
            say=True,
        )
        return
    reason = _refusal(engine)
    _claims[engine] = reason is None
    if reason is not None:
        session.warn("ignite", reason, say=True)


def _refusal(engine: Any) -> str | None:
    """Why an engine can't be measured; None when it can."""
    name = str(getattr(engine._process_function, "__qualname__", ""))  # noqa: SLF001
    if _EVALUATES in name:
        return "an Ignite evaluator is not attached: only trainers are measured"
    return None


def _plan(adapter: Adapter, engine: Any) -> EngineRun | None:
    if not _claims.get(engine, False):
        return None
    return batch_run(adapter, engine, "ignite", getattr(sys.modules["ignite"], "__version__", None))


def _accumulation(engine: Any) -> int:
    """After how many iterations the engine updates, as far as its update function shows it."""
    for name, value in _closure(engine._process_function):  # noqa: SLF001
        if name == _UPDATES and isinstance(value, int):
            return value
    return 1


def _models(torch: Any, engine: Any) -> Iterator[Any]:
    """The modules with trainable parameters that an engine, or its update function, holds."""
    held = [*vars(engine).values(), *(value for _, value in _closure(engine._process_function))]  # noqa: SLF001
    seen = set()
    for value in held:
        if isinstance(value, torch.nn.Module) and id(value) not in seen:
            seen.add(id(value))
            if any(parameter.requires_grad for parameter in value.parameters()):
                yield value


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function holds of its surroundings, and what those functions hold."""
    todo, seen = [function], set()
    while todo:
        one = todo.pop()
        one = getattr(one, "__func__", one)
        if id(one) in seen:
            continue
        seen.add(id(one))
        names = getattr(getattr(one, "__code__", None), "co_freevars", ())
        for name, cell in zip(names, getattr(one, "__closure__", None) or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            yield name, value
            if hasattr(value, "__closure__"):
                todo.append(value)
