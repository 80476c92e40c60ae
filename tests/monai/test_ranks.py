"""A MONAI trainer in several processes: one summary, and the rank that the others wait for."""

from __future__ import annotations

from pathlib import Path

import scripted

SCRIPT = Path(__file__).with_name("scripts") / "ranks.py"


def test_two_ranks_are_one_run_and_the_late_one_is_named(tmp_path: Path) -> None:
    run = scripted.run(SCRIPT, tmp_path, options=("--nproc-per-node", "2"))
    assert run.code == 0, run.out
    section = run.summary["run"]
    assert (section["framework"], section["world_size"], section["steps"]) == ("monai", 2, 60)
    rows = run.summary["step_time"]["ranks"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[1]["input_wait_ms"] > 25 > rows[0]["input_wait_ms"]
    assert rows[0]["backward_ms"] > 25  # there it waits for the other
    first = run.summary["findings"][0]
    assert (first["kind"], first["scope"]["ranks"]) == ("INPUT_STRAGGLER", [1])
