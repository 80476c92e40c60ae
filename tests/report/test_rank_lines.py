"""The card's table of ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from ranks_sim import late, simulate
from report.summaries import make_summary
from traceml_ai.report.card import MAX_LINES, render_card
from traceml_ai.report.ranks import rank_lines
from traceml_ai.schema.summary import AcrossRanks, RankRow, Spread, Summary


def job(ranks: int, slow: int) -> Summary:
    return simulate(ranks, 60, forward=late(ranks, 60, slow, 50.0, 3.0)).summary()


def lines_of(summary: Summary, most: int = 4) -> list[str]:
    return rank_lines(summary, 100, most, ascii_only=False)


def test_each_rank_has_a_row_with_its_own_work_its_wait_and_its_score() -> None:
    head, first, second, below = lines_of(job(2, 1))
    assert head.split() == ["Ranks", "step", "ms", "own", "work", "wait", "transfer", "score"]
    assert first.split()[0] == "r0"
    assert second.startswith("  r1, slowest")
    assert second.split()[-1] in {"0.17", "0.18"}
    assert "x slower" in below


def test_of_many_ranks_the_slowest_and_a_typical_one_are_shown() -> None:
    head, first, *others, _ = lines_of(job(16, 11))
    assert head.startswith("Ranks (4 of 16)")
    assert first.startswith("  r11, slowest")
    assert len(others) == 3


def test_a_run_of_one_process_has_no_table() -> None:
    assert lines_of(make_summary()) == []


def test_ranks_of_several_nodes_say_where_they_are() -> None:
    summary = job(2, 1)
    rows = [replace(row, node=f"node{row.rank}") for row in summary.step_time.ranks]
    lines = lines_of(replace(summary, step_time=replace(summary.step_time, ranks=rows)))
    assert "r1 on node1, slowest" in lines[2]


def test_a_balanced_job_has_no_slowest_rank() -> None:
    assert not any("slowest" in line for line in lines_of(simulate(2, 60).summary())[:-1])


def test_how_a_rank_ended_and_why_it_was_left_out_stand_in_its_row() -> None:
    summary = job(3, 1)
    first, second, third = summary.step_time.ranks
    rows = [replace(first, ended="SIGSEGV"), second, replace(third, left_out="no steps", score=None)]
    lines = lines_of(replace(summary, step_time=replace(summary.step_time, ranks=rows)))
    assert "r0, ended with SIGSEGV" in lines[1]
    assert "r2, no steps" in lines[3]
    assert lines[3].endswith("n/a")


def test_a_job_with_a_table_of_ranks_still_fits_on_the_card() -> None:
    for ranks in (2, 4, 16):
        card = render_card(job(ranks, 1), width=80)
        assert len(card.splitlines()) <= MAX_LINES
        assert max(map(cell_len, card.splitlines())) <= 80
        assert "r1, slowest" in card


NUMBERS = st.none() | st.floats(min_value=0, max_value=1e12)
ROWS = st.builds(
    RankRow,
    rank=st.none() | st.integers(0, 10**6),
    step_ms=NUMBERS,
    work_ms=NUMBERS,
    wait_ms=NUMBERS,
    transfer_ms=NUMBERS,
    score=st.none() | st.floats(0, 1),
    node=st.none() | st.text(max_size=40),
    left_out=st.none() | st.text(max_size=40),
    ended=st.none() | st.text(max_size=40),
)
ACROSS = st.builds(
    AcrossRanks,
    compared=st.integers(0, 10**5),
    step_ms=NUMBERS,
    ideal_step_ms=NUMBERS,
    slowdown_ratio=NUMBERS,
    from_slowest_pct=st.none() | st.floats(0, 100),
    phases=st.just({}) | st.just({"work": Spread(worst_rank=1)}),
)


@given(rows=st.lists(ROWS, max_size=12), across=ACROSS, most=st.integers(1, 8), ascii_only=st.booleans())
def test_any_table_keeps_to_its_width_and_its_rows(
    rows: list[RankRow], across: AcrossRanks, most: int, *, ascii_only: bool
) -> None:
    summary = make_summary()
    summary = replace(summary, step_time=replace(summary.step_time, ranks=rows, across_ranks=across))
    lines = rank_lines(summary, 80, most, ascii_only=ascii_only)
    assert len(lines) <= most + 2
    assert all(cell_len(line) <= 80 and line.isprintable() for line in lines)
    assert not ascii_only or all(line.isascii() for line in lines)
