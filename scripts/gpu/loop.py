"""A training whose device times are known: kernels that sleep, with the check's own events around them."""

from __future__ import annotations

from typing import Any

import torch
from device import Cuda, Pretended

Device = Cuda | Pretended
Spans = dict[str, list[tuple[Any, Any]]]


class Loop:
    """A model, an optimizer and a copy that take so long on the device.

    Args:
        device: Where.
        forward_ms: Of a step.
        backward_ms: The same.
        optimizer_ms: The same.
    """

    def __init__(self, device: Device, forward_ms: float, backward_ms: float, optimizer_ms: float) -> None:
        self.device = device
        self.spans: Spans = {"h2d": [], "forward": [], "backward": [], "optimizer": []}
        self._model = _Model(self, forward_ms, backward_ms).to(device.where)
        self._optimizer = _Sgd(self._model.parameters(), lr=1e-3)
        self._optimizer.loop, self._optimizer.ms = self, optimizer_ms

    def sleep(self, phase: str, ms: float) -> None:
        """Sleep on the device, with events around it."""
        begin = self.device.mark()
        self.device.sleep(ms * self.device.scale)
        self.spans[phase].append((begin, self.device.mark()))

    def step(self, batch: torch.Tensor | None = None) -> None:
        """Train one step; a batch is copied to the device first."""
        if batch is not None:
            begin = self.device.mark()
            batch.to("cuda", non_blocking=True)
            self.spans["h2d"].append((begin, self.device.mark()))
        self._optimizer.zero_grad()
        self._model(torch.ones(4, 8, device=self.device.where)).sum().backward()
        self._optimizer.step()

    def run(self, batches: list[Any]) -> None:
        """Train a step for each batch of a loader; only a tensor is copied."""
        for batch in torch.utils.data.DataLoader(batches, batch_size=None, collate_fn=_as_it_is):
            self.step(batch if isinstance(batch, torch.Tensor) else None)

    def ms(self, phase: str) -> list[float]:
        """Return what the check's own events say, a step each."""
        self.device.finish()
        return [self.device.elapsed_ms(begin, end) for begin, end in self.spans[phase]]


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, model: _Model) -> torch.Tensor:
        ctx.model = model
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.model.loop.sleep("backward", ctx.model.backward_ms)
        return gradients[0], None


class _Model(torch.nn.Module):
    def __init__(self, loop: Loop, forward_ms: float, backward_ms: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.loop, self.forward_ms, self.backward_ms = loop, forward_ms, backward_ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.loop.sleep("forward", self.forward_ms)
        return _Backward.apply(self.linear(x), self)  # type: ignore[no-any-return]


class _Sgd(torch.optim.SGD):
    loop: Loop
    ms: float

    def step(self, closure: Any = None) -> Any:
        self.loop.sleep("optimizer", self.ms)
        return super().step(closure)


def _as_it_is(batch: Any) -> Any:
    return batch
