"""``python -m tests.chaos.power_loss [--tries 200] [--seed N] [--runs 2]``: the power fails while datasets are written.

An executor's parts write, replace, append and take back datasets, tables, results and a checkpoint while a library
records what they do to the disk (gcc compiles it). Then the power is cut at drawn moments: a disk is made that has what
was synced, and of the rest what a seed draws. What was reported has to be there, what was replaced is the old or the
new, and jobs go on. Prints a summary as JSON; exit code 1 if anything was lost.
"""

import argparse
import json
import secrets
import tempfile
import time
from pathlib import Path

from tests.chaos.power_loss.recording import record
from tests.chaos.power_loss.tries import Tries, Wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.power_loss", description=__doc__)
    parser.add_argument("--tries", type=int, default=200, help="how often the power fails")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="decides when, and what is left")
    parser.add_argument("--runs", type=int, default=2, help="how often the work is recorded")
    options = parser.parse_args()
    begun_s = time.monotonic()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="onager-power-loss-") as scratch:
        for run in range(options.runs):
            base = Path(scratch, str(run))
            base.mkdir()
            tries = Tries(record(base))
            for seed in range(options.seed + run, options.seed + options.tries, options.runs):
                try:
                    tries.cut(seed)
                except Wrong as found:
                    wrong.append(f"seed {seed}: {found}")
    summary = {
        "tries": options.tries,
        "seed": options.seed,
        "runs": options.runs,
        "seconds": round(time.monotonic() - begun_s),
        "wrong": wrong,
    }
    print(json.dumps(summary, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
