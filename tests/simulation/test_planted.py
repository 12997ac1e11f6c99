"""The simulation finds bugs that others have had, and finds nothing where they are not."""

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.world import simulate

ENOUGH = 100
"""Seeds within which every planted bug is found; most take one to ten."""
LATELY = {
    "a-loser-counts": 40,
    "both-attempts-count": 36,
    "late-report-counts": 6,
    "lease-end-not-told": 31,
    "lost-outputs-stay": 9,
}
"""Where those were found lately that take more: tried first, to save time."""


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name, tell):
    for seed in (LATELY.get(name, 1), *range(1, ENOUGH + 1)):
        report = simulate(seed, planted=name)
        if report.violation is not None:
            break
    else:
        pytest.fail(f"{name} was not found in {ENOUGH} seeds")
    tell(f"{name}: seed {seed}, {report.violation[:120]}")
    sound = simulate(seed)
    assert sound.violation is None, sound.told()
