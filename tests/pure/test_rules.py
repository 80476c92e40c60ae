"""Rules and what they share, on signals put together by hand: edges that whole runs seldom reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes import MS, SEEN, Header, Run
from traceml_ai.analyze.drift import Drift
from traceml_ai.analyze.hosts import CpuFacts, HostFacts, MemoryFacts
from traceml_ai.diagnose import catalogue, words, workers
from traceml_ai.diagnose.cost import Saving, estimate, severity_of
from traceml_ai.diagnose.provider import signals_of, view_run
from traceml_ai.diagnose.rules import incomplete_data, memory_creep, slowdown
from traceml_ai.diagnose.signals import Signals
from traceml_ai.diagnose.summarize import summarize
from traceml_ai.schema.kinds import KINDS
from traceml_ai.schema.step import Flags, Observed
from traceml_ai.stats.growth import Growth


def signals(run: Run, **facts: Any) -> Signals:
    return signals_of(run.info(), view_run([run.rank(**facts)], []))


RULES = [*catalogue.SPECIFIC, *catalogue.GENERAL, *catalogue.OTHER, catalogue.FALLBACK]


@pytest.mark.parametrize(
    "rule",
    [rule for rule in RULES if rule is not incomplete_data],
    ids=lambda rule: rule.__name__.rsplit(".", 1)[-1],
)
def test_a_rule_whose_signals_are_missing_abstains(rule: Any) -> None:
    assert not rule.meets_conditions(Signals(steps=100))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.rsplit(".", 1)[-1])
def test_a_rule_has_a_kind_of_the_vocabulary_and_says_why(rule: Any) -> None:
    assert rule.KIND in KINDS
    assert rule.meets_conditions.__doc__


@pytest.mark.parametrize(
    ("share", "severity"), [(0.5, "critical"), (1 / 3, "critical"), (0.2, "warning"), (0.09, "info")]
)
def test_severity_comes_from_the_share_of_time(share: float, severity: str) -> None:
    assert severity_of(share) == severity


@pytest.mark.parametrize("saved", [0.0, -1.0, 1e12])
def test_there_is_no_estimate_of_nothing_or_of_more_than_there_is(saved: float) -> None:
    assert estimate(signals(Run().steps(50)), Saving(saved, saved, saved, "")) is None


def test_without_a_breakdown_there_is_no_estimate() -> None:
    assert estimate(Signals(), Saving(1.0, 1.0, 1.0, "")) is None


def test_a_saving_of_the_whole_loop_has_no_speedup() -> None:
    found = estimate(signals(Run().steps(50)), Saving(5.0 * MS, 1.0, 1e12, ""))
    assert found is not None
    assert found.speedup_high is None


def drift(**values: Any) -> Drift:
    known: dict[str, Any] = {
        "from_step": 50,
        "steps_after": 500,
        "before_ns": 10 * MS,
        "after_ns": 20 * MS,
        "lowest_late_ns": 19 * MS,
        "superiority": 1.0,
        "share_superiority": 0.5,
        "phase": "forward",
        "phase_growth_ns": 10 * MS,
        "phase_before_ns": 5 * MS,
        "other_growth_ns": 0,
        "other_before_ns": 5 * MS,
    }
    return Drift(**{**known, **values})


def slowed(**values: Any) -> bool:
    base = signals(Run().steps(100))
    return slowdown.meets_conditions(replace(base, drift=drift(**values)))


def test_a_slowdown_needs_every_one_of_its_conditions() -> None:
    assert slowed()
    assert not slowed(after_ns=11 * MS)
    assert not slowed(lowest_late_ns=10 * MS)
    assert not slowed(superiority=0.8)
    assert slowed(superiority=0.8, share_superiority=1.0)
    assert not slowed(superiority=0.8, share_superiority=1.0, other_growth_ns=10 * MS)
    assert not slowed(before_ns=0)
    assert not slowed(before_ns=0.1 * MS, after_ns=0.2 * MS)
    assert not slowed(steps_after=40)  # 0.8 s: another program's burst


def slowed_on_a_busy_host(own_cores: float, **values: Any) -> bool:
    base = signals(Run().steps(100))
    host = HostFacts(99.0, 100.0, None, None, None)
    cpu = CpuFacts(own_cores, None, steady=True)
    return slowdown.meets_conditions(
        replace(base, drift=drift(**values), host=host, cpu=cpu, usable_cpus=2.0)
    )


def test_other_programs_on_the_host_ask_for_a_larger_slowdown_of_one_phase() -> None:
    assert slowed_on_a_busy_host(0.9)
    assert not slowed_on_a_busy_host(0.9, after_ns=16 * MS, lowest_late_ns=15 * MS)
    assert slowed_on_a_busy_host(1.9, after_ns=16 * MS, lowest_late_ns=15 * MS)


def test_that_all_phases_grew_is_no_news_where_other_programs_run() -> None:
    alike = {"after_ns": 30 * MS, "lowest_late_ns": 29 * MS, "other_growth_ns": 10 * MS}
    assert slowed_on_a_busy_host(1.9, **alike)
    assert not slowed_on_a_busy_host(0.9, **alike)


def test_more_time_at_collectives_is_no_phases_doing_and_has_to_double_the_step() -> None:
    assert not slowdown.one_phase_grew(drift(phase="collectives"))
    assert slowed(phase="collectives", phase_growth_ns=15 * MS)
    assert not slowed(phase="collectives", after_ns=16 * MS, lowest_late_ns=15 * MS)


def test_a_step_that_is_all_one_phase_grew_in_it() -> None:
    assert slowdown.one_phase_grew(drift(other_before_ns=0))


def test_a_phase_that_was_not_there_before_grew_alone() -> None:
    assert slowdown.one_phase_grew(drift(phase_before_ns=0, other_growth_ns=4 * MS))


def test_creep_without_a_known_limit_does_not_say_when_it_ends() -> None:
    growth = Growth(300e6, 1e6, 0.95, sustained=True, still_rising=True)
    found = memory_creep.finding(Signals(steps=300, main_memory=MemoryFacts(700 << 20, 700 << 20, growth)))
    assert "more step" not in found.why
    assert found.evidence["steps_left"] is None
    assert found.confidence == "medium"


# --- workers -----------------------------------------------------------------------------------


def waiting(run: Run, cpu: CpuFacts | None, **facts: Any) -> Signals:
    return replace(signals(run, **facts), cpu=cpu)


def test_processor_use_of_the_workers_tells_what_producing_is() -> None:
    run = Run().steps(100, input_wait=20)
    two = {"loaders": [{"num_workers": 2}]}
    assert workers.producing(waiting(run, CpuFacts(0.3, 1.9, steady=True), **two)) == "processor"
    assert workers.producing(waiting(run, CpuFacts(0.3, 0.2, steady=True), **two)) == "waiting"
    assert workers.producing(waiting(run, CpuFacts(0.3, None, steady=True), **two)) == "unknown"


def test_processor_use_of_many_threads_leaves_open_what_producing_is() -> None:
    run = Run().steps(100, input_wait=10)
    found = waiting(run, CpuFacts(1.5, None, steady=True), loaders=[{"num_workers": 0}], torch_threads=4)
    assert workers.producing(found) == "unknown"
    plan = workers.plan(found)
    assert plan is not None
    assert plan.saving.least_ns < plan.saving.expected_ns < plan.saving.most_ns


def test_processors_that_will_all_be_busy_are_not_counted_on_in_full() -> None:
    run = Run().steps(100, input_wait=20)
    cpu = CpuFacts(1.0, None, steady=True)
    two = replace(waiting(run, cpu, loaders=[{"num_workers": 0}], torch_threads=1), usable_cpus=2.0)
    plan, loop = workers.plan(two), two.loop_ns
    assert plan is not None
    assert loop is not None
    assert plan.work == "processor"
    saved = [part / loop for part in (plan.saving.least_ns, plan.saving.expected_ns, plan.saving.most_ns)]
    assert saved == pytest.approx([0.85 * (1 - 1.5 / 2), 1 - 1.25 / 2, 1 - 0.9 / 2], rel=0.01)
    # Where processors are left over, the loop and its workers do not get in each other's way.
    many = workers.plan(replace(two, usable_cpus=8.0))
    assert many is not None
    assert many.saving.expected_ns > 1.2 * plan.saving.expected_ns


def test_unsampled_processor_use_leaves_open_what_producing_is() -> None:
    run = Run().steps(100, input_wait=10)
    assert workers.producing(waiting(run, None)) == "unknown"
    assert workers.producing(waiting(run, CpuFacts(None, None, steady=True))) == "unknown"


def test_without_a_loader_there_is_no_plan() -> None:
    assert workers.plan(signals(Run().steps(100, input_wait=10))) is None


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.ms(1_234_000_000), "1234 ms"),
        (words.ms(12_345_678), "12.3 ms"),
        (words.ms(1_234_567), "1.23 ms"),
        (words.seconds(2_500_000_000), "2.50 s"),
        (words.percent(0.473), "47 %"),
        (words.percent(0.0312), "3.1 %"),
        (words.percent(0.0), "0 %"),
        (words.size(512), "512 B"),
        (words.size(3.5 * 2**20), "3.50 MiB"),
        (words.size(3 * 2**40), "3072 GiB"),
        (words.plural(1, "step"), "1 step"),
        (words.plural(1200, "step"), "1,200 steps"),
        (words.ordinal(21), "21st"),
        (words.ordinal(22), "22nd"),
        (words.ordinal(33), "33rd"),
        (words.ordinal(11), "11th"),
        (words.ordinal(1_025), "1,025th"),
    ],
)
def test_numbers_are_said_in_about_three_digits(said: str, expected: str) -> None:
    assert said == expected


# --- what was not seen -------------------------------------------------------------------------


def warnings(run: Run, header: Header | None = None, **facts: Any) -> str:
    return " ".join(summarize(run.info(), [run.rank(header=header, **facts)], []).warnings)


def test_steps_that_are_in_no_figure_are_told() -> None:
    run = Run().steps(3).steps(40, flags=Flags.MARKED | Flags.UPDATE_SKIPPED)
    told = warnings(run, Header(aborted=2, dropped=1), trace_stopped_at_step=43)
    assert "3 inferred steps outside the marked ones left out" in told
    assert "1 closed step could not be kept" in told
    assert "2 steps aborted" in told
    assert "40 updates skipped" in told
    assert "Tracing stopped at step 43" in told


def test_what_the_process_says_about_itself_is_told_once() -> None:
    said = {"probe": "optimizer", "message": "turned off"}
    assert warnings(Run().steps(30), warnings=[said, said]).count("optimizer: turned off") == 1


def test_an_optimizer_that_was_never_seen_is_told() -> None:
    told = warnings(Run().steps(30, observed=SEEN & ~Observed.OPTIMIZER, optimizer=0))
    assert "optimizer was never seen: n/a." in told
