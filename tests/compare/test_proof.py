"""A small part of the benchmark that proves the comparison, and that it makes blocks as a real run does."""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fakes import Run
from traceml_ai.analyze.columns import EXT, extend
from traceml_ai.diagnose.summarize import summarize

SOURCE = Path(__file__).parents[2] / "benchmarks" / "compare.py"
OPTIONS = argparse.Namespace(pairs=80, steps=600, seed=5)
CELLS = [(0.0, 1.0), (0.9, 0.0), (0.9, 2.0)]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_compare", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n", [30, 600, 2000])
def test_the_benchmark_makes_blocks_as_the_summary_does(bench: ModuleType, n: int) -> None:
    run = Run().steps(n)
    real = summarize(run.info(), [run.rank()], []).step_time
    assert real.warmup_steps == 0
    steps = extend(run.records(), None)[:, EXT["step_ns"]] / 1e6
    size, means = bench.block_means(steps)
    assert real.blocks.steps_per_block == size
    assert real.blocks.phases["step"] == pytest.approx(means, abs=1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_equal_runs_raise_few_alarms_and_three_percent_is_never_called_the_same(
    bench: ModuleType, cell: tuple[float, float]
) -> None:
    equal: Counter[str] = Counter()
    slower: Counter[str] = Counter()
    for seed, way in enumerate(bench.WAYS):  # together: eighty pairs of one kind say little of five per cent
        equal += bench.verdicts(np.random.default_rng(seed), way, OPTIONS, cell, 1.0)
        slower += bench.verdicts(np.random.default_rng([seed, 1]), way, OPTIONS, cell, 1.03)
    assert (equal["REGRESSION"] + equal["IMPROVEMENT"]) / sum(equal.values()) <= 0.05
    assert (slower["SAME"] + slower["IMPROVEMENT"]) / sum(slower.values()) <= 0.05


def test_five_quiet_runs_a_side_find_three_percent(bench: ModuleType) -> None:
    found = bench.verdicts(np.random.default_rng(3), bench.WAYS[-1], OPTIONS, (0.3, 0.5), 1.03)
    assert found["REGRESSION"] / OPTIONS.pairs >= 0.8
