"""What the kinds, phases and causes are called in text."""

from __future__ import annotations

KIND_WORDS: dict[str, str] = {
    "INPUT_BOUND": "the loop waits for its input",
    "H2D_BOUND": "copying batches to the device dominates",
    "COMPUTE_BOUND": "the time goes into the model itself",
    "RESIDUAL_HEAVY": "much of the step is in no phase",
    "HOST_BOUND": "the host can't feed the device",
    "COMM_BOUND": "ranks wait for collectives",
    "INPUT_STRAGGLER": "one rank waits for its input longer than the others",
    "COMPUTE_STRAGGLER": "one rank computes longer than the others",
    "H2D_STRAGGLER": "one rank copies longer than the others",
    "STRAGGLER": "one rank is slower than the others",
    "BALANCED": "nothing stands out",
    "INCOMPLETE_DATA": "too little was seen for a verdict",
    "NO_DATA": "no verdict",
    "SLOWDOWN": "steps became slower during the run",
    "PERIODIC_STALL": "a stall comes back every few steps",
    "EPOCH_START_STALL": "epochs start slowly",
    "GC_PAUSES": "garbage collection pauses the steps",
    "OUTSIDE_HEAVY": "much of the time is spent between steps",
    "HIGH_PRESSURE": "device memory is nearly full",
    "IMBALANCE": "device memory differs between ranks",
    "MEMORY_RISING": "memory is rising",
    "MEMORY_CREEP": "memory keeps growing",
    "NORMAL": "nothing stands out",
    "HIGH_CPU": "the processors are busy",
    "HOST_MEMORY_PRESSURE": "host memory is nearly full",
    "HIGH_RAM": "the host's memory is nearly full",
    "LOW_GPU_UTILIZATION": "the GPU is mostly idle",
    "MODERATE_GPU_UTILIZATION": "the GPU is partly idle",
    "GPU_THROTTLED": "the GPU is slowed down by its limits",
    "GPU_MEMORY_PRESSURE": "GPU memory is nearly full",
}

QUIET_KINDS = frozenset({"BALANCED", "NORMAL", "NO_DATA"})
"""Kinds that say that nothing was found: no news beside another finding."""

PHASE_WORDS: dict[str, str] = {
    "input_wait": "input wait",
    "h2d": "H2D",
    "between_steps": "between steps",
}

CAUSE_WORDS: dict[str, str] = {
    "loader": "loader start/stop",
    "gc": "garbage collection",
    "handlers": "callbacks",
    "traceml": "TraceML",
}
