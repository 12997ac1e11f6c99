"""The simulation finds bugs that others have had, and finds nothing where they are not."""

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.world import ENOUGH, first_finding, simulate

LATELY = {
    "a-loser-counts": 39,
    "abandoned-tasks-run-on": 471,
    "accepted-in-memory": 50,
    "both-attempts-count": 56,
    "dead-holders-stay": 36,
    "full-executor-is-silent": 471,
    "lease-end-not-told": 77,
    "lost-launch-not-repeated": 4,
    "newest-written-at-once": 67,
    "no-turns": 25,
    "other-replicas-not-woken": 41,
    "refused-launch-forgotten": 177,
    "slots-written-over": 583,
    "stale-attempt-read": 400,
    "streamed-attempts-not-raised": 7,
    "streamed-outputs-kept": 7,
    "streaming-task-tried-alone": 12,
    "watch-begins-now": 42,
}
"""Where those were found lately that take many: tried first, to save time."""


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name, tell):
    _, report, _ = first_finding(name, LATELY.get(name, 1))
    if report is None:
        pytest.fail(f"{name} was not found in {ENOUGH} seeds")
    tell(f"{name}: seed {report.seed}, {report.violation[:120]}")
    sound = simulate(report.seed)
    assert sound.violation is None, sound.told()
