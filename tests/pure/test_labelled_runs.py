"""Whole runs whose bottleneck is known by construction, and their near misses: records in, summary out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from fakes import MS, ORDINARY_MS, SEEN, Header, Run, run_info, sample, samples_over
from traceml_ai.diagnose.summarize import RankInput, summarize
from traceml_ai.schema.samples import HostSample
from traceml_ai.schema.step import Flags, Observed
from traceml_ai.schema.summary import Finding, Summary


def loader(**values: Any) -> list[dict[str, Any]]:
    return [{"kind": "DataLoader", "batch_size": 8, "num_workers": 0, "persistent_workers": False, **values}]


def summary_of(
    run: Run, samples: list[HostSample] | None = None, *, cpus: float = 2.0, **facts: Any
) -> Summary:
    taken = samples_over(run, 20) if samples is None else samples
    return summarize(run.info(usable_cpus=cpus), [run.rank(**facts)], taken)


def kinds(summary: Summary) -> list[str]:
    return [finding.kind for finding in summary.findings]


def alarms(summary: Summary) -> list[str]:
    return [finding.kind for finding in summary.findings if finding.severity != "info"]


def the(summary: Summary, kind: str) -> Finding:
    return next(finding for finding in summary.findings if finding.kind == kind)


def every(
    n: int, period: int, value: float, *, otherwise: float = 0.0, first: int | None = None
) -> NDArray[Any]:
    series = np.full(n, otherwise)
    series[period - 1 if first is None else first :: period] = value
    return series


def epochs(n: int, length: int) -> list[Flags]:
    return [Flags.FIRST_OF_EPOCH if i % length == 0 else Flags(0) for i in range(n)]


# --- compute, balanced -------------------------------------------------------------------------


def test_a_step_of_forward_and_backward_is_compute_bound_and_good_news() -> None:
    summary = summary_of(Run().steps(150, forward=9, backward=15), loaders=loader())
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"
    assert summary.diagnosis.severity == "info"
    assert alarms(summary) == []


def test_an_optimizer_that_outweighs_the_model_is_named() -> None:
    summary = summary_of(Run().steps(150, forward=1, backward=2, optimizer=9))
    assert summary.diagnosis.kind == "COMPUTE_BOUND"
    assert summary.diagnosis.scope.phase == "optimizer"
    assert "fused=True" in summary.diagnosis.next


def test_idle_processors_are_mentioned_to_a_run_that_computes_on_one_thread() -> None:
    summary = summary_of(Run().steps(150), cpus=4.0, torch_threads=1)
    assert "torch.set_num_threads(4) (now 1)" in summary.diagnosis.next


def test_a_run_that_uses_all_its_threads_gets_no_advice_about_them() -> None:
    summary = summary_of(Run().steps(150), cpus=4.0, torch_threads=4)
    assert "set_num_threads" not in summary.diagnosis.next


def test_a_step_in_which_nothing_stands_out_is_balanced() -> None:
    run = Run().steps(150, input_wait=1.6, forward=2, backward=2, optimizer=1, user_0=1.7, residual_other=1.5)
    summary = summary_of(run, user_phases=["loss"])
    assert summary.step_time.diagnosis == "BALANCED"
    assert alarms(summary) == []


def test_a_phase_that_the_user_named_can_be_the_largest() -> None:
    summary = summary_of(Run().steps(150, user_0=20), user_phases=["loss"])
    assert summary.diagnosis.kind == "BALANCED"
    assert "loss" in summary.diagnosis.why


# --- input -------------------------------------------------------------------------------------


def sleeping(run: Run, wait: float, step: float) -> list[HostSample]:
    """Samples of a process that computes on one processor and sleeps while it waits."""
    busy = 1 - wait / step
    return samples_over(run, 20, main_cpu_s=np.linspace(0, busy * (run.now_ns - 8e9) / 1e9, 20))


def test_a_loader_that_sleeps_is_input_bound_and_gets_workers() -> None:
    run = Run().steps(300, input_wait=17)
    summary = summary_of(run, sleeping(run, 17, 26.9), loaders=loader())
    assert summary.step_time.diagnosis == "INPUT_BOUND"
    assert summary.diagnosis.severity == "critical"
    assert "num_workers=2" in summary.diagnosis.next
    assert "(now 0)" in summary.diagnosis.next
    assert summary.diagnosis.evidence["producing"] == "waiting"


def test_hiding_the_wait_is_estimated_within_its_range() -> None:
    run = Run().steps(300, input_wait=17)
    estimate = summary_of(run, sleeping(run, 17, 26.9), loaders=loader()).diagnosis.estimate
    assert estimate is not None
    assert estimate.num_workers == 2
    assert estimate.low_ms is not None
    assert estimate.step_ms is not None
    assert estimate.high_ms is not None
    assert estimate.step_ms == pytest.approx(10.15, abs=0.4)
    assert estimate.low_ms <= estimate.step_ms <= estimate.high_ms


def test_a_slow_collate_is_processor_work_and_workers_share_the_processors() -> None:
    run = Run().steps(300, input_wait=18)
    summary = summary_of(run, loaders=loader())  # the samples show one processor always busy
    estimate = summary.diagnosis.estimate
    assert summary.step_time.diagnosis == "INPUT_BOUND"
    assert summary.diagnosis.evidence["producing"] == "processor"
    assert estimate is not None
    assert estimate.step_ms is not None
    assert estimate.step_ms > 13  # (18 + 10) / 2 processors, not the 10 ms of a hidden wait


def test_processor_work_on_one_processor_is_not_helped_by_workers() -> None:
    summary = summary_of(Run().steps(300, input_wait=18), cpus=1.0, loaders=loader())
    assert summary.diagnosis.kind == "INPUT_BOUND"
    assert summary.diagnosis.estimate is None
    assert "cheaper" in summary.diagnosis.next


def test_one_worker_that_never_catches_up_gets_a_second() -> None:
    run = Run().steps(300, input_wait=22, forward=0.5, backward=1, optimizer=0.4)
    asleep = samples_over(run, 20, main_cpu_s=0.0, workers=1, workers_cpu_s=np.linspace(0, 0.2, 20))
    summary = summary_of(run, asleep, loaders=loader(num_workers=1, persistent_workers=True))
    estimate = summary.diagnosis.estimate
    assert summary.step_time.diagnosis == "INPUT_BOUND"
    assert summary.diagnosis.next == "Set num_workers=2 in the DataLoader (now 1)."
    assert estimate is not None
    assert estimate.step_ms == pytest.approx(12.3, rel=0.05)


def test_workers_that_fill_the_processors_are_not_told_to_become_more() -> None:
    summary = summary_of(Run().steps(300, input_wait=22), loaders=loader(num_workers=2))
    assert "cheaper" in summary.diagnosis.next
    assert "now num_workers=2 on 2.00 usable processors" in summary.diagnosis.next


def test_a_sawtooth_from_too_few_workers_is_input_bound_and_no_periodic_stall() -> None:
    run = Run().steps(400, input_wait=every(400, 4, 40.0, otherwise=0.2))
    summary = summary_of(run, cpus=8.0, loaders=loader(num_workers=4))
    assert summary.step_time.diagnosis == "INPUT_BOUND"
    assert "PERIODIC_STALL" not in kinds(summary)


def test_bursts_of_many_workers_are_input_bound_too() -> None:
    run = Run().steps(400, input_wait=every(400, 8, 80.0, otherwise=0.2))
    summary = summary_of(run, cpus=16.0, loaders=loader(num_workers=8))
    assert summary.step_time.diagnosis == "INPUT_BOUND"


def test_an_input_wait_of_an_eighth_is_no_finding() -> None:
    summary = summary_of(Run().steps(300, input_wait=1.4), loaders=loader())
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"


def test_without_a_known_loader_the_wait_is_input_bound_with_an_open_range() -> None:
    summary = summary_of(Run().steps(300, input_wait=10))
    estimate = summary.diagnosis.estimate
    assert summary.diagnosis.kind == "INPUT_BOUND"
    assert "num_workers > 0" in summary.diagnosis.next
    assert estimate is not None
    assert estimate.speedup_low == pytest.approx(1.0)


def test_without_fetches_input_bound_abstains_and_says_so() -> None:
    run = Run().steps(300, observed=SEEN & ~Observed.INPUT, input_wait=0, between_other=12)
    summary = summary_of(run)
    assert summary.step_time.dataloader_pct is None
    assert "INPUT_BOUND" not in kinds(summary)
    assert any("input wait was never seen" in warning for warning in summary.warnings)


# --- copies to the device, host bound ----------------------------------------------------------


def test_slow_copies_to_the_device_are_h2d_bound() -> None:
    run = Run().steps(200, observed=SEEN | Observed.H2D, h2d=6)
    summary = summary_of(run, loaders=loader(pin_memory=False))
    assert summary.step_time.diagnosis == "H2D_BOUND"
    assert "pin_memory=True in the DataLoader (now False)" in summary.diagnosis.next


def test_slow_pinned_copies_get_other_advice() -> None:
    run = Run().steps(200, observed=SEEN | Observed.H2D, h2d=6)
    summary = summary_of(run, loaders=loader(pin_memory=True))
    assert "non_blocking=True" in summary.diagnosis.next


def test_a_copy_of_a_tenth_is_no_finding() -> None:
    run = Run().steps(200, observed=SEEN | Observed.H2D, h2d=1)
    assert "H2D_BOUND" not in kinds(summary_of(run))


def on_device(n: int, **ms: Any) -> Run:
    return Run().steps(n, observed=SEEN | Observed.DEVICE | Observed.H2D, **ms)


def test_a_device_that_keeps_up_with_the_host_is_host_bound() -> None:
    summary = summary_of(on_device(200, dev_forward=3, dev_backward=5, dev_optimizer=1.5, dev_step=10))
    assert "HOST_BOUND" in kinds(summary)
    assert summary.step_time.clock == "device"


def test_a_device_that_falls_behind_the_host_is_not_host_bound() -> None:
    run = on_device(200, dev_forward=13, dev_backward=25, dev_optimizer=1.5, dev_step=40)
    summary = summary_of(run)
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"
    assert "HOST_BOUND" not in kinds(summary)
    assert the(summary, "COMPUTE_BOUND").confidence == "high"


def test_waiting_for_the_device_after_the_step_is_not_time_between_steps() -> None:
    reads_its_loss = on_device(
        200, forward=1, backward=1, dev_forward=13, dev_backward=25, dev_step=40, between_other=38
    )
    summary = summary_of(reads_its_loss)
    between = summary.step_time.phases["between_steps"]
    assert summary.diagnosis.kind == "COMPUTE_BOUND"
    assert "OUTSIDE_HEAVY" not in kinds(summary)
    assert between.mean_ms is not None
    assert between.mean_ms < 2


def test_time_between_steps_that_the_device_does_not_fill_stays() -> None:
    summary = summary_of(on_device(200, dev_forward=3, dev_backward=5, dev_step=10, between_other=38))
    assert "OUTSIDE_HEAVY" in kinds(summary)
    assert the(summary, "OUTSIDE_HEAVY").evidence["between_steps_ms"] == pytest.approx(38, rel=0.1)


def test_without_device_timing_host_bound_abstains() -> None:
    assert "HOST_BOUND" not in kinds(summary_of(Run().steps(200)))


def test_the_first_step_is_before_the_device_clock_and_leaves_it_to_the_others() -> None:
    run = Run().steps(1, observed=SEEN)
    run.steps(199, observed=SEEN | Observed.DEVICE, dev_forward=3, dev_backward=5, dev_step=10)
    summary = summary_of(run)
    assert summary.step_time.clock == "device"
    assert summary.step_time.warmup_steps == 1


def test_one_step_without_device_timing_puts_the_whole_window_on_the_host_clock() -> None:
    bits = [SEEN | Observed.DEVICE | Observed.H2D] * 199 + [SEEN]
    summary = summary_of(Run().steps(200, observed=bits, dev_forward=13, dev_step=40))
    assert summary.step_time.clock == "host"


# --- residual ----------------------------------------------------------------------------------


def test_saving_in_every_step_is_residual_heavy_although_forward_and_backward_are_large_too() -> None:
    run = Run().steps(300, forward=1.2, backward=2.0, residual_checkpoint=1.6, residual_other=4.4)
    summary = summary_of(run)
    assert summary.step_time.diagnosis == "RESIDUAL_HEAVY"
    assert "torch.save" in summary.diagnosis.why
    assert "less often" in summary.diagnosis.next


def test_a_python_heavy_loss_is_residual_heavy_with_advice_to_name_it() -> None:
    summary = summary_of(Run().steps(300, residual_other=8))
    assert summary.step_time.diagnosis == "RESIDUAL_HEAVY"
    assert "traceml.phase(name)" in summary.diagnosis.next


def test_an_evaluation_inside_the_step_is_residual_by_its_cause() -> None:
    summary = summary_of(Run().steps(300, residual_validation=8))
    assert summary.step_time.diagnosis == "RESIDUAL_HEAVY"
    assert "an evaluation pass" in summary.diagnosis.why


def test_a_residual_of_a_tenth_is_no_finding() -> None:
    assert "RESIDUAL_HEAVY" not in kinds(summary_of(Run().steps(300, residual_other=1.2)))


def test_without_forward_the_residual_can_not_be_judged() -> None:
    run = Run().steps(300, observed=SEEN & ~Observed.FORWARD, forward=0, residual_other=8)
    summary = summary_of(run)
    assert "RESIDUAL_HEAVY" not in kinds(summary)
    assert any("forward was never seen" in warning for warning in summary.warnings)


def test_without_forward_a_known_cause_is_still_named() -> None:
    run = Run().steps(300, observed=SEEN & ~Observed.FORWARD, forward=0, residual_checkpoint=8)
    assert "RESIDUAL_HEAVY" in kinds(summary_of(run))


def test_an_update_by_hand_is_not_called_residual_heavy() -> None:
    run = Run().steps(
        300, observed=SEEN & ~Observed.OPTIMIZER, flags=Flags.NO_OPTIMIZER, optimizer=0, residual_other=6
    )
    summary = summary_of(run)
    assert "RESIDUAL_HEAVY" not in kinds(summary)
    assert any("written by hand" in warning for warning in summary.warnings)


# --- over the run ------------------------------------------------------------------------------


def test_a_forward_that_doubles_midway_is_a_slowdown_from_that_step_on() -> None:
    forward = np.where(np.arange(400) < 200, 3.0, 7.0)
    summary = summary_of(Run().steps(400, forward=forward))
    assert summary.step_time.diagnosis == "SLOWDOWN"
    assert summary.diagnosis.scope.phase == "forward"
    assert summary.diagnosis.scope.first_step == pytest.approx(200, abs=3)
    assert summary.diagnosis.estimate is not None
    assert summary.diagnosis.estimate.step_ms == pytest.approx(10.1, rel=0.02)


def test_a_step_that_grows_little_by_little_is_a_slowdown_too() -> None:
    summary = summary_of(Run().steps(400, residual_other=np.linspace(0.3, 12, 400)))
    assert "SLOWDOWN" in kinds(summary)


def test_a_fetch_that_becomes_slow_is_a_slowdown_of_the_input() -> None:
    wait = np.where(np.arange(400) < 250, 0.3, 6.0)
    summary = summary_of(Run().steps(400, input_wait=wait), loaders=loader())
    assert summary.diagnosis.kind == "SLOWDOWN"
    assert "batches" in summary.diagnosis.next


def test_slow_steps_in_the_middle_that_pass_are_no_slowdown() -> None:
    index = np.arange(400)
    forward = np.where((index > 150) & (index < 250), 7.0, 3.0)
    assert "SLOWDOWN" not in kinds(summary_of(Run().steps(400, forward=forward)))


def test_a_drift_of_a_tenth_is_no_slowdown() -> None:
    forward = np.where(np.arange(400) < 200, 3.0, 4.0)
    assert "SLOWDOWN" not in kinds(summary_of(Run().steps(400, forward=forward)))


def busier(factor: float) -> Run:
    slow = np.where(np.arange(400) < 200, 1.0, factor)
    longer: dict[str, Any] = {name: value * slow for name, value in ORDINARY_MS.items()}
    return Run().steps(400, **longer)


def test_a_machine_that_gets_busier_by_a_half_is_no_slowdown() -> None:
    assert "SLOWDOWN" not in kinds(summary_of(busier(1.5)))


def test_a_busier_machine_whose_workers_catch_up_meanwhile_is_no_slowdown_of_a_phase() -> None:
    slow = np.where(np.arange(400) < 200, 1.0, 1.8)
    longer: dict[str, Any] = {name: value * slow for name, value in ORDINARY_MS.items()}
    longer["input_wait"] = np.where(np.arange(400) < 200, 4.0, 1.0)
    assert "SLOWDOWN" not in kinds(summary_of(Run().steps(400, **longer), loaders=loader(num_workers=1)))


def test_the_phase_that_grew_is_named_though_the_machine_got_busier_too() -> None:
    slow = np.where(np.arange(400) < 200, 1.0, 2.0)
    longer: dict[str, Any] = {name: value * slow for name, value in ORDINARY_MS.items()}
    longer["forward"] = np.where(np.arange(400) < 200, 1.0, 8.0)
    assert the(summary_of(Run().steps(400, **longer)), "SLOWDOWN").scope.phase == "forward"


def test_a_machine_that_becomes_three_times_slower_is_a_slowdown_of_the_machine() -> None:
    finding = the(summary_of(busier(3.0)), "SLOWDOWN")
    assert finding.scope.phase is None
    assert "Look at the machine" in finding.next
    assert finding.confidence == "low"


def test_a_slowdown_is_seen_through_bursts_of_load_that_slow_every_phase() -> None:
    index = np.arange(400)
    burst = np.where(index % 60 > 35, 3.0, 1.0)
    longer: dict[str, Any] = {name: value * burst for name, value in ORDINARY_MS.items()}
    longer["forward"] = np.where(index < 200, 3.0, 9.0) * burst
    finding = summary_of(Run().steps(400, **longer)).diagnosis
    assert finding.kind == "SLOWDOWN"
    assert finding.scope.phase == "forward"


def test_bursts_of_load_alone_are_no_slowdown() -> None:
    index = np.arange(400)
    burst = np.where(index % 60 > 35, 3.0, 1.0)
    longer: dict[str, Any] = {name: value * burst for name, value in ORDINARY_MS.items()}
    assert "SLOWDOWN" not in kinds(summary_of(Run().steps(400, **longer)))


def test_every_25th_step_waiting_is_a_periodic_stall() -> None:
    summary = summary_of(Run().steps(200, residual_other=0.3 + every(200, 25, 400.0)))
    finding = summary.diagnosis
    assert summary.step_time.diagnosis == "PERIODIC_STALL"
    assert finding.why.startswith("Every 25th step takes ")
    assert finding.evidence["period_steps"] == 25
    assert finding.saved_s == pytest.approx(3.2, rel=0.03)
    assert alarms(summary) == ["PERIODIC_STALL"]


def test_a_stall_keeps_its_period_among_hiccups_of_a_busy_machine() -> None:
    hiccup = np.zeros(200)
    hiccup[[13, 44, 61, 88, 90, 132, 157, 188]] = 180.0
    run = Run().steps(200, residual_other=0.3 + every(200, 25, 400.0), backward=5 + hiccup)
    assert summary_of(run).diagnosis.evidence["period_steps"] == 25


def test_a_stall_after_every_30th_step_is_found_without_marks_too() -> None:
    summary = summary_of(Run().steps(300, between_other=0.1 + every(300, 30, 300.0)))
    assert summary.diagnosis.kind == "PERIODIC_STALL"
    assert "after the step" in summary.diagnosis.why


def test_a_checkpoint_in_every_50th_step_is_a_periodic_stall_in_torch_save() -> None:
    summary = summary_of(Run().steps(300, residual_checkpoint=every(300, 50, 500.0)))
    assert summary.diagnosis.kind == "PERIODIC_STALL"
    assert "torch.save" in summary.diagnosis.why


def test_stalls_at_a_regular_time_instead_of_step_are_found() -> None:
    forward = 12 + 10 * np.sin(np.arange(800) / 60)  # batches of varying length
    time_ms = np.cumsum(forward + 7.1)
    stall = np.diff(np.floor(time_ms / 1000), prepend=0) > 0
    summary = summary_of(Run().steps(800, forward=forward, residual_other=np.where(stall, 300.0, 0.3)))
    finding = the(summary, "PERIODIC_STALL")
    assert finding.evidence["period_steps"] is None
    assert finding.why.startswith("About every 1.")


def test_stalls_at_random_are_not_called_periodic() -> None:
    rng = np.random.default_rng(5)
    stall = np.where(rng.random(400) < 0.03, 200.0, 0.3)
    assert "PERIODIC_STALL" not in kinds(summary_of(Run().steps(400, residual_other=stall)))


def test_a_small_hiccup_every_25th_step_is_no_finding() -> None:
    summary = summary_of(Run().steps(400, residual_other=0.3 + every(400, 25, 8.0)))
    assert "PERIODIC_STALL" not in kinds(summary)


def test_an_optimizer_on_every_fourth_batch_is_how_the_loop_works() -> None:
    summary = summary_of(Run().steps(400, optimizer=every(400, 4, 30.0)))
    assert "PERIODIC_STALL" not in kinds(summary)


def test_short_epochs_with_restarting_workers_are_an_epoch_start_stall() -> None:
    run = Run().steps(
        120,
        input_wait=every(120, 20, 80.0, otherwise=0.3, first=0),
        between_loader=every(120, 20, 60.0, first=0),
        flags=epochs(120, 20),
    )
    summary = summary_of(run, loaders=loader(num_workers=2))
    assert summary.step_time.diagnosis == "EPOCH_START_STALL"
    assert "persistent_workers=True" in summary.diagnosis.next
    assert "PERIODIC_STALL" not in kinds(summary)


def test_what_starting_workers_slow_is_no_stall_of_its_own() -> None:
    run = Run().steps(
        240,
        input_wait=every(240, 20, 80.0, otherwise=0.3, first=0),
        backward=5 + every(240, 20, 90.0, first=1),
        flags=epochs(240, 20),
    )
    found = kinds(summary_of(run, loaders=loader(num_workers=2)))
    assert "EPOCH_START_STALL" in found
    assert "PERIODIC_STALL" not in found


def epoch_starts(**facts: Any) -> Finding:
    run = Run().steps(120, input_wait=every(120, 20, 140.0, otherwise=0.3, first=0), flags=epochs(120, 20))
    return the(summary_of(run, loaders=loader(**facts)), "EPOCH_START_STALL")


def test_persistent_workers_are_not_advised_to_those_who_have_them() -> None:
    assert "persistent_workers" not in epoch_starts(num_workers=2, persistent_workers=True).next


def test_persistent_workers_are_not_advised_without_workers() -> None:
    assert "persistent_workers" not in epoch_starts(num_workers=0).next


def test_long_epochs_pay_little_for_their_start() -> None:
    run = Run().steps(
        1000, input_wait=every(1000, 500, 80.0, otherwise=0.3, first=0), flags=epochs(1000, 500)
    )
    assert "EPOCH_START_STALL" not in kinds(summary_of(run, loaders=loader(num_workers=2)))


def test_full_collections_of_a_large_heap_are_gc_pauses() -> None:
    pauses = every(300, 20, 150.0)
    run = Run().steps(300, forward=3 + pauses, gc=pauses, counts={"gc_collections": (pauses > 0).astype(int)})
    summary = summary_of(run)
    assert summary.step_time.diagnosis == "GC_PAUSES"
    assert "gc.freeze()" in summary.diagnosis.next
    assert "PERIODIC_STALL" not in kinds(summary)


def test_collections_after_the_step_are_gc_pauses_and_not_also_time_outside() -> None:
    summary = summary_of(Run().steps(300, between_gc=every(300, 2, 40.0)))
    assert summary.diagnosis.kind == "GC_PAUSES"
    assert "OUTSIDE_HEAVY" not in kinds(summary)
    assert "0 collections" not in summary.diagnosis.why


def test_time_outside_that_collections_do_not_explain_stays() -> None:
    summary = summary_of(Run().steps(300, between_gc=every(300, 2, 10.0), between_validation=8))
    assert {"GC_PAUSES", "OUTSIDE_HEAVY"} <= set(kinds(summary))
    assert the(summary, "OUTSIDE_HEAVY").evidence["explained_elsewhere_s"] == pytest.approx(1.5, rel=0.1)


def test_young_collections_are_no_finding() -> None:
    run = Run().steps(300, gc=0.2, counts={"gc_collections": 1})
    assert "GC_PAUSES" not in kinds(summary_of(run))


def test_validation_between_steps_is_outside_heavy_and_named() -> None:
    summary = summary_of(Run().steps(200, between_validation=every(200, 50, 2000.0)))
    assert summary.step_time.diagnosis == "OUTSIDE_HEAVY"
    assert summary.diagnosis.evidence["cause"] == "validation"
    assert "Validate less often" in summary.diagnosis.next


def test_checkpoints_between_steps_are_outside_heavy_and_named() -> None:
    summary = summary_of(Run().steps(200, between_checkpoint=6))
    assert summary.diagnosis.kind == "OUTSIDE_HEAVY"
    assert "Save less often" in summary.diagnosis.next
    assert summary.diagnosis.estimate is not None
    assert summary.diagnosis.estimate.step_ms is None


def test_batches_made_by_hand_between_steps_never_look_compute_bound() -> None:
    run = Run().steps(200, observed=SEEN & ~Observed.INPUT, input_wait=0, between_other=50)
    summary = summary_of(run)
    assert summary.diagnosis.kind == "OUTSIDE_HEAVY"
    assert "No loader was seen" in summary.diagnosis.next
    assert summary.diagnosis.estimate is None
    assert "COMPUTE_BOUND" not in kinds(summary)


def test_logging_after_every_step_is_outside_heavy_of_no_known_cause() -> None:
    summary = summary_of(Run().steps(200, between_other=6))
    assert summary.diagnosis.kind == "OUTSIDE_HEAVY"
    assert ".item()" in summary.diagnosis.next


def test_a_tenth_between_steps_is_no_finding() -> None:
    assert "OUTSIDE_HEAVY" not in kinds(summary_of(Run().steps(200, between_other=1.2)))


def test_the_finding_that_buys_the_most_time_comes_first() -> None:
    summary = summary_of(Run().steps(200, input_wait=12, residual_other=8), loaders=loader())
    assert kinds(summary)[:2] == ["INPUT_BOUND", "RESIDUAL_HEAVY"]
    assert summary.diagnosis == summary.findings[0]


def test_what_a_stall_explains_is_taken_out_of_the_general_finding() -> None:
    residual = 6 + every(200, 25, 200.0)
    summary = summary_of(Run().steps(200, residual_other=residual))
    assert {"PERIODIC_STALL", "RESIDUAL_HEAVY"} <= set(kinds(summary))
    assert the(summary, "RESIDUAL_HEAVY").cost_ms_per_step == pytest.approx(6.0, rel=0.05)


# --- too little to judge -----------------------------------------------------------------------


def test_no_step_is_no_data() -> None:
    summary = summary_of(Run())
    assert summary.step_time.diagnosis == "NO_DATA"
    assert summary.step_time.step_ms is None
    assert summary.time.total_s is not None
    assert summary.time.steps_s is None


def test_before_the_first_step_of_a_run_that_goes_on_nothing_is_missing_yet() -> None:
    (finding,) = summarize(run_info(status="running"), [], []).findings
    assert finding.why == "No training step has ended yet."
    assert finding.next.startswith("Wait")


def test_no_rank_at_all_is_no_data() -> None:
    assert summarize(run_info(), [], []).step_time.diagnosis == "NO_DATA"


def test_only_aborted_steps_are_no_data_with_their_count() -> None:
    run = Run()
    summary = summarize(
        run.info(status="failed"), [run.rank(header=Header(aborted=1), exception="ValueError")], []
    )
    assert "1 step begun and aborted" in summary.diagnosis.why
    assert "ValueError" in summary.diagnosis.next


@pytest.mark.parametrize("n", [1, 2, 3, 19])
def test_fewer_than_twenty_steps_are_not_enough(n: int) -> None:
    summary = summary_of(Run().steps(n, input_wait=30))
    assert summary.step_time.diagnosis == "INCOMPLETE_DATA"
    assert f"NOT_ENOUGH_DATA ({n} step{'' if n == 1 else 's'}, need 20)" in summary.diagnosis.why
    assert alarms(summary) == []


def test_twenty_steps_are_enough() -> None:
    assert summary_of(Run().steps(20, input_wait=30)).step_time.diagnosis == "INPUT_BOUND"


def test_steps_below_a_millisecond_are_too_short_to_judge() -> None:
    run = Run().steps(500, input_wait=0.4, forward=0.1, backward=0.1, optimizer=0.1, residual_other=0.2)
    summary = summary_of(run)
    assert summary.step_time.diagnosis == "INCOMPLETE_DATA"
    assert "too short to judge" in summary.diagnosis.why
    assert alarms(summary) == []


def test_steps_of_little_more_than_a_millisecond_raise_no_alarm() -> None:
    run = Run().steps(500, input_wait=0.5, forward=0.2, backward=0.2, optimizer=0.1, residual_other=0.3)
    summary = summary_of(run)
    assert "INPUT_BOUND" in kinds(summary)
    assert alarms(summary) == []


def test_short_steps_with_a_long_stall_are_still_told_about_the_stall() -> None:
    run = Run().steps(
        400, forward=0.1, backward=0.1, optimizer=0.1, residual_other=0.1 + every(400, 50, 30.0)
    )
    assert summary_of(run).diagnosis.kind == "PERIODIC_STALL"


def test_steps_without_any_of_the_models_work_are_incomplete() -> None:
    run = Run().steps(200, observed=Observed.INPUT, forward=0, backward=0, optimizer=0, residual_other=9)
    summary = summary_of(run)
    assert summary.step_time.diagnosis == "INCOMPLETE_DATA"
    assert "Neither forward, backward nor optimizer" in summary.diagnosis.why


def test_one_odd_step_among_three_hundred_only_costs_coverage() -> None:
    bits = [SEEN] * 300
    bits[150] = SEEN & ~Observed.FORWARD & ~Observed.INPUT
    summary = summary_of(Run().steps(300, observed=bits, input_wait=17), loaders=loader())
    assert summary.step_time.diagnosis == "INPUT_BOUND"
    assert summary.step_time.phases["forward"].coverage == pytest.approx(299 / 300, abs=1e-5)


def test_a_five_second_first_step_is_warm_up() -> None:
    forward = np.where(np.arange(100) == 0, 5000.0, 3.0)
    summary = summary_of(Run().steps(100, forward=forward))
    assert summary.step_time.warmup_steps == 1
    assert summary.step_time.step_ms == pytest.approx(10.1, rel=0.02)
    assert summary.step_time.warmup_s == pytest.approx(5.007, rel=0.05)
    assert summary.step_time.diagnosis == "COMPUTE_BOUND"


# --- memory, processors, host ------------------------------------------------------------------


def remembering(rss_mb: NDArray[Any], **series: Any) -> Summary:
    run = Run().steps(600)
    return summary_of(run, samples_over(run, len(rss_mb), main_rss_bytes=rss_mb * 2**20, **series))


NOISE = np.random.default_rng(7).normal(0, 1.0, 200)


@pytest.mark.parametrize("n", [20, 40, 200])
def test_losses_kept_with_their_graphs_are_memory_creep_of_the_main_process(n: int) -> None:
    summary = remembering(400 + np.linspace(0, 600, n) + NOISE[:n])
    assert summary.process.diagnosis == "MEMORY_CREEP"
    finding = the(summary, "MEMORY_CREEP")
    assert finding.scope.process == "main process"
    assert finding.evidence["bytes_per_step"] == pytest.approx(2**20, rel=0.1)
    assert "detach" in finding.next
    assert finding.severity == "warning"


def test_creep_that_soon_reaches_the_limit_is_critical() -> None:
    run = Run().steps(600)
    info = run.info()
    assert info.machine is not None
    info = replace(info, machine=info.machine._replace(memory_limit_bytes=1500 << 20))
    rss = samples_over(run, 40, main_rss_bytes=(400 + np.linspace(0, 600, 40)) * 2**20)
    finding = the(summarize(info, [run.rank()], rss), "MEMORY_CREEP")
    assert finding.severity == "critical"
    assert "more steps" in finding.why


@pytest.mark.parametrize("n", [7, 12, 40, 200])
def test_a_warm_up_plateau_is_no_creep(n: int) -> None:
    x = np.linspace(0, 1, n)
    summary = remembering(400 + 600 * (1 - np.exp(-x / 0.08)) + NOISE[:n])
    assert summary.process.diagnosis == "NORMAL"


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_a_cache_that_fills_once_is_no_creep(at: float) -> None:
    x = np.linspace(0, 1, 120)
    summary = remembering(400 + 500 * (x > at) + NOISE[:120])
    assert "MEMORY_CREEP" not in kinds(summary)


def test_a_cache_that_fills_slowly_over_the_first_half_is_no_creep() -> None:
    x = np.linspace(0, 1, 120)
    summary = remembering(400 + 500 * np.minimum(x / 0.5, 1) + NOISE[:120])
    assert "MEMORY_CREEP" not in kinds(summary)


@pytest.mark.parametrize("periods", [2.5, 3.7, 6.0, 11.3, 40.0])
def test_a_sawtooth_is_no_creep(periods: float) -> None:
    x = np.linspace(0, periods, 200) % 1
    summary = remembering(400 + 300 * x + NOISE)
    assert "MEMORY_CREEP" not in kinds(summary)


def test_a_few_megabytes_of_drift_are_no_creep() -> None:
    assert remembering(400 + np.linspace(0, 12, 100)).process.diagnosis == "NORMAL"


def test_memory_that_rises_unevenly_to_the_end_is_rising_and_no_alarm() -> None:
    x = np.linspace(0, 1, 120)
    summary = remembering(400 + 900 * np.maximum(x - 0.55, 0) + NOISE[:120])
    assert summary.process.diagnosis == "MEMORY_RISING"
    assert "MEMORY_RISING" not in alarms(summary)


def test_workers_whose_shared_pages_are_copied_creep_apart_from_the_main_process() -> None:
    summary = remembering(
        np.full(40, 400.0) + NOISE[:40],
        workers=2,
        workers_pss_bytes=(300 + np.linspace(0, 500, 40)) * 2**20,
    )
    finding = the(summary, "MEMORY_CREEP")
    assert finding.scope.process == "loader workers"
    assert "arrays" in finding.next


def test_creep_is_also_told_per_epoch() -> None:
    run = Run().steps(600, flags=epochs(600, 100))
    rss = samples_over(run, 40, main_rss_bytes=(400 + np.linspace(0, 600, 40)) * 2**20)
    evidence = the(summary_of(run, rss), "MEMORY_CREEP").evidence
    assert evidence["bytes_per_epoch"] == pytest.approx(100 * 2**20, rel=0.15)


def test_memory_before_the_first_step_is_not_taken_for_growth() -> None:
    run = Run().steps(600)
    before = [sample(i * 250 * MS, main_rss_bytes=(50 + 10 * i) << 20) for i in range(30)]
    summary = summary_of(run, before + samples_over(run, 30, main_rss_bytes=float(400 << 20)))
    assert summary.process.diagnosis == "NORMAL"


def test_a_process_near_its_limit_is_under_memory_pressure() -> None:
    run = Run().steps(100)
    held = samples_over(run, 10, main_rss_bytes=60 << 30, workers=1, workers_pss_bytes=1 << 30)
    summary = summary_of(run, held)
    assert summary.process.diagnosis == "HOST_MEMORY_PRESSURE"
    assert summary.diagnosis.severity == "warning"


def test_busy_processors_are_mentioned_without_alarm() -> None:
    summary = summary_of(Run().steps(300), cpus=1.0)
    assert summary.process.diagnosis == "HIGH_CPU"
    assert summary.process.cpu_pct == pytest.approx(100, rel=0.01)
    assert summary.diagnosis.kind == "COMPUTE_BOUND"


def test_a_busy_host_is_mentioned_without_alarm() -> None:
    run = Run().steps(300)
    summary = summary_of(run, samples_over(run, 20, host_cpu_pct=99.0))
    assert summary.system.diagnosis == "HIGH_CPU"
    assert alarms(summary) == []


def test_a_host_without_free_memory_is_told() -> None:
    run = Run().steps(300)
    summary = summary_of(run, samples_over(run, 20, host_used_bytes=63 << 30))
    assert summary.system.diagnosis == "HIGH_RAM"


def test_without_samples_memory_and_processors_are_unknown() -> None:
    summary = summary_of(Run().steps(300), [])
    assert summary.process.diagnosis == "NO_DATA"
    assert summary.process.cpu_pct is None
    assert any("not sampled" in warning for warning in summary.warnings)


def device_memory(mb: NDArray[Any]) -> Summary:
    run = Run().steps(
        len(mb),
        observed=SEEN | Observed.MEMORY,
        counts={"peak_allocated_bytes": (mb * 2**20).astype(int), "peak_reserved_bytes": 2 << 30},
    )
    return summary_of(run)


def test_steady_device_memory_is_balanced() -> None:
    summary = device_memory(np.full(300, 900.0))
    assert summary.step_memory.diagnosis == "BALANCED"
    assert summary.step_memory.peak_allocated_bytes == 900 << 20


def test_device_memory_that_grows_every_step_is_creep() -> None:
    assert device_memory(900 + np.arange(300.0)).step_memory.diagnosis == "MEMORY_CREEP"


def test_device_memory_that_rises_late_is_rising() -> None:
    late = 900 + 2 * np.maximum(np.arange(300.0) - 180, 0)
    assert device_memory(late).step_memory.diagnosis == "MEMORY_RISING"


def test_device_memory_never_read_is_no_data() -> None:
    assert summary_of(Run().steps(300)).step_memory.diagnosis == "NO_DATA"


# --- several ranks -----------------------------------------------------------------------------


def test_every_rank_gets_a_row_and_the_step_is_that_of_all() -> None:
    ranks = [
        RankInput(Run(seed=i).steps(100, forward=ms).rank().aggregate, {"rank": i}, Header(pid=i, rank=i))
        for i, ms in ((1, 5.0), (0, 3.0))
    ]
    summary = summarize(run_info(), ranks, [])
    assert [row.rank for row in summary.step_time.ranks] == [0, 1]
    assert summary.step_time.phases["forward"].mean_ms == pytest.approx(4.0, rel=0.01)
    assert summary.run.steps == 100


def test_a_parent_that_only_waits_stands_behind_the_child_that_trains() -> None:
    child, parent = Run().steps(100), Run()
    summary = summarize(child.info(), [parent.rank(), child.rank(header=Header(pid=7, rank=0))], [])
    assert summary.run.steps == 100
    assert [row.steps for row in summary.step_time.ranks] == [100, 0]
    assert summary.step_time.ranks[1].rank is None
