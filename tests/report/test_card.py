from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from report.summaries import INPUT_BOUND, STALL, any_summary, breakdowns, empty_summary, make_summary, phase
from traceml_ai.report.card import MAX_LINES, render_card
from traceml_ai.schema.summary import (
    BetweenByCause,
    Estimate,
    Finding,
    PhaseStats,
    RunSection,
    StepTimeSection,
    Summary,
    TimeSection,
)

widths = st.sampled_from([80, 100])


def rows(card: str) -> dict[str, list[str]]:
    """Cells of the table by phase."""
    found = {}
    for line in card.splitlines():
        match = re.fullmatch(r"  (.{14}) [█░#. ]+(( +[\d.,<n/a]+){3}) +([\d.]+ %|n/a)", line)
        if match:
            found[match[1].strip()] = [*match[2].split(), match[4]]
    return found


def shares(card: str) -> list[float]:
    return [
        float(cells[-1].removesuffix(" %"))
        for label, cells in rows(card).items()
        if not label.startswith("=") and cells[-1] != "n/a"
    ]


def line_with(card: str, start: str) -> str:
    return next(line for line in card.splitlines() if line.startswith(start))


@given(any_summary, widths, st.booleans())
@settings(max_examples=150, deadline=None)
def test_never_more_than_30_lines_nor_wider_than_asked(
    summary: Summary, width: int, ascii_only: bool
) -> None:
    lines = render_card(summary, width=width, ascii_only=ascii_only).splitlines()
    assert len(lines) <= MAX_LINES
    assert max(cell_len(line) for line in lines) <= width


@given(any_summary, widths)
@settings(max_examples=100, deadline=None)
def test_nothing_in_a_summary_can_steer_the_terminal(summary: Summary, width: int) -> None:
    card = render_card(summary, width=width)
    assert all(char.isprintable() for char in card.replace("\n", ""))


@given(any_summary)
@settings(max_examples=100, deadline=None)
def test_the_ascii_card_is_ascii(summary: Summary) -> None:
    assert render_card(summary, ascii_only=True).isascii()


@given(breakdowns(), widths)
@settings(max_examples=100, deadline=None)
def test_the_shares_shown_add_up_to_100(step_time: StepTimeSection, width: int) -> None:
    card = render_card(make_summary(step_time=step_time), width=width)
    shown = [line for line in card.splitlines() if re.search(r"\d %$", line)]
    # The sum is the last row: a phase of the user's may have any name, that of the sum too.
    parts = [float(line.split()[-2]) for line in shown[:-1]]
    assert round(sum(parts), 6) == 100.0
    assert shown[-1].endswith("100.0 %")


@pytest.mark.parametrize("width", [20, 79, 80])
def test_a_narrow_terminal_gets_80_columns(width: int) -> None:
    assert render_card(make_summary(), width=width) == render_card(make_summary(), width=80)


def test_a_wide_terminal_gets_100_columns() -> None:
    assert render_card(make_summary(), width=240) == render_card(make_summary(), width=100)


def test_the_verdict_is_the_second_line_of_a_completed_run() -> None:
    assert render_card(make_summary()).splitlines()[1] == (
        "INPUT_BOUND (critical) the loop waits for its input"
    )


def test_low_confidence_is_said_beside_the_verdict() -> None:
    unsure = msgspec.structs.replace(INPUT_BOUND, confidence="low")
    assert render_card(make_summary(diagnosis=unsure)).splitlines()[1].endswith(", low confidence")


def test_why_next_and_gain_follow_the_verdict() -> None:
    labels = [line[:7].strip() for line in render_card(make_summary()).splitlines()[2:5]]
    assert labels == ["Why", "Next", "Gain"]


def test_the_gain_names_the_change_and_its_range() -> None:
    assert line_with(render_card(make_summary()), "  Gain") == (
        "  Gain about 1.72x faster with num_workers=1: step 29.4 → 16.2 ms (15.1 to 18.0)"
    )


def test_a_gain_between_steps_is_a_speed_up_with_its_range() -> None:
    estimate = Estimate(speedup=1.2, speedup_low=1.1, speedup_high=1.25)
    finding = msgspec.structs.replace(INPUT_BOUND, estimate=estimate)
    assert line_with(render_card(make_summary(diagnosis=finding)), "  Gain") == (
        "  Gain about 1.20x faster (1.10 to 1.25)"
    )


def test_without_an_estimate_the_gain_is_the_time_at_stake() -> None:
    finding = msgspec.structs.replace(INPUT_BOUND, estimate=None)
    assert "  Gain at most 4.00 s of this run" in render_card(make_summary(diagnosis=finding))


def test_without_anything_at_stake_there_is_no_gain_line() -> None:
    finding = msgspec.structs.replace(INPUT_BOUND, estimate=None, saved_s=None)
    assert "Gain" not in render_card(make_summary(diagnosis=finding))


def test_each_phase_has_a_bar_mean_median_p95_and_share() -> None:
    assert rows(render_card(make_summary()))["input wait"] == ["18.0", "17.5", "25.2", "61.2 %"]


def test_a_phase_of_half_the_time_has_half_a_bar() -> None:
    halves = {"forward": phase(1.0, 50.0), "residual": phase(1.0, 50.0)}
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=2.0, phases=halves)
    line = line_with(render_card(make_summary(step_time=step), width=83), "  forward")
    assert line.count("█") == line.count("░") > 0


def test_the_last_row_is_the_whole_step() -> None:
    assert rows(render_card(make_summary()))["= step time"] == ["29.4", "28.8", "35.2", "100.0 %"]


def test_a_phase_that_was_not_measured_is_not_available_and_has_no_bar() -> None:
    phases = {"input_wait": PhaseStats(), "forward": phase(3.0, 75.0), "residual": phase(1.0, 25.0)}
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=4.0, phases=phases)
    card = render_card(make_summary(step_time=step))
    assert re.fullmatch(r"  input wait +n/a +n/a +n/a +n/a", line_with(card, "  input wait"))


def test_shares_that_are_no_whole_are_shown_as_they_are() -> None:
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=4.0, phases={"forward": phase(3.0, 75.04)})
    card = rows(render_card(make_summary(step_time=step)))
    assert card["forward"][-1] == card["= step time"][-1] == "75.0 %"


def test_a_measured_zero_is_a_zero() -> None:
    phases = {"input_wait": phase(0.0, 0.0), "residual": phase(1.0, 100.0)}
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=1.0, phases=phases)
    assert rows(render_card(make_summary(step_time=step)))["input wait"] == ["0", "0", "0", "0.0 %"]


def test_no_unknown_figure_is_shown_as_a_zero() -> None:
    body = render_card(empty_summary()).split("\n", 1)[1]
    assert "n/a" in body
    assert not re.search(r"\b0\b", body)


def test_transfers_have_no_row_where_there_is_no_device() -> None:
    assert "H2D" not in rows(render_card(make_summary()))


def test_transfers_have_a_row_where_there_is_a_device() -> None:
    run = RunSection(name="gpu", status="completed", devices=["cuda:0 NVIDIA H200"])
    assert rows(render_card(make_summary(run=run)))["H2D"] == ["n/a", "n/a", "n/a", "n/a"]


def test_more_named_phases_than_there_is_room_for_are_folded_into_one_row() -> None:
    named = {f"part {i}": phase(1.0, 5.0) for i in range(8)}
    phases = {"forward": phase(12.0, 60.0), **named}
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=20.0, phases=phases)
    many = make_summary(step_time=step, warnings=["first " * 30, "second " * 30, "third " * 30])
    card = render_card(many, width=80)
    assert any(re.match(r"\d other phases", label) for label in rows(card))
    assert round(sum(shares(card)), 6) == 100.0


def test_phases_that_only_some_steps_have_are_named() -> None:
    phases = {"forward": phase(1.0, 80.0), "optimizer": phase(1.0, 20.0, coverage=0.25)}
    step = StepTimeSection(diagnosis="BALANCED", steps=10, step_ms=1.25, phases=phases)
    card = render_card(make_summary(step_time=step))
    assert "In part of the steps: optimizer 25 %" in card


def test_time_between_steps_is_shown_by_cause_the_largest_first() -> None:
    assert line_with(render_card(make_summary()), "Between steps") == (
        "Between steps: 3.40 ms a step, 10.2 % of the loop: validation 0.800 s, loader start/stop 0.230 s,"
    )


def test_a_cause_of_less_than_a_hundredth_of_the_time_between_steps_is_left_out() -> None:
    causes = BetweenByCause(validation_s=1.0, checkpoint_s=0.009, gc_s=0.0, other_s=0.02)
    line = line_with(render_card(make_summary(time=TimeSection(between_by_cause=causes))), "Between steps")
    assert line.endswith("validation 1.00 s, other 0.020 s")


def test_the_parts_of_the_run_add_up_to_its_whole() -> None:
    numbers = [float(n) for n in re.findall(r"[\d.]+", line_with(render_card(make_summary()), "Run:"))]
    assert numbers[0] == pytest.approx(sum(numbers[1:]))


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (1e-1, "Run: 1.16 s = start-up 0.21 + steps 0.81 + between 0.12 + shut-down 0.02"),
        (1, "Run: 11.6 s = start-up 2.1 + steps 8.1 + between 1.2 + shut-down 0.2"),
        (1e2, "Run: 19.4 min = start-up 3.5 + steps 13.5 + between 2.1 + shut-down 0.3"),
        (1e4, "Run: 32.4 h = start-up 5.9 + steps 22.5 + between 3.5 + shut-down 0.5"),
    ],
)
def test_the_run_is_split_in_a_unit_that_fits_its_length(scale: float, said: str) -> None:
    time = TimeSection(
        total_s=11.65 * scale,
        startup_s=2.13 * scale,
        steps_s=8.11 * scale,
        between_steps_s=1.25 * scale,
        shutdown_s=0.16 * scale,
    )
    assert said in render_card(make_summary(time=time)).splitlines()


def test_known_causes_of_the_residual_are_named() -> None:
    assert "Residual holds: checkpoint 0.500 ms a step" in render_card(make_summary())


def test_what_measuring_cost_is_shown() -> None:
    assert line_with(render_card(make_summary()), "Measuring cost") == (
        "Measuring cost: 9.80 µs a step (0.03 % of the loop), 12.3 ms at the start"
    )


def test_other_findings_are_listed_without_the_primary_one() -> None:
    also = [line for line in render_card(make_summary()).splitlines() if line.startswith("Also")]
    assert also == ["Also: PERIODIC_STALL (warning): Every 23rd step takes 80 ms longer."]


def test_a_kind_that_says_all_is_well_is_no_other_finding() -> None:
    quiet = Finding(kind="NORMAL", severity="info", section="process", why="Fine.", next="Nothing.")
    assert "Also" not in render_card(make_summary(findings=[INPUT_BOUND, quiet]))


def test_more_than_three_warnings_are_counted() -> None:
    card = render_card(make_summary(warnings=["one", "two", "three", "four", "five"]))
    assert [line for line in card.splitlines() if line.startswith("Not seen")] == [
        "Not seen: one",
        "Not seen: two",
        "Not seen: three (and 2 more)",
    ]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            RunSection(name="r", status="killed", exit_code=139, steps=12, aborted_steps=1),
            "Run killed by SIGSEGV after 12 steps, 1 not finished (exit code 139): figures up to there",
        ),
        (
            RunSection(name="r", status="killed", exit_code=-9, steps=12),
            "Run killed by SIGKILL after 12 steps (exit code -9): figures up to there",
        ),
        (
            RunSection(name="r", status="failed", exit_code=1, steps=1200, exception="ValueError"),
            "Run failed with ValueError after 1,200 steps (exit code 1): figures up to there",
        ),
        (
            RunSection(name="r", status="failed", exit_code=3, steps=2),
            "Run failed after 2 steps (exit code 3): figures up to there",
        ),
        (
            RunSection(name="r", status="interrupted", exit_code=130, steps=2),
            "Run interrupted by SIGINT after 2 steps (exit code 130): figures up to there",
        ),
        (
            RunSection(name="r", status="killed", steps=2),
            "Run killed after 2 steps: figures up to there",
        ),
        (
            RunSection(name="r", status="failed", exit_code=1, steps=1),
            "Run failed after 1 step (exit code 1): figures up to there",
        ),
        (RunSection(name="r", status="running", steps=40), "Still running: 40 steps closed so far"),
    ],
)
def test_a_run_that_did_not_complete_says_how_it_ended(run: RunSection, said: str) -> None:
    assert render_card(make_summary(run=run)).splitlines()[1] == said


def test_a_card_has_no_escape_codes_unless_colours_are_asked_for() -> None:
    assert "\x1b" not in render_card(make_summary())


def test_colour_changes_nothing_but_the_colour_of_the_verdict() -> None:
    coloured = render_card(make_summary(), color=True)
    assert "\x1b[31;1mINPUT_BOUND" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render_card(make_summary())


def test_a_hostile_run_name_stays_on_its_line_as_text() -> None:
    run = RunSection(name="a\x1b[2J\nb\u202ec", status="completed", devices=["cpu"])
    assert render_card(make_summary(run=run)).startswith("TraceML · a?[2J b?c · completed")


def test_a_long_run_name_leaves_room_for_the_rest_of_the_line() -> None:
    run = RunSection(name="x" * 300, status="completed", devices=["cpu"], duration_s=1.0)
    assert render_card(make_summary(run=run), width=80).splitlines()[0].endswith("in 1.00 s · cpu")


def test_a_run_without_steps_has_no_table() -> None:
    assert "mean ms" not in render_card(empty_summary())


def test_stall_and_verdict_are_told_apart_when_the_stall_is_primary() -> None:
    card = render_card(make_summary(diagnosis=STALL))
    assert "Also: INPUT_BOUND (critical)" in card
    assert "Also: PERIODIC_STALL" not in card
