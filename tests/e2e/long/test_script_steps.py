"""Scripts of six steps, `kill -9` of scheduler and executors in the middle of them."""

import pytest

from tests.chaos.steps import Datasets, Tables, run


@pytest.mark.parametrize("kind", [Datasets, Tables])
def test_scripts_end_whatever_is_killed(tmp_path, tell, kind):
    tally = run(6, 1, tmp_path, kind)
    assert tally.trouble == []
    assert tally.kills == 6
    tell(f"{tally.scripts} scripts, killed: {dict(tally.killed)}")
