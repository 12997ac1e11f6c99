"""The simulation finds bugs that others have had, and finds nothing where they are not.

Every third one; all of them with ``ONAGER_TESTS=all`` (`make test-all`), and `python -m tests.simulation` plants any.
"""

import re

import pytest

from tests.simulation.finding import ENOUGH, first_finding
from tests.simulation.planted import PLANTED
from tests.simulation.test_simulation import SEEDS
from tests.simulation.world import simulate
from tests.support.selection import some


@pytest.mark.parametrize("name", some(sorted(PLANTED)))
def test_a_planted_bug_is_found(name, tell):
    _, report, _ = first_finding(name)
    if report is None:
        pytest.fail(f"{name} was not found in {ENOUGH} seeds")
    tell(f"{name}: seed {report.seed}, {report.violation[:120]}")
    broken = re.search(r"(Type|Attribute|Name)Error\(|values to unpack", report.violation)
    assert not broken, "it is found by what it does, not by how it is planted"
    if report.seed not in SEEDS:  # which are simulated without a bug elsewhere
        sound = simulate(report.seed)
        assert sound.violation is None, sound.as_text()
