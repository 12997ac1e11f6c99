"""Which seeds find the planted bugs: `seeds.json`, which `python -m tests.simulation --planted --renew` writes."""

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from tests.simulation.world import Report, simulate

ENOUGH: Final = 200
"""Seeds that are tried when the known one does not find a planted bug any more; most take one to ten."""
FAR: Final = 3_000
"""Seeds that are tried when seeds are renewed."""
_FILE: Final = Path(__file__).with_name("seeds.json")


def known_seeds() -> dict[str, int]:
    """Return the seed at which each planted bug was found last."""
    seeds: dict[str, int] = json.loads(_FILE.read_text())
    return seeds


def keep_seeds(seeds: Mapping[str, int]) -> None:
    """Write where planted bugs were found."""
    _FILE.write_text(json.dumps(seeds, indent=2, sort_keys=True) + "\n")


def first_finding(planted: str, enough: int = ENOUGH) -> tuple[str, Report | None, int]:
    """Return the name of a *planted* bug, what the first seed tells that finds it, and how many were tried.

    The known seed comes first, and then *enough* others.
    """
    known = known_seeds().get(planted, 1)
    others = (seed for seed in range(1, enough + 1) if seed != known)
    for tried, seed in enumerate(chain([known], others), start=1):
        report = simulate(seed, planted=planted)
        if report.violation is not None:
            return planted, report, tried
    return planted, None, enough
