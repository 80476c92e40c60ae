"""Which models' calls are timed: those that were named, and else those that the optimizers train."""

from __future__ import annotations

import weakref
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from traceml_ai.probe import patches as timed
from traceml_ai.probe.discover import children_of, holds_trained_parameter, trained_roots
from traceml_ai.probe.facts import precision
from traceml_ai.probe.safety import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceml_ai.probe.session import Session
    from traceml_ai.probe.state import StepState

# When no call of a found model was seen, look again after so many steps.
_DISCOVER_AT_STEPS = (0, 1, 2, 4, 8, 16, 64)
# Looking for a model walks over every object: a third of a second, and then a hundredth of the time.
_LOOKING_NS = 300_000_000
_LOOKING_SHARE = 100


class Models:
    """The measured models of a session.

    Args:
        session: Whose.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._discoveries = 0
        self._discover_from = 0  # steps
        self._looked_ns = 0
        self._levels: list[Any] = []
        self._classes: set[type] = set()

    @property
    def _st(self) -> StepState:
        return self._session.st

    def look_again(self) -> None:
        """There is a new optimizer, perhaps of another model."""
        self._discoveries, self._discover_from = 0, self._st.step

    def forget(self) -> None:
        """No model is measured any more."""
        self._classes.clear()
        self._st.targets.clear()
        self._discoveries = 0

    def measure(self, model: Any, *, named: bool = True) -> None:
        """Time the calls of ``model`` from here on; ``named``: it is what is trained."""
        kind = type(model)
        targets = self._st.targets
        key = id(model)
        if key in targets:
            return
        targets[key] = weakref.ref(model, lambda _ref: targets.pop(key, None))
        names = self._session.facts.values["model"]
        if named and kind.__name__ not in names and len(names) < 8:  # noqa: PLR2004
            names.append(kind.__name__)
        if kind in self._classes:
            return
        self._classes.add(kind)
        owned = next((vars(c)["__call__"] for c in kind.__mro__ if "__call__" in vars(c)), None)
        module = self._session.torch.nn.Module
        inherited = owned is vars(module).get("__call__")
        # A parent class may be patched already; its wrapper would then be the inner one.
        if any(c in self._classes for c in kind.__mro__[1:]):
            return
        call = timed.timed_call(
            self._st,
            None if inherited else owned,
            module,
            get_ident,
            self._session.torch.compiler.is_dynamo_compiling,
        )
        self._session.patches.set(kind, "__call__", call)

    def find(self, wrt: object = None) -> None:
        """A backward without a model call: find what is trained."""
        if self._take_candidate():
            return
        begin = perf_counter_ns()
        if self._st.step - self._discover_from < self._next_discovery():
            return
        allowed = _LOOKING_NS + (begin - self._session.origin[0]) // _LOOKING_SHARE
        if self._looked_ns > allowed:
            return
        self._discoveries += 1
        try:
            inputs = wrt if isinstance(wrt, (list, tuple)) else ()
            roots = trained_roots(self._session.torch.nn.Module, [*self._held(), *map(id, inputs)])
            # Roots that were found before and not called since are containers: go one level down.
            if roots and all(id(r) in self._st.targets for r in roots):
                roots = self._levels = children_of(self._levels or roots)
            for root in roots:
                self.measure(root)
            if not roots and self._discoveries > 1:
                self._st.on_missing_forward = None  # bare tensors: there is no model to find
        except Exception as error:  # noqa: BLE001
            self._st.on_missing_forward = None
            self._session.warn("forward", f"the model could not be looked for ({name_of(error)})")
        self._looked_ns += perf_counter_ns() - begin
        self._session.facts.values["looking_for_model_ns"] = self._looked_ns

    def _take_candidate(self) -> bool:
        """Measure the model that was called last, if it is trained: another fold's, say."""
        model = None if self._st.candidate is None else self._st.candidate()
        self._st.candidate = None
        if model is None:
            return False
        if not holds_trained_parameter(model, self._held()):
            return False
        self.measure(model)
        return True

    def _held(self) -> Iterator[int]:
        """The parameters of all optimizers, by id."""
        return (id(p) for o in self._session.optimizers() for g in o.param_groups for p in g["params"])

    def _next_discovery(self) -> float:
        if self._discoveries >= len(_DISCOVER_AT_STEPS):
            return float("inf")
        return _DISCOVER_AT_STEPS[self._discoveries]

    def note_precision(self) -> None:
        """What the first forward computes in; autocast is only on around it."""
        self._session.facts.values.setdefault(
            "precision", precision(self._session.torch, self._session.optimizers())
        )
