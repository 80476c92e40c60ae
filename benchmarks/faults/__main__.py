"""Strikes real trainings under `traceml run` at random moments, and counts what came of it.

    python benchmarks/faults [--seed N] [--only K] [--from A] [--to B] [--results FILE] [--write]
    python benchmarks/faults --short            thirty strikes in a minute, as CI runs them

A strike is a signal, a lack of memory, a full disk, a removed folder, a full /dev/shm, a stepped clock, a
cut link or a stopped collector. The same strike is done to the same program without TraceML. Counted is, for
each: training harmed by TraceML, closed steps missing from the summary, summaries invalid or absent, anything
left behind five seconds later. All must be none; a strike that fails prints its seed and number.

Results are kept in FILE (JSON lines), so that the strikes can be done in pieces; --write makes the table
of all that are there. Where a run may not have mounts of its own (not root, no user namespaces), strikes at
disks and shared memory are skipped, and said to be.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

from _evidence import machine, write
from judge import COUNTED, Seen, is_final, judge, launcher_dies
from plan import Case, long_plan, short_plan
from run import LEFT_AFTER_S, Run, Setting
from strike import compiled_clock, oom_parent
from table import tables, totals

SEED, STRIKES = 20, 200
NEEDS_MOUNTS = {"disk", "disk+tmp", "shm", "no shm", "logs", "spool"}
MOST_REFERENCES = 4


class Driver:
    """Runs cases, two at a time, and what they are held against.

    Args:
        setting: What the machine allows.
        jobs: How many at a time; those that wait for what is left behind are not counted.
        keep: Leave the folders of the runs.
    """

    def __init__(self, setting: Setting, *, jobs: int, keep: bool = False) -> None:
        self._setting = setting
        self._busy = threading.Semaphore(jobs)
        self._keep = keep
        self._references: dict[str, list[Seen]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self.until = float("inf")

    def remember(self, results: Path | None) -> None:
        """Take the untraced runs of an earlier piece."""
        if results is not None and (path := results.with_suffix(".references")).exists():
            self._references = pickle.loads(path.read_bytes())

    def save(self, results: Path | None) -> None:
        """Keep the untraced runs for the next piece."""
        if results is not None:
            results.with_suffix(".references").write_bytes(pickle.dumps(self._references))

    def skipped(self, case: Case) -> str | None:
        """Return why a case can't be done here."""
        kinds = case.kinds
        if kinds & NEEDS_MOUNTS and self._setting.namespaces is None:
            return "mount namespaces are not allowed"
        if "clock" in kinds and self._setting.clock is None:
            return "there is no C compiler"
        if "oom" in kinds and not self._setting.oom:
            return "no control group with a memory limit can be made"
        return None

    def do(self, case: Case) -> dict[str, Any] | None:
        """Do a case and judge it; ``None``: time is up."""
        if time.monotonic() > self.until:
            return None
        why = self.skipped(case)
        if why is not None:
            return {"title": case.title, "skipped": why, **_described(case)}
        traced = self._seen(case, traced=True)
        references = self._held_against(case)
        problems = judge(case, traced, references)
        # Where the untraced program may end one way or the other, it is asked more than once.
        while (problems["harmed"] or problems["left"]) and len(references) < MOST_REFERENCES:
            references = self._held_against(case, more=True)
            problems = judge(case, traced, references)
        row = {
            "title": case.title,
            "problems": problems,
            "took_s": round(traced.took_s, 2),
            **_described(case),
        }
        row |= {"codes": traced.codes, "viewed": traced.viewed, "struck": len(traced.struck_ns)}
        row["stderr"] = traced.stderr[-1500:] if any(problems.values()) else ""
        return row

    def _held_against(self, case: Case, *, more: bool = False) -> list[Seen]:
        key = case.reference
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            known = self._references.setdefault(key, [])
            if not known or more:
                known.append(self._seen(case, traced=False, again=len(known)))
            return list(known)

    def _seen(self, case: Case, *, traced: bool, again: int = 0) -> Seen:
        run = Run(case, self._setting, traced=traced, again=again)
        try:
            with self._busy:
                run.go()
                summaries, viewed, took_s = _summaries(run, case) if traced else ({}, False, 0.0)
            time.sleep(LEFT_AFTER_S)
            return Seen(
                run.codes, run.processes(), (run.folder / "stdout").read_text(),
                (run.folder / "stderr").read_text(errors="replace"), run.struck_ns, summaries, viewed, took_s,
                run.left(),
            )  # fmt: skip
        finally:
            run.close()
            if not self._keep:
                run.remove()


def _summaries(run: Run, case: Case) -> tuple[dict[str, str], bool, float]:
    """Return the summaries, whether `traceml view` had to make them, and how long it took."""
    took_s = max(0, run.ended_ns - max(run.trainers_ended_ns, run.resumed_ns)) / 1e9
    summaries = run.summaries()
    if not launcher_dies(case) and any(is_final(text) for text in summaries.values()):
        return summaries, False, took_s
    made = run.view()
    made_here = {name: text for name, text in made["summaries"].items() if text}
    return summaries | made_here, bool(made_here), made["took_s"]


def _described(case: Case) -> dict[str, Any]:
    hits = [hit._asdict() for hit in case.hits]
    return {"number": case.number, "loop": case.loop, "workers": case.workers, "hits": hits}


def setting(work: Path) -> Setting:
    """Find out what this machine allows."""
    for words in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        try:
            mount = [*words, "mount", "-t", "tmpfs", "none", "/dev/shm"]
            if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
                return Setting(work, words, compiled_clock(work), oom_parent() is not None)
        except OSError:
            break
    return Setting(work, None, compiled_clock(work), oom_parent() is not None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--short", action="store_true", help="the thirty strikes of CI")
    parser.add_argument("--only", type=int, metavar="K", help="only strike K")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="A", help="strikes A to B - 1")
    parser.add_argument("--to", type=int, default=STRIKES, metavar="B")
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="JSON lines, added to; what is there is not done again"
    )
    parser.add_argument("--stop-after", type=float, metavar="S", help="begin none after so many seconds")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/evidence/faults.md")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the runs' folders there")
    args = parser.parse_args()
    plan = short_plan(args.seed) if args.short else long_plan(args.seed, STRIKES)
    rows = _read(args.results)
    known = {row["number"] for row in rows} if args.only is None else set()
    chosen = [
        case for case in plan if args.first <= case.number < args.to and args.only in {None, case.number}
    ]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        driver = Driver(setting(args.keep or Path(folder)), jobs=args.jobs, keep=args.keep is not None)
        driver.remember(args.results)
        rows += _all(driver, [case for case in chosen if case.number not in known], args)
        driver.save(args.results)
    if args.write:
        missing = sum(len(case.hits) for case in plan) - sum(len(row["hits"]) for row in rows)
        left_out = f" {missing} of the plan's strikes were not made." if missing else ""
        write(
            "faults",
            "strikes",
            f"Seed {args.seed}. {machine('lightning', 'monai')}{left_out}\n\n{tables(rows)}",
        )
    print(totals(rows))
    return 1 if any(any(row.get("problems", {}).values()) for row in rows) else 0


def _read(results: Path | None) -> list[dict[str, Any]]:
    if results is None or not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def _all(driver: Driver, cases: list[Case], args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    cases = sorted(cases, key=lambda case: -len(case.hits))  # what takes longest begins first
    driver.until = time.monotonic() + args.stop_after if args.stop_after else float("inf")
    with concurrent.futures.ThreadPoolExecutor(args.jobs * 4) as pool:
        for future in concurrent.futures.as_completed([pool.submit(driver.do, case) for case in cases]):
            row = future.result()
            if row is None:
                continue
            rows.append(row)
            _tell(row, args)
            if args.results:
                with args.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return rows


def _tell(row: dict[str, Any], args: argparse.Namespace) -> None:
    if "skipped" in row:
        print(f"skipped {row['title']}: {row['skipped']}", flush=True)
        return
    wrong = [f"{kind}: {text}" for kind in COUNTED for text in row["problems"][kind]]
    print(
        f"{'FAILED' if wrong else 'ok':6} {row['title']} ({row['codes']}, summary in {row['took_s']} s)",
        flush=True,
    )
    if wrong:
        short = " --short" if args.short else ""
        print(*(f"       {text}" for text in wrong), sep="\n")
        print(f"       again: python benchmarks/faults{short} --seed {args.seed} --only {row['number']}")
        print(*(f"       | {line}" for line in row["stderr"].splitlines()[-12:]), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
