"""Scripts whose bottleneck is known by construction, run under `traceml run` as a user would.

A script says in its first lines what is true of it::

    # label: KIND [KIND ...]     the verdict: one of these is primary
    # label: process KIND        the same of one section
    # severity: info             the label may be no alarm, and nothing else may be one
    # phase: NAME                the labelled finding's phase
    # process: NAME              its process
    # also: KIND                 may be an alarm beside it
    # never: KIND                must not be found
    # check: EXPRESSION          about the summary's sections and `primary`, the labelled finding
    # from: ADDRESS              retells what was reported there

All of them run with ``TRACEML_EVIDENCE=1``, else two of each label and a few more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from traceml_ai.schema.summary import Finding, Summary, decode

SCRIPTS = sorted(Path(__file__).with_name("scripts").glob("[!_]*.py"))
# Findings of these kinds are good news, or say that nothing can be said.
CALM = {"COMPUTE_BOUND", "BALANCED", "INCOMPLETE_DATA", "NO_DATA"}
PATIENCE_S = 120
# Of each label so many scripts are part of every run of the tests, and these.
FIRST = 2
ALWAYS = {
    "report_saving_in_the_background",
    "odd_direct_forward",
    "odd_reused_batch",
    "gan",
    "outside_validation_small",
}


class Label(NamedTuple):
    """What is true of a script."""

    section: str | None
    kinds: list[str]
    calm: bool
    phase: str | None
    process: str | None
    also: set[str]
    never: set[str]
    checks: list[str]


def wanted(scripts: list[Path]) -> list[Path]:
    """Leave out what only the long runs are for (`make evidence`): most reports, and many of one label."""
    if os.environ.get("TRACEML_EVIDENCE"):
        return scripts
    own = [s for s in scripts if "\n# from: " not in "\n" + s.read_text()]
    by_label: dict[tuple[str | None, str], list[Path]] = {}
    for script in own:
        label = label_of(script)
        by_label.setdefault((label.section, " ".join(label.kinds)), []).append(script)
    first = {script for alike in by_label.values() for script in alike[:FIRST]}
    return [s for s in scripts if s in first or s.stem in ALWAYS]


def label_of(script: Path) -> Label:
    said: dict[str, list[str]] = {}
    for line in script.read_text().splitlines():
        key, colon, value = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and colon and key.islower() and " " not in key:
            said.setdefault(key, []).append(value)
    words = said["label"][0].split()
    section = words.pop(0) if words[0].islower() else None
    return Label(
        section,
        words,
        set(words) <= CALM or "severity" in said,
        said.get("phase", [None])[0],
        said.get("process", [None])[0],
        {word for line in said.get("also", []) for word in line.split()},
        {word for line in said.get("never", []) for word in line.split()},
        said.get("check", []),
    )


def summary_of(script: Path, folder: Path) -> Summary:
    command = [sys.executable, "-m", "traceml_ai", "run", "--mode", "summary", "--logs-dir", str(folder)]
    ended = subprocess.run(
        [*command, "--run-name", script.stem, str(script)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return decode((folder / script.stem / "final_summary.json").read_bytes())


def labelled_finding(summary: Summary, label: Label) -> Finding:
    if label.section is None:
        return summary.diagnosis
    return next(finding for finding in summary.findings if finding.section == label.section)


def is_loud_enough(finding: Finding, label: Label) -> bool:
    """Return whether a finding is an alarm where the label is about one; good news never is."""
    return label.calm or finding.kind in CALM or finding.severity != "info"


def shown(summary: Summary) -> str:
    lines = [f"{f.severity} {f.kind} {f.scope}: {f.why}" for f in summary.findings]
    phases = {name: (p.share_pct, p.mean_ms) for name, p in summary.step_time.phases.items()}
    return "\n".join([*lines, str(phases), str(summary.time)])


@pytest.mark.slow
@pytest.mark.parametrize("script", wanted(SCRIPTS), ids=lambda script: script.stem)
def test_a_script_gets_the_verdict_that_is_true_of_it(script: Path, tmp_path: Path) -> None:
    label = label_of(script)
    summary = summary_of(script, tmp_path)
    primary = labelled_finding(summary, label)
    assert primary.kind in label.kinds, shown(summary)
    assert is_loud_enough(primary, label), shown(summary)
    assert label.phase in (None, primary.scope.phase), shown(summary)
    assert label.process in (None, primary.scope.process), shown(summary)
    # Whether the machine's own memory is nearly full is not the script's doing.
    alarms = {f.kind for f in summary.findings if f.severity != "info" and f.section != "system"}
    allowed = label.also | (set() if label.calm else {primary.kind})
    assert alarms <= allowed, shown(summary)
    assert not label.never & {f.kind for f in summary.findings}, shown(summary)
    sections = {
        name: getattr(summary, name) for name in ("run", "step_time", "time", "process", "throughput")
    }
    for check in label.checks:
        assert eval(check, {"primary": primary, **sections}), f"{check}\n{shown(summary)}"


def test_the_labelled_scripts_cover_the_kinds_that_one_process_can_show() -> None:
    kinds = {kind for script in SCRIPTS for kind in label_of(script).kinds}
    assert kinds >= {
        "INPUT_BOUND",
        "COMPUTE_BOUND",
        "RESIDUAL_HEAVY",
        "BALANCED",
        "INCOMPLETE_DATA",
        "NO_DATA",
        "SLOWDOWN",
        "PERIODIC_STALL",
        "EPOCH_START_STALL",
        "GC_PAUSES",
        "OUTSIDE_HEAVY",
        "MEMORY_CREEP",
    }


def test_most_labelled_scripts_know_nothing_of_traceml() -> None:
    without = [script for script in SCRIPTS if "import traceml" not in script.read_text()]
    assert 2 * len(without) > len(SCRIPTS)
