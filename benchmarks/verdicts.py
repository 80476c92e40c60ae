"""How often the verdict is true: every script and job whose bottleneck is known by construction, many times.

    python benchmarks/verdicts.py [--times N] [--more FOLDER ...] [--results FILE] [--stop-after SECONDS]
                                  [--only NAME ...] [--again NAME ...] [--write] [--list]

The scripts are those of tests/labelled, tests/lightning/labelled and tests/monai/labelled, the jobs those of
tests/ranks, and with ``--more`` the scripts of any other folder that begin with ``# label: KIND``; each runs
under `traceml run` as a user would. A verdict is right when the primary finding (for memory: that of its
section) is one that the label names, at the severity it asks for. Everything else that a label says (the
phase, the rank, what may not be found) is counted apart.

Results are kept in a file, a line each, so a measurement can be stopped and gone on with. ``--write`` puts
the table into docs/evidence/accuracy.md. Target: 98 % of the verdicts right, and no false critical finding.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import _evidence

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "ranks")]

import cases as jobs  # noqa: E402

from labelled import test_labelled as labels  # noqa: E402

RESULTS = _evidence.RESULTS / "verdicts.jsonl"
LEAST_RIGHT_PCT = 98.0
NOBODY = "no late rank"
FOLDERS = {
    "plain": TESTS / "labelled" / "scripts",
    "Lightning": TESTS / "lightning" / "labelled",
    "MONAI": TESTS / "monai" / "labelled",
}


class Case(NamedTuple):
    """A script or job, and what its primary finding has to be."""

    name: str
    framework: str
    kinds: list[str]
    label: labels.Label | None = None
    script: Path | None = None
    job: jobs.Case | None = None
    ranks: int = 1


class Result(NamedTuple):
    """What was said of one run."""

    name: str
    turn: int
    given: str
    right: bool
    problems: list[str]
    false_critical: list[str]
    load: float
    seconds: float


# --- the cases ----------------------------------------------------------------------------------


def cases(more: list[Path]) -> Iterator[Case]:
    """Yield every labelled script and job."""
    for framework, folder in FOLDERS.items():
        for script in sorted(folder.glob("[!_]*.py")):
            label = labels.label_of(script)
            yield Case(f"{framework}/{script.stem}", framework, label.kinds, label, script)
    for job in [*jobs.CASES, *getattr(jobs, "FRESH", [])]:
        yield Case(f"ranks/{job.name}", "ranks", [job.kind or NOBODY], job=job)
    for script in sorted((TESTS / "labelled" / "jobs").glob("*.py")):
        yield handed(script, "ranks")
    for folder in more:
        for script in sorted(folder.glob("[!_]*.py")):
            yield handed(script, "handed")


def handed(script: Path, framework: str) -> Case:
    """Return the case of a script that says no more than ``# label: KIND [ranks: N]`` in its first line."""
    first = script.read_text().partition("\n")[0]
    said = re.match(r"# label: (\w+)(?:\s+ranks: (\d+))?", first)
    if said is None:
        raise SystemExit(f"{script}: the first line is not '# label: KIND'")
    kind, ranks = said[1], int(said[2] or 1)
    section = "process" if kind.startswith("MEMORY") else None
    stragglers = set(jobs.STRAGGLERS) if ranks > 1 and kind not in jobs.STRAGGLERS else set()
    label = labels.Label(section, [kind], kind in labels.CALM, None, None, set(), stragglers, [])
    return Case(f"{framework}/{script.stem}", framework, [kind], label, script, ranks=ranks)


# --- running and judging ------------------------------------------------------------------------


def attempt(case: Case, turn: int) -> Result:
    """Run a case once."""
    load, begin = _load(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if case.job is not None:
            ended = jobs.run(case.job.args, Path(folder), world=case.job.world)
            judged = judge_job(case.job, ended)
        elif case.ranks > 1:
            assert case.script is not None
            assert case.label is not None
            ended = jobs.run("", Path(folder), world=case.ranks, script=case.script)
            judged = judge(case.label, ended.summary)
        else:
            assert case.script is not None
            assert case.label is not None
            judged = judge(case.label, labels.summary_of(case.script, Path(folder)))
    return Result(case.name, turn, *judged, round(load, 2), round(time.perf_counter() - begin, 1))


def judge(label: labels.Label, summary: Any) -> tuple[str, bool, list[str], list[str]]:
    """Return what was given, whether it is right, what else was not true, and false critical findings."""
    primary = labels.labelled_finding(summary, label)
    # Whether the machine's own memory is nearly full is not the script's doing.
    alarms = [f for f in summary.findings if f.severity != "info" and f.section != "system"]
    allowed = label.also | (set() if label.calm else set(label.kinds))
    right = primary.kind in label.kinds and labels.is_loud_enough(primary, label)
    wrong = [f"alarm of {f.kind}: {f.why}" for f in alarms if f.kind not in allowed]
    wrong += [f"{f.kind}: {f.why}" for f in summary.findings if f.kind in label.never]
    if right:
        wrong += [f"phase {primary.scope.phase}"] * (label.phase not in {None, primary.scope.phase})
        wrong += [f"process {primary.scope.process}"] * (label.process not in {None, primary.scope.process})
        wrong += [check for check in label.checks if not _holds(check, summary, primary)]
    else:
        wrong.insert(0, f"{primary.severity} {primary.kind}: {primary.why}")
    return (
        primary.kind,
        right,
        wrong,
        [f.kind for f in alarms if f.severity == "critical" and f.kind not in allowed],
    )


def judge_job(job: jobs.Case, ended: jobs.Ended) -> tuple[str, bool, list[str], list[str]]:
    """Judge a job by the rank that is named, if one is."""
    found = jobs.stragglers(ended.summary)
    given = found[0].kind if found else NOBODY
    critical = [f.kind for f in found if f.severity == "critical" and f.kind != job.kind]
    return given, given == (job.kind or NOBODY), job.problems(ended.summary), critical


def _holds(check: str, summary: Any, primary: Any) -> bool:
    sections = {
        name: getattr(summary, name) for name in ("run", "step_time", "time", "process", "throughput")
    }
    return bool(eval(check, {"primary": primary, **sections}))


def _load() -> float:
    return os.getloadavg()[0]


# --- results ------------------------------------------------------------------------------------


def read(file: Path) -> list[Result]:
    if not file.exists():
        return []
    return [Result(**json.loads(line)) for line in file.read_text().splitlines()]


def append(file: Path, result: Result) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(result._asdict()) + "\n")


def forget(file: Path, names: list[str]) -> None:
    """Drop the results of these cases: what they ran with has changed."""
    kept = [result for result in read(file) if result.name not in names]
    file.write_text("".join(json.dumps(result._asdict()) + "\n" for result in kept))


def run_missing(every: list[Case], times: int, file: Path, stop_after: float) -> bool:
    """Run what has no result yet, turn by turn; False when the time was over first."""
    begin = time.monotonic()
    done = {(result.name, result.turn) for result in read(file)}
    for turn in range(times):
        for case in every:
            if (case.name, turn) in done:
                continue
            if time.monotonic() - begin > stop_after:
                return False
            result = attempt(case, turn)
            append(file, result)
            mark = "right" if result.right else "WRONG"
            print(f"{turn} {case.name:42} {result.seconds:5.1f} s  {mark}  {result.given}", flush=True)
            for problem in result.problems:
                print(f"    {problem}", flush=True)
    return True


# --- the tables ---------------------------------------------------------------------------------


def report(every: list[Case], results: list[Result]) -> str:
    """Return the page's part: how many were right, the confusion table, and each miss."""
    by_name = {case.name: case for case in every}
    results = [result for result in results if result.name in by_name]
    right = sum(result.right for result in results)
    whole = sum(not result.problems for result in results)
    critical = sum(len(result.false_critical) for result in results)
    turns = Counter(result.name for result in results)
    loads = sorted(result.load for result in results)
    state = (
        f"{_evidence.machine('lightning', 'monai', 'pytorch-ignite')} Load while they ran: median "
        f"{loads[len(loads) // 2]:.1f}, at most {loads[-1]:.1f}."
    )
    outcome = (
        f"**{len(turns)} scripts and jobs, {_times(turns)}, {len(results)} runs: {right} verdicts right "
        f"({100 * right / len(results):.1f} %; target {LEAST_RIGHT_PCT:g} %), {critical} false critical "
        f"findings (target 0), {whole} runs in which all that the label says was true "
        f"({100 * whole / len(results):.1f} %).**"
    )
    legend = (
        "Expected against given, in runs. A label that allows several kinds counts as the one that was given."
    )
    parts = [state, outcome, frameworks(by_name, results), legend, confusion(by_name, results)]
    return "\n\n".join([*parts, misses(results)])


def _times(turns: Counter[str]) -> str:
    least, most = min(turns.values()), max(turns.values())
    return f"{least} times each" if least == most else f"{least} to {most} times each"


def frameworks(by_name: dict[str, Case], results: list[Result]) -> str:
    rows = []
    for framework in dict.fromkeys(case.framework for case in by_name.values()):
        mine = [result for result in results if by_name[result.name].framework == framework]
        count = len({result.name for result in mine})
        rows.append([framework, str(count), str(len(mine)), str(sum(result.right for result in mine))])
    return _evidence.table(["kind of run", "scripts or jobs", "runs", "verdict right"], rows)


def confusion(by_name: dict[str, Case], results: list[Result]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        expected = by_name[result.name].kinds
        counts[result.given if result.given in expected else expected[0], result.given] += 1
    expected_kinds = sorted({expected for expected, _ in counts})
    rows = []
    for expected in expected_kinds:
        given = {kind: n for (row, kind), n in counts.items() if row == expected}
        wrong = ", ".join(f"`{kind}` {n}" for kind, n in sorted(given.items()) if kind != expected)
        rows.append([f"`{expected}`", str(sum(given.values())), str(given.get(expected, 0)), wrong or "none"])
    return _evidence.table(["expected", "runs", "given as expected", "given instead"], rows)


def misses(results: list[Result]) -> str:
    wrong = [result for result in results if result.problems]
    if not wrong:
        return "Nothing that a label says was untrue in any run."
    lines = [
        f"* {result.name}, turn {result.turn + 1} (load {result.load:g}): {'; '.join(result.problems)}"
        for result in wrong
    ]
    return "What was not as the label says:\n\n" + "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1, help="how often each runs")
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="folders of further scripts")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--only", nargs="*", help="cases whose names contain one of these")
    parser.add_argument("--again", nargs="*", default=[], help="forget what these gave, and run them again")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/evidence")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    every = list(cases(options.more))
    if options.only is not None:
        every = [case for case in every if any(part in case.name for part in options.only)]
    if options.list:
        print("\n".join(f"{case.name}: {' '.join(case.kinds)}" for case in every))
        return 0
    if options.again:
        forget(options.results, options.again)
    finished = run_missing(every, options.times, options.results, options.stop_after)
    results = read(options.results)
    text = report(every, results)
    if options.write:
        _evidence.write("accuracy", "verdicts", text)
    elif finished:
        print(text)
    named = {case.name for case in every}
    mine = [result for result in results if result.name in named]
    good = sum(result.right for result in mine) >= LEAST_RIGHT_PCT / 100 * len(mine)
    return 0 if finished and good and not any(result.false_critical for result in mine) else 1


if __name__ == "__main__":
    sys.exit(main())
