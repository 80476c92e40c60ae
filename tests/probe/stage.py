"""A stage for the step state: the real timed calls around programs that only advance a fake clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from traceml_ai.probe import patches, updating
from traceml_ai.probe.columns import GENERAL, RAW_BIT, SPLIT_AFTER_STEPS, TOLD_BIT
from traceml_ai.probe.state import StepState
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, FLAGS_COLUMN, INDEX, N_COLUMNS, decode_raw
from traceml_ai.spool.layout import COUNT_AT, FIRST_AT

THREAD = 7


class ListLog:
    """A step log in memory."""

    CAPACITY = 200

    def __init__(self) -> None:
        self._ints = [0] * (FIRST_AT + self.CAPACITY * N_COLUMNS)

    @property
    def records(self) -> list[list[int]]:
        return [self._record(n) for n in range(self._ints[COUNT_AT])]

    def _record(self, n: int) -> list[int]:
        return self._ints[FIRST_AT + n * N_COLUMNS :][:N_COLUMNS]

    def append(self, values: Sequence[int]) -> None:
        self._ints[COUNT_AT] += 1
        self.amend([*values, *[0] * (N_COLUMNS - len(values))])

    def amend(self, values: list[int]) -> None:
        at = FIRST_AT + (self._ints[COUNT_AT] - 1) * N_COLUMNS
        self._ints[at : at + N_COLUMNS] = values

    def patch(self, index: int, columns: dict[int, int]) -> None:
        for column, value in columns.items():
            self._ints[FIRST_AT + index * N_COLUMNS + column] = value

    def newest(self) -> list[int]:
        return self._record(self._ints[COUNT_AT] - 1)

    def place(self) -> tuple[list[int], int, int]:
        return self._ints, self._ints[COUNT_AT], self.CAPACITY


class GeneralState(StepState):
    """Never takes the fast path of plain steps."""

    __slots__ = ()

    def next_stage(self) -> int:
        """Stay in the books."""
        return GENERAL


class Parameter:
    """What the probe looks at in a parameter."""

    def __init__(self) -> None:
        self._version = 0
        self.grad: object = object()
        self.requires_grad = True
        self.device = type("Device", (), {"type": "fake"})()
        self.layout = "strided"


class Optimizer:
    """An optimizer whose step takes effect every ``every``-th call."""

    def __init__(self, every: int = 1) -> None:
        self.parameter = Parameter()
        self.param_groups = [{"params": [self.parameter]}]
        self.every = every
        self.calls = 0


class Model:
    """A model; ``training`` as in torch."""

    training = True

    def __call__(self, body: Callable[[], None]) -> None:
        body()


class Stage:
    """Programs are written as calls of the methods below; times are microseconds."""

    def __init__(self, *, plain: bool = True, optimizers: int = 1) -> None:
        self.now = 1_000_000
        self.grad = True
        self.log = ListLog()
        self.st = (StepState if plain else GeneralState)(
            ident=THREAD,
            open_log=lambda: self.log,
            grad_enabled=lambda: self.grad,
            clock=lambda: self.now,
            batch_samples=len,
        )
        self.st.optimizers = optimizers
        self.thread = THREAD
        self._inner_next: Callable[[], Any] = lambda: None
        self._next = patches.timed_next(self.st, lambda _it: self._inner_next(), self._ident)
        self._iter = patches.timed_iter(self.st, lambda loader: loader.iterator(), self._ident)
        self._backward = patches.timed_backward(self.st, _backward, self._ident, lambda: False)
        self._step = updating.timed_step(self.st, _step, self._ident, lambda: False)
        self._scaler = updating.timed_scaler_step(
            self.st, lambda _self, optimizer, body: body(optimizer), self._ident
        )
        self._save = patches.timed_save(self.st, lambda body: body(), self._ident)
        self._call = patches.timed_call(self.st, Model.__call__, Model, self._ident, lambda: False)
        self.model = Model()
        self.measure(self.model)
        self.sgd = Optimizer()

    def _ident(self) -> int:
        return self.thread

    def measure(self, model: Model) -> None:
        """Make ``model`` a measured one."""
        self.st.targets[id(model)] = weakref.ref(model)

    def wait(self, us: int) -> Callable[[], None]:
        """A body that takes ``us``."""
        return lambda: self.spend(us)

    def spend(self, us: int) -> None:
        """Time passes in the program."""
        self.now += us * 1000

    def iterate(self, loader: object, us: int = 0) -> Iteration:
        """``iter(loader)``."""
        return Iteration(self, loader, us)

    def fetch(self, iteration: Iteration, us: int, batch: object = (0, 0, 0, 0)) -> None:
        """``next(iterator)``."""

        def inner() -> object:
            self.spend(us)
            return batch

        self._inner_next = inner
        self._next(iteration.token)

    def end(self, iteration: Iteration, us: int = 0) -> None:
        """``next(iterator)`` of an iterator that has no more."""

        def inner() -> None:
            self.spend(us)
            raise StopIteration

        self._inner_next = inner
        try:
            self._next(iteration.token)
        except StopIteration:
            return

    def forward(self, us: int, *, model: Model | None = None, body: Callable[[], None] | None = None) -> None:
        """``model(x)``."""
        self._call(model or self.model, body or self.wait(us))

    @contextmanager
    def evaluating(self, *, mode: bool = True) -> Iterator[None]:
        """``torch.no_grad()``, with ``model.eval()`` when ``mode``."""
        self.grad, self.model.training = False, not mode
        yield
        self.grad, self.model.training = True, True

    def backward(self, us: int, body: Callable[[], None] | None = None) -> None:
        """``loss.backward()``."""
        self._backward(body or self.wait(us))

    def step(
        self,
        us: int,
        optimizer: Optimizer | None = None,
        body: Callable[[], None] | None = None,
    ) -> None:
        """``optimizer.step()``."""
        self._step(optimizer or self.sgd, body or self.wait(us))

    def scaled_step(self, us: int, *, skip: bool = False) -> None:
        """``scaler.step(optimizer)``."""

        def body(optimizer: Optimizer) -> None:
            if skip:
                self.spend(us)
            else:
                self.step(us, optimizer)

        self._scaler(None, self.sgd, body)

    def save(self, us: int) -> None:
        """``torch.save(...)``."""
        self._save(self.wait(us))

    def warm(self, iteration: Iteration, steps: int = SPLIT_AFTER_STEPS + 2) -> None:
        """Ordinary steps, enough of them for plain ones to begin."""
        for _ in range(steps):
            self.ordinary(iteration)

    def ordinary(self, iteration: Iteration) -> None:
        """Fetch 10, forward 20, backward 40, update 5, 3 in between and 2 after."""
        self.fetch(iteration, 10)
        self.spend(1)
        self.forward(20)
        self.spend(1)
        self.backward(40)
        self.spend(1)
        self.step(5)
        self.spend(2)

    def records(self) -> list[dict[str, int]]:
        """The closed steps, columns by name, durations in microseconds."""
        return [_columns(record) for record in self.log.records]


class Token:
    """A loader's iterator: can be referred to weakly, as a real one."""


class Loader:
    """A loader that starts in ``us`` and gives one iterator, without holding on to it."""

    def __init__(self, stage: Stage, us: int, token: Token) -> None:
        self._stage = stage
        self._us = us
        self._tokens = [token]

    def iterator(self) -> Token:
        """Start, and hand the iterator over."""
        self._stage.spend(self._us)
        return self._tokens.pop()


class Iteration:
    """One pass over a loader."""

    def __init__(self, stage: Stage, _loader: object, us: int) -> None:
        self.token = Token()
        stage._iter(Loader(stage, us, self.token))


def _backward(
    tensors: Callable[[], None],
    grad_tensors: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    tensors()


def _step(optimizer: Optimizer, body: Callable[[], None]) -> None:
    body()
    optimizer.calls += 1
    if optimizer.calls % optimizer.every == 0:
        optimizer.parameter._version += 1


def _columns(record: list[int]) -> dict[str, int]:
    values = dict(zip(INDEX, record, strict=True))
    if record[FLAGS_COLUMN] & RAW_BIT:
        told = bool(record[FLAGS_COLUMN] & TOLD_BIT)
        values = dict.fromkeys(INDEX, 0) | decode_raw(record, told=told)
    for name in (*EXCLUSIVE_COLUMNS, "gc_ns"):
        values[name.removesuffix("_ns")] = values.pop(name) // 1000
    return values
