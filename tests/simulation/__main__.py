"""Runs simulations: many new seeds, one again with its whole trace, or those with bugs that were planted.

python -m tests.simulation --seeds 2000 [--from SEED] [--jobs 2] [--mode push]
python -m tests.simulation --seed N --trace [--mode push] [--plant BUG]
python -m tests.simulation --planted [--renew] [--plant BUG]
"""

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.simulation.finding import ENOUGH, FAR, first_finding, keep_seeds, known_seeds
from tests.simulation.planted import PLANTED
from tests.simulation.world import Report, simulate


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--seeds", type=int, default=200, help="how many new seeds")
    parser.add_argument("--from", dest="first", type=int, help="the first of them; else drawn")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="how many at once")
    parser.add_argument("--mode", choices=("pull", "push"), help="of all executors; else drawn for each")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="a bug to put into the product")
    parser.add_argument("--planted", action="store_true", help="plant each bug, and say which seed finds it")
    parser.add_argument("--renew", action="store_true", help="search far for these seeds, and keep them in seeds.json")
    given = parser.parse_args(arguments)
    if given.planted:
        return find_planted([given.plant] if given.plant else sorted(PLANTED), given.jobs, is_renewed=given.renew)
    if given.seed is not None:
        report = simulate(given.seed, tell=print if given.trace else None, planted=given.plant, mode=given.mode)
        print(report.as_text())
        print(f"trace {report.digest}")
        return 0 if report.violation is None else 1
    first = secrets.randbelow(2**40) if given.first is None else given.first
    return run_many(range(first, first + given.seeds), given.jobs, given.mode)


def find_planted(names: Sequence[str], jobs: int, *, is_renewed: bool) -> int:
    """Print for every planted bug of *names* a seed that finds it; return 0 when all are found.

    If *is_renewed*, those that their known seeds find no more are searched far, and all seeds are kept.
    """
    seeds = {name: seed for name, seed in known_seeds().items() if name in PLANTED}
    missed = 0
    search = partial(first_finding, enough=FAR if is_renewed else ENOUGH)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for name, report, tried in pool.imap(search, names):
            if report is None:
                missed += 1
            else:
                seeds[name] = report.seed
            outcome = f"not found in {tried} seeds" if report is None else f"seed {report.seed}: {report.violation}"
            print(f"{name:32} {outcome[:150]}", flush=True)
    print(f"{len(names) - missed} of {len(names)} planted bugs are found")
    if is_renewed:
        keep_seeds(seeds)
    return 1 if missed else 0


def run_many(seeds: Sequence[int], jobs: int, mode: str | None = None) -> int:
    """Simulate *seeds*, and print what was found; return 0 when nothing was."""
    print(f"{len(seeds)} seeds from {seeds[0]}", flush=True)
    began_s, counts, bad = time.monotonic(), Counter[str](), list[Report]()
    steps, virtual_s = 0, 0.0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for report in pool.imap_unordered(partial(simulate, mode=mode), seeds, chunksize=4):
            counts += report.counts
            steps, virtual_s = steps + report.steps, virtual_s + report.virtual_s
            if report.violation is not None:
                bad.append(report)
                print(report.as_text(), flush=True)
    took_s = time.monotonic() - began_s
    print(f"{len(seeds)} simulations, {virtual_s / 3600:.1f} virtual hours, {steps:,} steps in {took_s:.1f} s")
    print(", ".join(f"{name} {n:,}" for name, n in sorted(counts.items())))
    print(f"violations: {len(bad)}" + (f" (seeds {[r.seed for r in bad]})" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
