"""The documented story: two profiles of the example, two runs, one comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "lightning_dataloading_bottleneck.py"
TRACEML = [sys.executable, "-m", "traceml_ai"]


def _train(profile: str, folder: Path) -> None:
    command = [
        *TRACEML,
        "run",
        "--mode",
        "summary",
        "--logs-dir",
        "logs",
        "--run-name",
        profile,
        str(EXAMPLE),
    ]
    command += ["--args", "--profile", profile, "--max-steps", "8", "--batch-size", "4"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_the_example_makes_two_runs_that_compare(tmp_path: Path) -> None:
    _train("baseline", tmp_path)
    _train("optimized", tmp_path)
    runs = [f"logs/{profile}/final_summary.json" for profile in ("baseline", "optimized")]
    compared = subprocess.run(
        [*TRACEML, "compare", *runs, "--json"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    found = json.loads(compared.stdout)
    assert found["verdict"] in {"IMPROVEMENT", "REGRESSION", "SAME", "UNKNOWN"}
    assert "num_workers" in {difference["name"] for difference in found["differences"]}
