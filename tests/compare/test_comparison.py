"""Two sides compared: what may be compared, the verdict, where the time moved, what else changed, gates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from compare.sides import PHASES, RUN, given, make_run, side, step_time
from traceml_ai.compare.command import arguments, program
from traceml_ai.compare.comparison import Given, Past, compare, empty
from traceml_ai.compare.gate import Gate
from traceml_ai.compare.noise import PastRun
from traceml_ai.compare.phases import shifts
from traceml_ai.compare.wording import MINUS, bound, plural, signed
from traceml_ai.report.compare_text import render_text
from traceml_ai.schema.compare import Comparison, Difference, PhaseChange, Verdict, encode
from traceml_ai.schema.series import Blocks
from traceml_ai.schema.summary import (
    BetweenByCause,
    Finding,
    PhaseStats,
    ProcessSection,
    Severity,
    StepMemorySection,
    Summary,
    SystemSection,
    TimeSection,
)

QUIET_PAST = Past([[PastRun(10 + 0.02 * (i % 3), 1e-8) for i in range(20)]], "logs")


def against(
    b: Summary | Sequence[Given], a: Summary | Sequence[Given] | None = None, **more: Any
) -> Comparison:
    """Compare with an ordinary baseline."""
    first = make_run() if a is None else a
    sides = [[given(s, f"logs/{n}")] if isinstance(s, Summary) else s for n, s in (("a", first), ("b", b))]
    return compare(*sides, **more)


def slower(factor: float, seed: int = 1, **run: Any) -> Summary:
    scaled = {name: factor * ms for name, ms in PHASES.items()}
    return make_run(step_time(scaled, seed=seed), name="new", **run)


# --- may they be compared? ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("world_size", 2, "world size differs: 1 and 2"),
        ("batch_size", 16, "batch size differs: 8 and 16"),
        ("accumulation", 4, "accumulation differs: 1 and 4"),
        ("devices", ["cuda:0 NVIDIA H200"], "device differs: cpu and cuda NVIDIA H200"),
        ("precision", "bf16-mixed", "precision differs: 32-true and bf16-mixed"),
        ("threads", 8, "thread count differs: 2 and 8"),
    ],
)
def test_runs_with_other_settings_are_not_comparable(field: str, value: Any, said: str) -> None:
    found = against(make_run(**{field: value}))
    assert (found.verdict, found.reasons) == ("NOT_COMPARABLE", [said])
    assert found.headline == f"NOT_COMPARABLE: {said}"
    assert (found.step_time, found.phases, found.findings, found.memory, found.gates) == (
        None,
        [],
        [],
        [],
        [],
    )


def test_accumulation_is_counted_where_it_is_not_configured() -> None:
    found = against(make_run(microbatches=1616, samples=1616 * 8))
    assert found.reasons == ["accumulation differs: 1 and 4"]


def test_updates_that_were_skipped_are_no_accumulation() -> None:
    assert against(make_run(updates=101, skipped_updates=303)).verdict != "NOT_COMPARABLE"


def test_batches_of_another_size_are_seen_where_no_loader_says_so() -> None:
    a, b = make_run(batch_size=None), make_run(batch_size=None, samples=404 * 16)
    assert against(b, a).reasons == ["batch size differs: 8.0 and 16.0 samples a microbatch were seen"]


def test_a_short_last_batch_makes_no_other_batch_size() -> None:
    assert against(make_run(samples=404 * 8 - 60)).verdict != "NOT_COMPARABLE"


def test_samples_that_nobody_counted_are_no_other_batch_size() -> None:
    assert against(make_run(samples=None)).verdict != "NOT_COMPARABLE"


def test_another_index_is_no_other_device() -> None:
    a, b = (make_run(devices=[f"cuda:{i} NVIDIA H200"]) for i in (0, 3))
    assert against(b, a).verdict != "NOT_COMPARABLE"


def test_runs_of_one_side_must_be_alike_too() -> None:
    mixed = [*side(1.0), *side(1.0, first_seed=1, batch_size=16)]
    assert compare(mixed, side(1.0)).reasons == ["the runs of side A differ in batch size: 16 and 8"]


def test_a_setting_that_one_side_did_not_record_is_noted_and_compared() -> None:
    found = against(make_run(threads=None))
    assert found.verdict != "NOT_COMPARABLE"
    assert "thread count was not recorded on side B: it can't be checked" in found.warnings


def test_another_torch_is_shown_and_compared() -> None:
    found = against(make_run(versions={"torch": "2.14.0", "python": "3.11.7"}))
    assert found.verdict != "NOT_COMPARABLE"
    assert found.differences == [Difference(about="environment", name="torch", a="2.13.0", b="2.14.0")]


def test_arguments_and_settings_are_told_apart() -> None:
    command = ["/opt/python3", "train.py", "--lr=0.2", "--workers", "2"]
    found = against(make_run(command=command, num_workers=2))
    assert [(d.about, d.name, d.a, d.b) for d in found.differences] == [
        ("argument", "--lr", "0.1", "0.2"),
        ("argument", "--workers", None, "2"),
        ("setting", "num_workers", "0", "2"),
    ]


def test_another_host_another_mode_and_another_end_are_noted() -> None:
    a = replace(make_run(), system=SystemSection(diagnosis="NORMAL", hostname="node-1"))
    b = replace(
        make_run(mode="marked", status="killed", name="new"),
        system=SystemSection(diagnosis="NORMAL", hostname="node-2"),
    )
    assert against(b, a).warnings == [
        "run new of side B is killed: figures up to there",
        "steps were marked on one side and inferred on the other: check that they mean the same",
        "the sides ran on different hosts: the change may be the machine's",
    ]


def test_another_clock_is_noted() -> None:
    found = against(make_run(replace(step_time(), clock="device")))
    assert found.warnings == ["one side was timed on the host clock, the other on the device clock"]


def test_a_run_compared_with_itself_is_noted() -> None:
    assert compare(side(1.0), side(1.0)).warnings == ["logs/r0 is on both sides"]


# --- commands --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "script", "found"),
    [
        ([], None, {}),
        (["/usr/bin/python3", "a/train.py", "--lr", "0.1"], "train.py", {"--lr": "0.1"}),
        (["python", "-u", "train.py"], "train.py", {"-u": "given"}),
        (["python", "-m", "pkg.train", "x", "-v"], "pkg.train", {"argument 1": "x", "-v": "given"}),
        (
            ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "--", "ddp.py", "-x"],
            "ddp.py",
            {"--nproc-per-node": "2", "-x": "given"},
        ),
        (["train", "--lr", "-0.5", "--tag", "a", "--tag", "b"], "train", {"--lr": "-0.5", "--tag": "a b"}),
        (["python", "train.py", "--name=", "-"], "train.py", {"--name": "", "argument 1": "-"}),
        (["python", "-m"], "", {}),
    ],
)
def test_a_command_is_taken_apart(command: list[str], script: str | None, found: dict[str, str]) -> None:
    assert (program(command), arguments(command)) == (script, found)


# --- the verdict -----------------------------------------------------------------------------------


def test_a_slower_run_is_a_regression_with_its_interval() -> None:
    found = against(slower(1.2))
    assert found.step_time is not None
    assert found.verdict == "REGRESSION"
    assert found.step_time.low_pct < 20 < found.step_time.high_pct
    assert found.step_time.speedup == pytest.approx(1 / 1.2, rel=0.01)
    change = found.step_time
    span = f"[{signed(change.low_pct)}, {signed(change.high_pct)}]"
    assert found.headline == f"REGRESSION step time {signed(change.change_pct)} % {span}"
    assert found.reasons == [
        f"Every change that fits the runs is a slowdown, by {change.low_pct:.1f} % at least."
    ]


def test_a_faster_run_is_an_improvement() -> None:
    found = against(slower(0.4))
    assert found.verdict == "IMPROVEMENT"
    assert found.headline.startswith(f"IMPROVEMENT step time {MINUS}60.")
    assert found.reasons[0].startswith("Every change that fits the runs is a speed-up, by 5")


def test_single_runs_that_are_alike_are_unknown_and_say_what_it_takes() -> None:
    found = against(make_run(step_time(seed=1)))
    assert found.verdict == "UNKNOWN"
    assert found.needed is not None
    assert found.needed.runs_a_side is not None
    assert (
        f"It would take about {found.needed.runs_a_side} runs a side (now 1 and 1) to decide."
        in found.reasons
    )


def test_single_runs_whose_script_has_a_quiet_past_are_the_same() -> None:
    found = against(make_run(step_time(seed=1)), past=QUIET_PAST)
    assert found.verdict == "SAME"
    assert found.reasons[0].startswith("No change of more than ")
    assert found.noise is not None
    assert found.noise.source == "earlier_runs"
    assert found.noise.why.endswith("was learnt from 20 earlier runs of train.py in logs.")


def test_without_a_past_two_percent_are_assumed_and_it_says_so() -> None:
    noise = against(slower(1.2)).noise
    assert noise is not None
    assert (noise.source, noise.run_to_run_pct) == ("assumed", 2.0)
    assert noise.why == (
        "One run a side can't show the noise between runs: 2 % is assumed, "
        "for want of earlier runs of train.py in the log folder."
    )


def test_three_runs_a_side_show_their_own_noise() -> None:
    found = compare(side(1.0, 1.01, 0.99), side(1.0, 1.01, 0.99, first_seed=3), past=QUIET_PAST)
    assert found.noise is not None
    assert (found.noise.source, found.noise.runs) == ("runs", 6)
    assert found.noise.run_to_run_pct == pytest.approx(1.0, rel=0.2)


def test_two_runs_a_side_are_weighed_with_what_is_assumed() -> None:
    noise = compare(side(1.0, 1.01), side(1.0, 1.01, first_seed=2)).noise
    assert noise is not None
    assert noise.why.startswith(
        "So few runs show little of the noise between them, so theirs is weighed with this: 2 % is assumed"
    )


def test_steps_that_would_help_are_said() -> None:
    noisy = [make_run(step_time(spread=0.25, seed=seed)) for seed in (0, 1)]
    found = against(noisy[1], noisy[0], past=QUIET_PAST)
    assert found.needed is not None
    assert found.needed.steps_a_run is not None
    assert found.needed.steps_a_run % 100 == 0
    assert f"{found.needed.steps_a_run:,} steps a run" in found.reasons[1]


def test_runs_and_steps_that_help_only_together_are_said() -> None:
    noisy = make_run(step_time({"forward": 10.0}, spread=0.45))
    found = against(noisy, noisy)
    assert found.needed is not None
    assert found.needed.together
    assert " runs a side (now 1 and 1) with " in found.reasons[1]


def test_noise_without_hope_is_said() -> None:
    wild = Past([[PastRun(ms, 0.0) for ms in (1.0, 9.0, 2.0, 8.0, 1.0, 7.0, 3.0, 9.0)]])
    found = against(make_run(step_time(seed=1)), past=wild)
    assert found.reasons[1] == "Not even 50 runs a side would decide: the noise is too large."


def test_too_few_steps_are_unknown_and_say_how_many_it_takes() -> None:
    found = against(make_run(step_time(blocks=5)))
    assert (found.verdict, found.headline) == ("UNKNOWN", "UNKNOWN: too few steady steps")
    assert found.needed is not None
    assert found.needed.steps_a_run == 48


def test_a_summary_without_blocks_is_too_short() -> None:
    assert against(make_run(replace(step_time(), blocks=Blocks()))).verdict == "UNKNOWN"


@pytest.mark.parametrize("step_ms", [None, 0.0, -5.0, 1e300])
def test_a_run_without_a_step_time_is_empty(step_ms: float | None) -> None:
    nothing = given(make_run(replace(step_time(), step_ms=step_ms)), "logs/nothing")
    assert empty([*side(1.0), nothing]) == ["logs/nothing"]


@pytest.mark.parametrize("values", [[0.0] * 40, [-1.0, 30.0] * 20, [1e308] * 40])
def test_blocks_that_are_no_times_say_nothing(values: list[float]) -> None:
    step = step_time()
    damaged = replace(step, blocks=replace(step.blocks, phases={"step": list(values)}))
    assert against(make_run(damaged)).headline == "UNKNOWN: too few steady steps"


def test_a_run_tells_what_its_blocks_are_worth() -> None:
    ref = against(slower(1.2)).a[0]
    assert (ref.blocks, ref.steps) == (40, 400)
    assert ref.effective_blocks is not None
    assert 10 < ref.effective_blocks <= 40
    assert ref.within_pct == pytest.approx(0.1, rel=0.9)


# --- where the time moved --------------------------------------------------------------------------


def phases(**ms: float) -> Summary:
    return make_run(step_time({**PHASES, **ms}, seed=1))


def test_the_phase_that_grew_is_clear_and_the_others_are_not() -> None:
    found = against(phases(forward=6.0), past=QUIET_PAST)
    assert [change.phase for change in found.phases if change.clear] == ["forward"]
    (forward,) = (change for change in found.phases if change.phase == "forward")
    assert forward.change_ms == pytest.approx(2.0, rel=0.05)
    assert forward.low_ms < 2.0 < forward.high_ms
    assert forward.change_pct == pytest.approx(50, rel=0.05)


def test_phases_are_in_the_order_of_a_step_and_add_up_to_its_change() -> None:
    found = against(phases(forward=6.0))
    assert [change.phase for change in found.phases] == [*PHASES, "between_steps"]
    inside = [change.change_ms for change in found.phases if change.phase != "between_steps"]
    assert found.step_time is not None
    assert sum(inside) == pytest.approx(found.step_time.b_ms - found.step_time.a_ms)


def test_intervals_are_wider_the_more_phases_there_are() -> None:
    alone = make_run(step_time({"forward": 16.5})), make_run(step_time({"forward": 16.5}, seed=1))
    one = against(alone[1], alone[0]).phases[0]
    many = against(make_run(step_time({"forward": 16.5, **dict.fromkeys("abcdefgh", 0.0)})), a=None).phases
    assert len(many) < 9  # phases of one side only are left out
    both = make_run(step_time({"forward": 16.5, **dict.fromkeys("abcdefgh", 0.1)}))
    with_many = against(replace(both), both).phases[0]
    assert with_many.high_ms - with_many.change_ms > one.high_ms - one.change_ms


def test_a_phase_of_equal_runs_is_rarely_called_changed() -> None:
    wrong = 0
    for seed in range(60):
        a, b = side(*_means(seed), first_seed=20 * seed), side(*_means(seed + 100), first_seed=20 * seed + 10)
        wrong += any(change.clear for change in compare(a, b).phases)
    assert wrong <= 4


def _means(seed: int) -> list[float]:
    import numpy as np

    return [float(x) for x in 1 + 0.01 * np.random.default_rng(seed).standard_normal(5)]


def test_a_phase_that_took_no_time_before_has_no_percentage() -> None:
    a = make_run(step_time({**PHASES, "loss": 0.0}))
    found = against(phases(loss=1.0), a)
    (loss,) = (change for change in found.phases if change.phase == "loss")
    assert (loss.change_pct, loss.clear) == (None, True)


def test_a_phase_that_one_side_did_not_see_is_unknown_there_not_zero() -> None:
    assert "loss" not in [change.phase for change in against(phases(loss=1.0)).phases]


def test_a_phase_without_blocks_or_without_a_mean_has_no_interval() -> None:
    step = step_time()
    blind = replace(step, blocks=replace(step.blocks, phases={"step": step.blocks.phases["step"]}))
    assert against(make_run(blind)).phases == []
    unmeasured = replace(step, phases={**step.phases, "forward": PhaseStats()})
    assert "forward" not in [change.phase for change in against(make_run(unmeasured)).phases]


def test_a_phase_of_some_steps_is_averaged_over_all() -> None:
    step = step_time()
    half = replace(step, phases={**step.phases, "forward": PhaseStats(mean_ms=8.0, coverage=0.5)})
    (forward,) = (c for c in against(make_run(half)).phases if c.phase == "forward")
    assert forward.b_ms == 4.0


def test_time_that_left_one_phase_and_turned_up_in_another_is_a_shift() -> None:
    (shift,) = against(phases(input_wait=2.0, forward=6.5), past=QUIET_PAST).shifts
    assert (shift.source, shift.target) == ("input_wait", "forward")
    assert shift.ms == pytest.approx(2.5, rel=0.05)


def test_a_trifle_that_grew_beside_a_large_gain_is_no_shift() -> None:
    assert against(phases(input_wait=0.5, forward=4.4), past=QUIET_PAST).shifts == []


def change(phase: str, ms: float, *, clear: bool = True) -> PhaseChange:
    return PhaseChange(phase=phase, a_ms=9, b_ms=9 + ms, change_ms=ms, low_ms=ms, high_ms=ms, clear=clear)


def test_a_shift_may_have_several_sources_and_targets() -> None:
    found = shifts([change("a", -5), change("b", 3), change("c", 2), change("d", -1)])
    assert [(s.source, s.target, s.ms) for s in found] == [("a", "b", 3), ("a", "c", 2)]


def test_changes_that_are_not_clear_shift_nothing() -> None:
    assert shifts([change("a", -5, clear=False), change("b", 5)]) == []
    assert shifts([]) == []


def test_time_that_grew_between_the_steps_is_noted_because_no_step_holds_it() -> None:
    step = step_time(seed=1)
    means = step.blocks.phases["between_steps"]
    later = replace(
        step,
        phases={**step.phases, "between_steps": PhaseStats(mean_ms=9.0, coverage=1.0)},
        blocks=replace(
            step.blocks, phases={**step.blocks.phases, "between_steps": [7 + (ms or 0) for ms in means]}
        ),
    )
    found = against(make_run(later), past=QUIET_PAST)
    assert found.verdict == "SAME"
    assert found.warnings == ["time between steps changed by +7.00 ms a step: it is no part of step time"]


# --- findings, throughput, memory, time between steps ------------------------------------------------


def finding(kind: str, severity: Severity = "warning") -> Finding:
    return Finding(kind=kind, severity=severity, section="step_time", why=f"why {kind}", next="")


def finding_side(*runs: list[Finding]) -> list[Given]:
    return [given(replace(make_run(), findings=found), f"logs/{i}") for i, found in enumerate(runs)]


def told(found: Comparison) -> list[tuple[str, str]]:
    return [(each.kind, each.change) for each in found.findings]


def test_findings_come_go_and_change_their_severity() -> None:
    a = finding_side([finding("INPUT_BOUND"), finding("GC_PAUSES"), finding("BALANCED")])
    b = finding_side([finding("COMPUTE_BOUND"), finding("GC_PAUSES", "critical"), finding("NO_DATA")])
    found = compare(a, b)
    assert told(found) == [("COMPUTE_BOUND", "came"), ("GC_PAUSES", "changed"), ("INPUT_BOUND", "went")]
    assert (found.findings[1].severity_a, found.findings[1].severity_b) == ("warning", "critical")
    assert found.findings[2].why == "why INPUT_BOUND"


def test_a_finding_of_both_sides_is_no_news() -> None:
    both = finding_side([finding("INPUT_BOUND")])
    assert compare(both, both).findings == []


def test_a_finding_of_a_minority_of_runs_is_none_of_the_side() -> None:
    a = finding_side([finding("SLOWDOWN")], [], [])
    b = finding_side([finding("SLOWDOWN")], [finding("SLOWDOWN")], [])
    assert told(compare(a, b)) == [("SLOWDOWN", "came")]


def test_throughput_is_that_of_both_sides() -> None:
    found = {each.name: each for each in against(make_run()).throughput}
    assert set(found) == {"samples", "updates", "steps"}
    assert (found["samples"].a, found["samples"].change_pct) == (1789.2, 0.0)


def with_memory(
    main: int | None, workers: int | None = None, *, count: int | None = 0, device: int | None = None
) -> Summary:
    process = ProcessSection(
        diagnosis="NORMAL", main_rss_peak_bytes=main, workers=count, workers_pss_peak_bytes=workers
    )
    memory = StepMemorySection(diagnosis="NO_DATA", peak_allocated_bytes=device)
    return replace(make_run(), process=process, step_memory=memory)


def test_host_memory_is_that_of_the_process_and_its_workers() -> None:
    found = {each.name: each for each in against(with_memory(500, 250, count=2), with_memory(500)).memory}
    assert (found["host"].a, found["host"].b, found["host"].change_pct) == (500, 750, 50.0)
    assert (found["loader workers"].a, found["loader workers"].b) == (0, 250)
    assert found["loader workers"].change_pct is None
    assert "device allocated" not in found


def test_workers_whose_memory_is_not_known_make_the_host_not_known() -> None:
    found = {each.name: each for each in against(with_memory(500, None, count=2), with_memory(500)).memory}
    assert (found["host"].b, found["host"].change_pct) == (None, None)


def test_time_between_steps_is_per_step_and_by_cause() -> None:
    times = [TimeSection(between_by_cause=BetweenByCause(validation_s=v, gc_s=0.0)) for v in (0.404, 0.808)]
    a, b = (replace(make_run(), time=time) for time in times)
    (validation,) = against(b, a).between
    assert validation.name == "validation"
    assert (validation.a, validation.b) == pytest.approx((1, 2))


def test_a_run_without_counted_steps_has_no_time_between_them() -> None:
    time = TimeSection(between_by_cause=BetweenByCause(validation_s=1.0))
    assert against(replace(make_run(steps=0), time=time), replace(make_run(steps=0), time=time)).between == []


# --- gates ------------------------------------------------------------------------------------------


def gated(found: Summary | Sequence[Given], **gate: Any) -> Comparison:
    return against(found, gate=Gate(**gate))


def test_no_gate_passes_and_fails_nothing() -> None:
    found = gated(slower(1.2))
    assert (found.gates, found.passed) == ([], None)


@pytest.mark.parametrize(
    ("factor", "limit", "passed"), [(1.2, 5, False), (1.2, 25, True), (0.8, 5, True), (1.0, 0, True)]
)
def test_a_limit_on_step_time_fails_on_a_sure_and_larger_regression(
    factor: float, limit: float, passed: bool
) -> None:
    found = gated(slower(factor), max_step_time_regression_pct=limit)
    assert found.passed is passed
    assert found.gates[0].condition == f"--max-step-time-regression-pct {limit:g}"
    assert f"against {limit:g} % allowed" in found.gates[0].why


def test_a_gate_that_noise_lets_pass_says_what_it_could_not_rule_out() -> None:
    why = gated(slower(1.03), max_step_time_regression_pct=5).gates[0].why
    assert "can't be ruled out (--fail-on UNKNOWN is stricter)" in why


def test_a_limit_on_step_time_can_not_be_held_without_steps() -> None:
    found = gated(make_run(step_time(blocks=3)), max_step_time_regression_pct=5)
    assert (found.passed, found.gates[0].why) == (False, "step time has no interval: too few steps")


@pytest.mark.parametrize(
    ("verdicts", "passed"), [(("REGRESSION",), True), (("REGRESSION", "UNKNOWN"), False)]
)
def test_the_verdicts_to_fail_on_are_failed_on(verdicts: tuple[Verdict, ...], passed: bool) -> None:
    found = gated(slower(1.01), fail_on=verdicts)
    assert found.verdict == "UNKNOWN"
    assert found.passed is passed
    assert found.gates[0].condition == f"--fail-on {','.join(verdicts)}"


@pytest.mark.parametrize(
    ("b", "passed", "why"),
    [
        (with_memory(1050), True, "peak memory (host) +5.0 % against 10 % allowed"),
        (with_memory(1000, 200, count=1), False, "peak memory (host) +20.0 % against 10 % allowed"),
        (with_memory(900, device=130), False, "peak memory (device allocated) +30.0 % against 10 % allowed"),
        (with_memory(None), False, "peak memory (host) was not measured on both sides"),
    ],
)
def test_a_limit_on_memory_is_one_on_the_host_and_on_the_device(b: Summary, passed: bool, why: str) -> None:
    device = 100 if b.step_memory.peak_allocated_bytes else None
    found = against(b, with_memory(1000, device=device), gate=Gate(max_memory_regression_pct=10))
    assert (found.passed, found.gates[0].why) == (passed, why)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (with_memory(1000, device=100), with_memory(1000), "peak memory (device allocated)"),
        (with_memory(1000), with_memory(1000, device=100), "peak memory (device allocated)"),
        (with_memory(None), with_memory(None), "memory"),
    ],
)
def test_a_limit_on_memory_can_not_be_held_where_one_side_is_not_known(
    a: Summary, b: Summary, why: str
) -> None:
    found = against(b, a, gate=Gate(max_memory_regression_pct=10))
    assert (found.passed, found.gates[0].why) == (False, f"{why} was not measured on both sides")


def test_what_can_not_be_compared_passes_and_fails_no_gate() -> None:
    found = gated(make_run(threads=8), fail_on=("REGRESSION",))
    assert (found.passed, found.gates) == (None, [])


@pytest.mark.parametrize("mean_ms", [-1.0, -1e308, 1e308])
def test_a_phase_that_took_no_possible_time_is_left_out(mean_ms: float) -> None:
    step = step_time()
    damaged = replace(step, phases={**step.phases, "forward": PhaseStats(mean_ms=mean_ms, coverage=1.0)})
    found = compare([given(make_run(damaged))], [given(make_run())])
    assert "forward" not in {change.phase for change in found.phases}
    assert "backward" in {change.phase for change in found.phases}


def test_a_step_time_next_to_nothing_is_none() -> None:
    assert empty([given(make_run(replace(step_time(), step_ms=1e-320)))])


@pytest.mark.parametrize("seconds", [-1e308, 1e308])
def test_a_figure_that_no_run_can_have_is_unknown(seconds: float) -> None:
    run = make_run()
    causes = replace(run.time.between_by_cause, validation_s=seconds)
    damaged = replace(run, time=replace(run.time, between_by_cause=causes))
    found = compare([given(run)], [given(damaged)])
    assert all(each.b is None for each in found.between if each.name == "validation")
    assert render_text(found)


def test_one_gate_that_fails_fails_all() -> None:
    found = gated(slower(1.2), max_step_time_regression_pct=5, fail_on=("UNKNOWN",))
    assert ([gate.passed for gate in found.gates], found.passed) == ([False, True], False)


# --- as JSON ---------------------------------------------------------------------------------------


def test_a_comparison_is_strict_json_with_null_for_what_is_not_known() -> None:
    a = make_run(step_time({**PHASES, "loss": 0.0}))
    read = json.loads(encode(against(phases(loss=1.0), a, version="9.9")), parse_constant=pytest.fail)
    assert (read["comparison_version"], read["traceml_version"]) == (1, "9.9")
    assert [phase["change_pct"] for phase in read["phases"] if phase["phase"] == "loss"] == [None]


def test_the_settings_of_the_summary_that_count_are_those_of_the_issue() -> None:
    assert RUN.world_size == 1  # guards the fixtures: an unset field would make the settings tests empty
    assert None not in (RUN.batch_size, RUN.threads, RUN.precision)


@pytest.mark.parametrize(
    ("value", "text"), [(0.04, "0.0"), (-0.04, "0.0"), (1.26, "+1.3"), (-1234.5, f"{MINUS}1,234.5")]
)
def test_numbers_have_a_sign_unless_they_round_to_zero(value: float, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(
    ("pct", "text"), [(999.94, "+999.9"), (8e10, "+1,000 or more"), (-3.0, f"{MINUS}3.0")]
)
def test_a_bound_beyond_a_tenfold_change_is_no_figure(pct: float, text: str) -> None:
    assert bound(pct) == text


def test_one_of_a_thing_is_no_plural() -> None:
    assert (plural(1, "run"), plural(1200, "step")) == ("1 run", "1,200 steps")
