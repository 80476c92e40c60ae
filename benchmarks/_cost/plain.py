"""The plain loop by itself, in the environment of the public tracer."""

from __future__ import annotations

import kit

steps, ballast = kit.asked()
times = kit.Steps()
kit.train(kit.Net(ballast), steps, times.end)
times.tell()
