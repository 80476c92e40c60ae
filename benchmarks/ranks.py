"""Jobs of two to four processes whose late rank is known: how often is it named, and nobody else?

    python benchmarks/ranks.py [--runs N] [--only NAME] [--json]

The jobs are those of tests/ranks/cases.py, run under `traceml run` as a user would. Target: every run right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "ranks"))

from cases import CASES, FRESH, Case, run

# PyTorch 2.13 does so now and then when a gloo rank ends, without us as well (tests/link/test_slurm.py).
ABORT = "terminate called without an active exception"
TRIES = 3


def attempt(case: Case) -> list[str]:
    """Run a case once, and again where PyTorch itself aborted at its end; return what was wrong."""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as folder:
            ended = run(case.args, Path(folder), world=case.world)
        if ABORT not in ended.stderr:
            break
        print(f"{case.name}: PyTorch aborted at the end; once more", file=sys.stderr)
    wrong = [] if ended.returncode == 0 else [f"exit code {ended.returncode}: {ended.stderr[:3000]}"]
    return wrong + case.problems(ended.summary)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="only the jobs that no threshold was chosen by")
    parser.add_argument("--only", help="run only the case of this name")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    right, wrong = {}, []
    for case in [each for each in ([] if args.fresh else CASES) + FRESH if args.only in {None, each.name}]:
        begin = time.perf_counter()
        found = [attempt(case) for _ in range(args.runs)]
        right[case.name] = sum(not problems for problems in found)
        wrong += [f"{case.name}: {problem}" for problems in found for problem in problems]
        if not args.json:
            each_s = (time.perf_counter() - begin) / args.runs
            print(
                f"{case.name:20} right in {right[case.name]} of {args.runs} ({each_s:.1f} s each)", flush=True
            )
    print(json.dumps({"runs": args.runs, "right": right, "wrong": wrong}) if args.json else "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
