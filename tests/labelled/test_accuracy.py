"""Phases are what they are by hand: a short run of the benchmark, with room for a busy machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
# The benchmark's own limits are 2 points, 15 µs and 1 %.
POINTS, US, WALL_PCT = 6.0, 60.0, 3.0


LOOPS = ["2 ms", "2 ms marked", "accumulation", "LBFGS"]

Figures = dict[str, list[dict[str, Any]]]


def measure(loops: list[str], *, repeat: int) -> Figures:
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), "--short", "--repeat", str(repeat), "--json", "--only", *loops],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode in {0, 1}, ended.stderr
    found: Figures = json.loads(ended.stdout)
    return found


def off(figures: Figures) -> list[dict[str, Any]]:
    return [row for row in figures["phases"] if abs(row["points"]) > POINTS and abs(row["off_us"]) > US]


@pytest.fixture(scope="module")
def figures() -> Figures:
    return measure(LOOPS, repeat=1)


@pytest.mark.slow
def test_each_phase_is_near_what_it_is_by_hand(figures: Figures) -> None:
    assert len(figures["phases"]) == len(LOOPS) * 6
    doubtful = sorted({row["loop"] for row in off(figures)})
    # Another program between two stamps looks the same, but only once.
    assert doubtful == [] or off(measure(doubtful, repeat=3)) == []


@pytest.mark.slow
def test_the_parts_of_the_run_make_up_the_life_of_the_process(figures: Figures) -> None:
    assert len(figures["wall"]) == len(LOOPS)
    for wall in figures["wall"]:
        assert wall["reported_s"] == pytest.approx(wall["outside_s"], rel=WALL_PCT / 100)
