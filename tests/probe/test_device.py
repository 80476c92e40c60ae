"""The device clock, on a device that returns at once and finishes later, as a real one does."""

from __future__ import annotations

import numpy as np
import pytest

from probe.stage import Iteration, Optimizer, Stage
from traceml_ai.probe.device import MAX_PENDING, DeviceTimer
from traceml_ai.schema.step import INDEX, Observed
from traceml_ai.spool.reader import LogReader
from traceml_ai.spool.writer import Identity, StepLogWriter


class Device:
    """A stream: work is queued at once and done in order, in its own time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.done_at = 0
        self.made = 0
        self.pool: list[list[int]] = []
        self.captures = False

    def launch(self, host_us: int, device_us: int) -> None:
        """The program queues work: ``host_us`` to launch it, ``device_us`` to do it."""
        self.stage.spend(host_us)
        self.done_at = max(self.done_at, self.stage.now) + device_us * 1000

    def capturing(self) -> bool:
        return self.captures

    def record(self) -> list[int]:
        assert not self.captures, "an event in a graph that is being captured"
        if self.pool:
            event = self.pool.pop()
        else:
            event = [0]
            self.made += 1
        event[0] = max(self.done_at, self.stage.now)
        return event

    def passed(self, event: list[int]) -> bool:
        assert not self.captures, "asking for an event breaks a capture"
        return event[0] <= self.stage.now

    def elapsed_ns(self, begin: list[int], end: list[int]) -> int:
        assert self.passed(end), "read before the device was there: that would synchronise"
        return end[0] - begin[0]

    def release(self, event: list[int]) -> None:
        assert all(event is not other for other in self.pool), "released twice"
        self.pool.append(event)


class Accelerated:
    """A stage with a device, writing to a real step log."""

    def __init__(self, folder: str) -> None:
        self.stage = Stage()
        self.device = Device(self.stage)
        self.writer = StepLogWriter(folder, Identity(1, -1, -1, -1, 0, 0), settles_later=True)
        self.stage.log = self.writer  # type: ignore[assignment]
        self.stage.st.device = DeviceTimer(self.device, self.writer.patch, self.writer.settle)
        self.batches: Iteration = self.stage.iterate(object())

    def step(self, scale: int = 1) -> None:
        """Host: 1 us a launch; device: forward 200, backward 400, optimizer 50."""
        stage, launch = self.stage, self.device.launch
        stage.fetch(self.batches, 10)
        stage.forward(0, body=lambda: launch(1, 200 * scale))
        stage.backward(0, body=lambda: launch(1, 400 * scale))
        stage.step(0, body=lambda: launch(1, 50 * scale))

    def wait(self) -> None:
        """The program reads the loss: the host waits for the device."""
        self.stage.now = max(self.stage.now, self.device.done_at)


@pytest.fixture
def run(tmp_path: object) -> Accelerated:
    return Accelerated(str(tmp_path))


def columns(block: np.ndarray[tuple[int, ...], np.dtype[np.int64]], name: str) -> list[int]:
    return [int(value) for value in block[:, INDEX[name]]]


def test_phases_are_what_the_device_took_and_not_what_launching_did(
    run: Accelerated, tmp_path: object
) -> None:
    for _ in range(10):
        run.step()
        run.wait()
    run.step()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert len(block) == 10
    # The device was idle while the first of its work was launched.
    assert set(columns(block, "dev_forward_ns")) == {201_000}
    assert set(columns(block, "dev_backward_ns")) == {400_000}
    assert set(columns(block, "dev_optimizer_ns")) == {50_000}
    assert set(columns(block, "forward_ns")) == {1000}
    assert all(bits & Observed.DEVICE for bits in columns(block, "observed"))


def test_a_reader_waits_for_the_device_and_the_program_does_not(run: Accelerated, tmp_path: object) -> None:
    reader = LogReader(tmp_path, 1)  # type: ignore[arg-type]
    for _ in range(5):
        run.step(scale=1000)
    host_us = 5 * 13
    assert run.stage.now == 1_000_000 + host_us * 1000
    assert len(reader.read_new()) == 0
    run.wait()
    run.step()
    assert len(reader.read_new()) == 5


def test_a_device_that_is_too_far_behind_is_given_up_on(run: Accelerated, tmp_path: object) -> None:
    for _ in range(MAX_PENDING + 10):
        run.step(scale=1000)
    timer = run.stage.st.device
    assert timer is not None
    assert timer.dropped == 10
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert len(block) == 10
    assert not any(bits & Observed.DEVICE for bits in columns(block, "observed"))


def test_events_are_reused(run: Accelerated) -> None:
    for _ in range(200):
        run.step()
        run.wait()
    assert run.device.made <= 3 * 8


def test_a_nested_phase_interrupts_the_one_around_it(run: Accelerated, tmp_path: object) -> None:
    stage, launch = run.stage, run.device.launch

    def closure() -> None:
        launch(1, 10)
        stage.forward(0, body=lambda: launch(1, 200))
        stage.backward(0, body=lambda: launch(1, 400))
        launch(1, 30)

    for _ in range(3):
        stage.fetch(run.batches, 10)
        stage.step(0, body=closure)
        run.wait()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert columns(block, "dev_forward_ns")[-1] == 200_000
    assert columns(block, "dev_backward_ns")[-1] == 400_000
    assert columns(block, "dev_optimizer_ns")[-1] == 40_000 + 1000


def test_a_second_optimizer_adds_to_the_same_step(run: Accelerated, tmp_path: object) -> None:
    stage, launch = run.stage, run.device.launch
    second = Optimizer()
    for _ in range(4):
        run.step()
        stage.forward(0, body=lambda: launch(1, 7))
        stage.backward(0, body=lambda: launch(1, 9))
        stage.step(0, second, body=lambda: launch(1, 5))
        run.wait()
    stage.st.device.finish()  # type: ignore[union-attr]
    block = LogReader(tmp_path, 1).read_rest()  # type: ignore[arg-type]
    assert len(block) == 4
    assert set(columns(block, "dev_forward_ns")) == {208_000}
    assert set(columns(block, "dev_optimizer_ns")) == {55_000}


def test_an_aborted_step_leaves_no_event_behind(run: Accelerated, tmp_path: object) -> None:
    def fails() -> None:
        raise MemoryError

    run.step()
    run.wait()
    for _ in range(20):
        run.stage.fetch(run.batches, 10)
        with pytest.raises(MemoryError):
            run.stage.forward(0, body=fails)
    run.step()
    run.wait()
    run.step()
    assert run.device.made <= 3 * 8
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert columns(block, "dev_forward_ns") == [201_000, 201_000]


def test_a_copy_to_the_device_is_h2d(run: Accelerated, tmp_path: object) -> None:
    stage, st = run.stage, run.stage.st
    for _ in range(2):
        stage.fetch(run.batches, 10)
        before = st.enter_h2d()
        run.device.launch(3, 25)
        st.leave_h2d(before)
        stage.forward(0, body=lambda: run.device.launch(1, 200))
        stage.backward(0, body=lambda: run.device.launch(1, 400))
        stage.step(0, body=lambda: run.device.launch(1, 50))
        run.wait()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert columns(block, "h2d_ns") == [3000]
    assert columns(block, "dev_h2d_ns") == [28_000]


def test_memory_is_sampled_every_few_steps(run: Accelerated, tmp_path: object) -> None:
    run.stage.st.memory = lambda: (111, 222)
    for _ in range(17):
        run.step()
        run.wait()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert columns(block, "peak_allocated_bytes") == [111, *[0] * 7] * 2
    seen = [bool(bits & Observed.MEMORY) for bits in columns(block, "observed")]
    assert seen == [True, *[False] * 7] * 2


def test_a_step_that_is_captured_into_a_graph_is_left_alone(run: Accelerated, tmp_path: object) -> None:
    run.step()
    run.step()
    run.wait()
    run.device.captures = True
    run.step()
    run.device.captures = False
    run.step()
    run.wait()
    run.step()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    seen = [bool(bits & Observed.DEVICE) for bits in columns(block, "observed")]
    assert seen == [True, True, False, True]
    assert run.device.made <= 3 * 8


def test_a_capture_that_begins_within_a_step_costs_that_step_its_device_times(
    run: Accelerated, tmp_path: object
) -> None:
    stage, launch = run.stage, run.device.launch

    def captured() -> None:
        run.device.captures = True

    def no_longer() -> None:
        run.device.captures = False

    for body in ((captured, no_longer), (lambda: launch(1, 9), lambda: launch(1, 9)), (captured, no_longer)):
        stage.fetch(run.batches, 10)
        stage.forward(0, body=body[0])
        stage.backward(0, body=body[1])
        stage.step(0, body=lambda: launch(1, 50))
        run.wait()
    run.step()
    block = LogReader(tmp_path, 1).read_new()  # type: ignore[arg-type]
    assert [bool(bits & Observed.DEVICE) for bits in columns(block, "observed")] == [False, True, False]
