"""The simulation finds bugs that others have had, and finds nothing where they are not."""

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.world import ENOUGH, first_finding, simulate

LATELY = {
    "a-loser-counts": 39,
    "accepted-in-memory": 50,
    "append-expects-no-absence": 4,
    "both-attempts-count": 23,
    "conflict-ignored": 4,
    "cut-call-cancels": 71,
    "dry-job-stays-dry": 12,
    "forwarded-report-unstored": 16,
    "full-executor-is-silent": 1235,
    "late-report-counts": 10,
    "launches-not-noted": 12,
    "lease-end-not-told": 10,
    "lost-launch-not-repeated": 12,
    "lost-outputs-stay": 20,
    "newest-written-at-once": 67,
    "no-turns": 25,
    "one-head-fails-all": 9,
    "other-replicas-not-woken": 38,
    "own-lease-loss-not-told": 2,
    "partition-one-off": 4,
    "prefix-fits-no-key": 5,
    "readers-start-early": 3,
    "result-cleaned-up": 13,
    "running-read-as-resolved": 22,
    "short-wait-in-silence": 20370,
    "stage-plans-stay": 7,
    "streamed-attempts-not-raised": 7,
    "streamed-outputs-kept": 12,
    "streaming-task-tried-alone": 53,
    "unknown-taken-for-failure": 7,
    "unknown-taken-for-success": 7,
    "watch-begins-now": 45,
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
