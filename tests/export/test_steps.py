"""The steps that a run keeps, and the same as tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fakes import FIRST_BEGIN_NS, MS, SEEN, START_NS, Header, Run
from traceml_ai.analyze.aggregate import HEAD_RECORDS, RECENT_RECORDS
from traceml_ai.analyze.columns import EXT
from traceml_ai.errors import TraceMLError
from traceml_ai.export.steps import (
    MOST_ROWS,
    KeptSteps,
    encode_steps,
    kept_steps,
    newest_of_each_rank,
    rank_steps,
    read_steps,
)
from traceml_ai.export.table import COLUMNS, table_of, write_csv, write_parquet
from traceml_ai.schema.step import Flags, Observed


def kept(*runs: Run, **facts: Any) -> KeptSteps:
    ranks = [run.rank(header=Header(pid=100 + at, rank=at), **facts) for at, run in enumerate(runs)]
    return kept_steps(rank_steps(ranks), START_NS)


def saved(steps: KeptSteps, folder: Path) -> KeptSteps:
    path = folder / "steps.npz"
    path.write_bytes(encode_steps(steps))
    return read_steps(path)


# --- what is kept --------------------------------------------------------------------------------


def test_a_run_of_ordinary_length_keeps_every_step() -> None:
    steps = kept(Run().steps(RECENT_RECORDS))
    assert steps.complete
    assert steps.rows[:, EXT["step"]].tolist() == list(range(RECENT_RECORDS))


def test_a_long_run_keeps_its_first_its_most_recent_and_its_slowest_steps() -> None:
    forward = np.full(30_000, 3.0)
    forward[15_000] = 900.0
    steps = kept(Run().steps(30_000, forward=forward))
    numbers = steps.rows[:, EXT["step"]].tolist()
    assert not steps.complete
    assert numbers == sorted(set(numbers))
    assert {0, HEAD_RECORDS - 1, 15_000, 30_000 - RECENT_RECORDS, 29_999} <= set(numbers)
    assert steps.closed == {0: 30_000}


def test_many_ranks_keep_fewer_steps_each() -> None:
    run = Run().steps(2000)
    rank = run.rank()
    steps = kept_steps(rank_steps([rank] * 200), START_NS)
    assert len(steps.rows) <= MOST_ROWS
    assert {0, 1999} <= set(steps.rows[steps.ranks == 7, EXT["step"]].tolist())
    assert np.unique(steps.ranks).tolist() == list(range(200))


def test_a_job_that_was_restarted_keeps_the_steps_of_every_attempt() -> None:
    second = Run().steps(5).pause(1000)
    attempts = [Run().steps(20), second.steps(10)]
    ranks = [run.rank(header=Header(pid=200 - at, rank=0)) for at, run in enumerate(attempts)]
    steps = kept_steps(rank_steps(ranks), START_NS)
    assert steps.closed == {0: 35}
    assert steps.complete
    assert [each.pid for each in newest_of_each_rank(rank_steps(ranks))] == [199]


def test_processes_without_ranks_have_numbers_behind_those_that_have_them() -> None:
    headers = [Header(pid=1), Header(pid=2, rank=3), Header(pid=3)]
    found = rank_steps([Run().steps(5).rank(header=header) for header in headers])
    assert [(each.pid, each.rank) for each in found] == [(2, 3), (1, 4), (3, 5)]


def test_a_process_that_made_no_step_is_no_rank() -> None:
    assert rank_steps([Run().rank()]) == []


def test_times_are_since_the_start_of_the_run() -> None:
    steps = kept(Run().steps(3))
    assert int(steps.rows[0, EXT["begin_ns"]]) == FIRST_BEGIN_NS - START_NS


def test_a_run_without_steps_keeps_none() -> None:
    assert len(kept(Run()).rows) == 0
    assert len(kept_steps([], START_NS).rows) == 0


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    steps = kept(Run().steps(50, user_0=1.0), Run().steps(40), user_phases=["loss"])
    read = saved(steps, tmp_path)
    assert np.array_equal(read.rows, steps.rows)
    assert np.array_equal(read.ranks, steps.ranks)
    assert (read.user_phases, read.closed) == (steps.user_phases, steps.closed)


def test_eight_thousand_steps_take_half_a_megabyte() -> None:
    assert len(encode_steps(kept(Run().steps(RECENT_RECORDS)))) < 600_000


# --- what can't be read --------------------------------------------------------------------------


def test_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceMLError, match=r"there is no .*steps\.npz"):
        read_steps(tmp_path / "steps.npz")


@pytest.mark.parametrize("damage", [b"", b"not an archive", b"PK\x03\x04cut off"])
def test_a_damaged_file_is_one_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "steps.npz"
    path.write_bytes(damage)
    with pytest.raises(TraceMLError, match="is damaged"):
        read_steps(path)


def test_a_file_cut_off_anywhere_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    data = encode_steps(kept(Run().steps(20)))
    for length in range(1, len(data), 200):
        path.write_bytes(data[:length])
        with pytest.raises(TraceMLError):
            read_steps(path)


def test_another_programs_archive_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(TraceMLError, match="is damaged"):
        read_steps(path)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    np.savez(path, facts=np.array([object()], dtype=object))
    with pytest.raises(TraceMLError, match="is damaged"):
        read_steps(path)


def test_nobody_is_advised_to_open_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    path.write_bytes(b"another program's notes")
    with pytest.raises(TraceMLError) as told:
        read_steps(path)
    assert "is damaged (it is no zip file)" in str(told.value)
    assert "pickle" not in str(told.value)


# --- tables --------------------------------------------------------------------------------------


def test_a_row_is_a_step_and_its_phases_add_up_to_it() -> None:
    table = table_of(kept(Run().steps(30, user_0=1.0), user_phases=["loss"]))
    parts = ("input_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "residual_ns", "loss_ns")
    total = np.sum([table[name][0] for name in parts], axis=0)
    assert total.tolist() == table["step_ns"][0].tolist()


def test_what_was_not_measured_is_empty_in_csv_and_null_in_parquet(tmp_path: Path) -> None:
    steps = kept(Run().steps(5))
    write_csv(steps, tmp_path / "steps.csv")
    write_parquet(steps, tmp_path / "steps.parquet")
    with (tmp_path / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "steps.parquet").to_pylist()
    assert [row["h2d_ns"] for row in rows] == [""] * 5
    assert [row["h2d_ns"] for row in table] == [None] * 5
    assert [int(row["forward_ns"]) for row in rows] == [row["forward_ns"] for row in table]
    assert int(rows[0]["forward_ns"]) == pytest.approx(3 * MS, rel=0.1)


def test_a_phase_that_some_steps_had_is_null_in_the_others(tmp_path: Path) -> None:
    observed = [SEEN if step % 2 else SEEN & ~Observed.OPTIMIZER for step in range(6)]
    write_parquet(kept(Run().steps(6, observed=observed)), tmp_path / "steps.parquet")
    optimizer = pq.read_table(tmp_path / "steps.parquet")["optimizer_ns"].to_pylist()
    assert [value is None for value in optimizer] == [True, False] * 3


def test_the_columns_are_the_same_whatever_was_measured() -> None:
    names = list(table_of(kept(Run().steps(3))))
    assert names == ["rank", "pid", *COLUMNS, "first_of_epoch", "update_skipped"]


def test_flags_are_columns() -> None:
    flags = [Flags.FIRST_OF_EPOCH, Flags.UPDATE_SKIPPED, Flags(0)]
    table = table_of(kept(Run().steps(3, flags=flags)))
    assert table["first_of_epoch"][0].tolist() == [True, False, False]
    assert table["update_skipped"][0].tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["forward", "rank", 'a,b\n"c"', "step"])
def test_a_phase_may_have_any_name(tmp_path: Path, name: str) -> None:
    steps = kept(Run().steps(3, user_0=2.0), user_phases=[name])
    write_csv(steps, tmp_path / "steps.csv")
    write_parquet(steps, tmp_path / "steps.parquet")
    label = f"user.{name}_ns" if name in {"forward", "step"} else f"{name}_ns"
    with (tmp_path / "steps.csv").open(newline="", encoding="utf-8") as file:
        assert int(next(csv.DictReader(file))[label]) == pytest.approx(2 * MS, rel=0.1)
    assert label in pq.read_table(tmp_path / "steps.parquet").column_names


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_place_that_can_not_be_written_to_is_one_line(tmp_path: Path, write: Any) -> None:
    with pytest.raises(TraceMLError, match="can't write"):
        write(kept(Run().steps(3)), tmp_path / "no folder" / "steps")
