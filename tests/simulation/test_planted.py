"""The simulation finds bugs that others have had, and finds nothing where they are not.

Every other one; all of them with ``ONAGER_TESTS=all`` (`make test-all`), and `python -m tests.simulation` plants any.
"""

import re

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.test_simulation import SEEDS
from tests.simulation.world import ENOUGH, first_finding, simulate
from tests.support.selection import some

LATELY = {
    "a-loser-counts": 190,
    "accepted-in-memory": 9,
    "append-expects-no-absence": 4,
    "audit-stays": 3,
    "both-attempts-count": 85,
    "cancels-not-recorded": 3,
    "catalog-changes-before-the-end": 8,
    "catalog-changes-blindly": 3380,
    "changed-basis-counts": 439,
    "conflict-ignored": 4,
    "conflict-taken-for-own-write": 44,
    "cut-call-cancels": 32,
    "dropped-stages-stay": 3,
    "dry-job-stays-dry": 5,
    "forwarded-report-unstored": 27,
    "full-executor-is-silent": 285,
    "fused-stage-launched": 2,
    "growing-stage-comes-again": 6,
    "hung-replan-keeps-slots": 3,
    "late-layout-counts": 2,
    "late-report-counts": 2,
    "launches-not-noted": 12,
    "lease-end-not-told": 36,
    "lost-launch-not-repeated": 16,
    "lost-outputs-stay": 2,
    "merge-drops-a-bucket": 2042,
    "newest-written-at-once": 67,
    "no-turns": 25,
    "one-head-fails-all": 9,
    "other-replicas-not-woken": 38,
    "own-lease-loss-not-told": 2,
    "partition-one-off": 4,
    "poll-waits-for-the-dead": 5,
    "prefix-fits-no-key": 5,
    "readers-not-awaited": 1002,
    "readers-start-early": 6,
    "repeated-launch-runs-twice": 3,
    "replans-have-no-limit": 3,
    "result-cleaned-up": 12,
    "retry-does-all-again": 30,
    "running-read-as-resolved": 22,
    "short-wait-in-silence": 20370,
    "stage-plans-stay": 2,
    "step-id-is-drawn": 2,
    "streamed-attempts-not-raised": 34,
    "streamed-outputs-kept": 34,
    "streaming-task-tried-alone": 62,
    "unknown-taken-for-failure": 4,
    "unknown-taken-for-success": 4,
    "watch-begins-now": 2,
}
"""Where those were found lately that take many: tried first, to save time."""


@pytest.mark.parametrize("name", some(sorted(PLANTED)))
def test_a_planted_bug_is_found(name, tell):
    _, report, _ = first_finding(name, LATELY.get(name, 1))
    if report is None:
        pytest.fail(f"{name} was not found in {ENOUGH} seeds")
    tell(f"{name}: seed {report.seed}, {report.violation[:120]}")
    broken = re.search(r"(Type|Attribute|Name)Error\(|values to unpack", report.violation)
    assert not broken, "it is found by what it does, not by how it is planted"
    if report.seed not in SEEDS:  # which are simulated without a bug elsewhere
        sound = simulate(report.seed)
        assert sound.violation is None, sound.told()
