"""Scripts of six steps, `kill -9` of scheduler and executors in the middle of them."""

import pytest

from tests.chaos.steps import Datasets, Tables, run

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("kind", [Datasets, Tables])
def test_scripts_end_whatever_is_killed(tmp_path, tell, kind):
    tally = run(6, 1, tmp_path, kind)
    assert tally.trouble == []
    assert tally.schedulers_killed
    assert tally.executors_killed
    tell(f"{tally.scripts} scripts, {tally.schedulers_killed} schedulers and {tally.executors_killed} executors killed")
