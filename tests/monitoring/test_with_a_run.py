"""ThroughputMonitor under `traceml run`, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripted import run_both
from traceml_ai.monitoring import ThroughputMonitor

SCRIPT = Path(__file__).with_name("scripts") / "loop.py"


@pytest.mark.parametrize(("kind", "samples"), [("own", range(294, 301)), ("loader", range(300, 301))])
def test_phases_and_samples_are_the_runs_as_well(kind: str, samples: range, tmp_path: Path) -> None:
    traced, plain = run_both(SCRIPT, tmp_path, kind)
    assert (traced.code, plain.code) == (0, 0), traced.out
    assert traced.found == plain.found
    assert traced.found["records"] == 6
    assert traced.found["keys"][:4] == ["step", "t_data", "t_forward_backward", "t_update"]
    summary = traced.summary
    assert summary["run"]["steps"] == 60
    # What a loop registers after its update is the next step's: of the last one nothing follows.
    assert summary["run"]["samples"] in samples
    assert summary["throughput"]["samples_per_sec"] > 0
    assert "forward_backward" in summary["step_time"]["user_phases"]


class Device:
    """Counts what is asked of an accelerator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        self.asked: list[str] = []
        for name, answer in (
            ("synchronize", None),
            ("reset_peak_memory_stats", None),
            ("memory_allocated", 2 * 1024**3),
            ("max_memory_allocated", 3 * 1024**3),
        ):
            monkeypatch.setattr(torch.cuda, name, self._answering(name, answer))

    def _answering(self, name: str, answer: Any) -> Any:
        def ask(device: Any) -> Any:
            self.asked.append(f"{name} {device}")
            return answer

        return ask


def test_a_cuda_device_is_synchronised_when_a_phase_ends_and_its_memory_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(monkeypatch)
    monitor = ThroughputMonitor("cuda:1", record_every_n_steps=1)
    with monitor.phase("forward"):
        assert device.asked == []
    assert device.asked == ["synchronize cuda:1"]
    snapshot = monitor.step(1)
    assert snapshot is not None
    assert (snapshot["gpu_mem_gb"], snapshot["gpu_mem_peak_gb"]) == (2.0, 3.0)
    # Reset with the accumulators, so that the next peak is the next interval's.
    assert device.asked[-1] == "reset_peak_memory_stats cuda:1"


def test_a_block_that_raises_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch)
    monitor = ThroughputMonitor("cuda", record_every_n_steps=1)
    with pytest.raises(ValueError, match="no"), monitor.phase("forward"):
        raise ValueError("no")
    assert device.asked == []


def test_disabled_monitoring_never_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch)
    monitor = ThroughputMonitor("cuda", record_every_n_steps=None)
    assert not monitor.enabled
    assert list(monitor.iterate([1, 2])) == [1, 2]
    with monitor.phase("forward"):
        pass
    monitor.record_samples(3)
    monitor.reset()
    assert monitor.step(50) is None
    assert monitor.records == []
    assert device.asked == []


def test_a_torch_device_is_taken_as_well() -> None:
    import torch

    monitor = ThroughputMonitor(torch.device("cpu"))
    assert monitor.enabled
    assert monitor.step(49) is None
    assert monitor.step(50) is not None


def test_reset_forgets_what_was_accumulated() -> None:
    monitor = ThroughputMonitor("cpu", record_every_n_steps=1)
    with monitor.phase("forward"):
        pass
    monitor.record_samples(5)
    monitor.reset()
    snapshot = monitor.step(1)
    assert snapshot is not None
    assert snapshot["t_forward"] == 0.0
    assert snapshot["samples_per_sec"] == 0.0


def test_saving_replaces_the_file_as_a_whole(tmp_path: Path) -> None:
    monitor = ThroughputMonitor("cpu", record_every_n_steps=1)
    monitor.step(1)
    target = tmp_path / "one.json"
    target.write_text("old " * 1000)
    monitor.save(target)
    assert target.read_text().startswith("[")
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


_COST = """
import time
from traceml_ai.monitoring import ThroughputMonitor

monitor = ThroughputMonitor("cpu", record_every_n_steps=50)

def cost_us(calls=500):
    begin = time.thread_time_ns()
    for _ in range(calls):
        with monitor.phase("forward"):
            pass
    return (time.thread_time_ns() - begin) / calls / 1e3

# The least of many tries: a busy machine only adds.
print(min(cost_us() for _ in range(30)))
"""


def test_a_phase_costs_a_few_microseconds_at_most() -> None:
    # In a process of its own: what measures the coverage of the tests slows each line down.
    told = subprocess.run([sys.executable, "-c", _COST], check=True, capture_output=True, text=True)
    assert float(told.stdout) <= 3
