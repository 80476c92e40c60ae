"""The plain loop, marked for the public tracer as its own page says."""

from __future__ import annotations

import kit

import traceml_ai as traceml

traceml.init(mode="auto")
steps, ballast = kit.asked()
times = kit.Steps()
kit.train(kit.Net(ballast), steps, times.end, window=traceml.trace_step)
times.tell()
