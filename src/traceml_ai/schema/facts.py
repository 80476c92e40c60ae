"""What a training process says about itself, beside its step records.

Written by the probe as plain JSON (``facts-<pid>.json`` in the spool folder), rarely: when the
first steps closed, when a warning was added, at exit. Standard library only.
"""

from __future__ import annotations

from typing import TypedDict


class LoaderFacts(TypedDict, total=False):
    """One training loader as its attributes describe it."""

    kind: str  # class name
    batch_size: int | None
    num_workers: int
    persistent_workers: bool
    prefetch_factor: int | None
    pin_memory: bool
    multiprocessing_context: str | None


class ProbeWarning(TypedDict):
    """One thing that was not seen, or one probe of ours that was turned off, and why."""

    probe: str
    message: str


class ProcessFacts(TypedDict, total=False):
    """Everything a training process reports once; absent keys were not known."""

    pid: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    node: str  # the host's name
    attempt: int  # how often torchrun had restarted the job after failures of its own ranks
    agent: int  # process id of the torchrun that started this process; 0: none did
    framework: str  # "pytorch", "lightning", "monai", ...
    mode: str  # "inferred" or "marked"
    torch_version: str
    driver_version: str  # of the accelerator's kernel driver
    python_version: str
    framework_version: str | None
    devices: list[str]  # e.g. ["cpu"], ["cuda:0 NVIDIA H200"]
    precision: str | None
    torch_threads: int
    model: list[str]  # class names of the measured modules
    optimizers: list[str]
    loaders: list[LoaderFacts]
    user_phases: list[str]  # name of slot i, at most 8
    accumulation: int | None
    strategy: str | None  # a framework's way to use devices and processes, by its class name
    warnings: list[ProbeWarning]
    aborted_steps: int
    dropped_groups: int
    clean_exit: bool  # the interpreter reached its exit handlers
    window_open: bool  # a step was open at that moment
    exception: str | None  # class name of the exception that ended the script
    attach_cost_ns: int  # what attaching cost this process
    looking_for_model_ns: int  # what finding the trained modules cost, in total
    residual_parts_ns: dict[str, int]  # what a framework's trainer is known to have spent its residual on
    residual_parts_steps: int  # in so many steps
    handlers_ns: dict[str, int]  # what each handler between steps took, of the whole run
    own_pair_ns: int  # calibrated cost of one timed call
    trace_stopped_at_step: int | None  # --trace-max-steps reached
    host_memory_own_bytes: int  # resident memory that attaching added, and the mapped step log
