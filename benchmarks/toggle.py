"""What measuring adds to a step, in one process: blocks of steps with and without our functions in place.

    python benchmarks/toggle.py plain|lightning|monai [--blocks N]

`_lockstep.py` compares processes, and two of them differ by some microseconds whatever they run. Here one
process puts the originals back every few steps and ours in again, so nothing else differs; the first steps
of a block are left out, as CPython specialises the changed calls anew. In Lightning a callback that does
nothing takes the place of ours meanwhile. The figure is the median difference of neighbouring blocks, with a
95 % interval from a bootstrap over them.
"""

# ruff: noqa: SLF001 - it takes out what is in place
from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NoReturn

import _lockstep
import torch

from traceml_ai.probe import session as sessions
from traceml_ai.probe.patches import _MISSING, Patches

BLOCKS = 200
WARM_STEPS = 400
STEPS, SKIPPED = 120, 40  # of a block
WIDTH = 8


class Toggle:
    """Called after each step: counts, times, and changes sides.

    Args:
        blocks: Of each side.
        folder: To be removed at the end.
    """

    def __init__(self, blocks: int, folder: str) -> None:
        self._blocks, self._folder = blocks, folder
        self._steps = self._begin = 0
        self._ours_in = True
        self._spent: dict[bool, list[float]] = {True: [], False: []}
        self.patches: Callable[[], list[Patches]] = list
        self.callbacks: Callable[[bool], None] = lambda _ours: None

    def __call__(self, *_args: Any) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps < WARM_STEPS:
            return
        at = (self._steps - WARM_STEPS) % STEPS
        if at == 0:
            if self._steps > WARM_STEPS:
                now = perf_counter_ns()
                self._spent[self._ours_in].append((now - self._begin) / (STEPS - SKIPPED) / 1e3)
            if len(self._spent[False]) >= self._blocks:
                self._end()
            self._change()
        if at == SKIPPED:
            self._begin = perf_counter_ns()

    def _change(self) -> None:
        self._ours_in = not self._ours_in
        replaced = list(chain.from_iterable(patches._replaced for patches in self.patches()))
        for owner, name, before, ours in replaced if self._ours_in else reversed(replaced):
            if self._ours_in or before is not _MISSING:
                setattr(owner, name, ours if self._ours_in else before)
            elif vars(owner).get(name) is ours:
                delattr(owner, name)
        self.callbacks(self._ours_in)

    def _end(self) -> NoReturn:
        """Print the figure and end the process: no loop knows how to be ended in order."""
        added = [on - off for on, off in zip(self._spent[True], self._spent[False], strict=False)][1:]
        chance = random.Random(0)
        draws = sorted(statistics.median(chance.choices(added, k=len(added))) for _ in range(2000))
        print(
            f"without {statistics.median(self._spent[False]):.0f} us, "
            f"added {statistics.median(added):.1f} us [{draws[50]:.1f}, {draws[1949]:.1f}]",
            flush=True,
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)


def _patches() -> list[Patches]:
    session = sessions.current
    assert session is not None
    return [session.patches]


def plain(toggle: Toggle) -> None:
    """The loop of `overhead.py`, 9 modules."""
    import overhead

    toggle.patches = _patches
    overhead.train(9, toggle)  # type: ignore[arg-type]


def lightning(toggle: Toggle) -> None:
    """One small layer, two samples a step."""
    import _lightning_turns

    import lightning as lit
    from traceml_ai.integrations import _lightning_attach as attaching

    class Tiny(lit.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            return self(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    def adapters() -> Iterator[Any]:
        return (adapter for adapter in attaching._adapters.values() if adapter.fit is not None)

    def callbacks(ours: bool) -> None:
        for adapter in adapters():
            trainer, callback = adapter.fit.trainer, adapter.fit.callback
            others = [each for each in trainer.callbacks if each not in {callback, idle}]
            trainer.callbacks = [callback if ours else idle, *others]

    idle = lit.Callback()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    toggle.patches = lambda: [*_patches(), *(adapter.patches for adapter in adapters())]
    toggle.callbacks = callbacks
    data = torch.utils.data.TensorDataset(torch.randn(400_000, WIDTH))
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    _lightning_turns.train(toggle, Tiny(), loader)  # type: ignore[arg-type]


def monai(toggle: Toggle) -> None:
    """A small net, two samples a step, not decollated."""
    import _monai_turns

    from traceml_ai.integrations import _ignite_calls
    from traceml_ai.integrations._ignite_run import TimedHandlers

    def handlers(ours: bool) -> None:
        run = _ignite_calls._adapter.run  # type: ignore[union-attr]
        assert run is not None
        if ours:
            run.watch_handlers()
            return
        registered = run.engine._event_handlers
        for event, entries in registered.items():
            if type(entries) is TimedHandlers:
                registered[event] = [*list.__iter__(entries)]

    toggle.patches = lambda: [*_patches(), _ignite_calls._adapter.patches]  # type: ignore[union-attr]
    toggle.callbacks = handlers
    batch = {"image": torch.randn(2, WIDTH), "label": torch.randn(2, WIDTH)}
    net, loss = torch.nn.Linear(WIDTH, WIDTH), torch.nn.MSELoss()
    _monai_turns.train(toggle, net, batch, loss_function=loss, decollate=False)  # type: ignore[arg-type]


LOOPS = {"plain": plain, "lightning": lightning, "monai": monai}


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    _lockstep.attach(folder)
    LOOPS[options.loop](Toggle(options.blocks, folder))


if __name__ == "__main__":
    main()
