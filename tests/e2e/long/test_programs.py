"""Scripts of six steps, `kill -9` of scheduler and executors in the middle of them."""

import pytest

from tests.chaos.steps import run

pytestmark = pytest.mark.timeout(600)


def test_scripts_end_whatever_is_killed(tmp_path, tell):
    tally = run(6, 1, tmp_path)
    assert tally.trouble == []
    assert tally.schedulers_killed
    assert tally.executors_killed
    tell(f"{tally.scripts} scripts, {tally.schedulers_killed} schedulers and {tally.executors_killed} executors killed")
