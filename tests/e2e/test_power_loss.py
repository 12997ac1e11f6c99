"""The power fails while datasets, tables, results and checkpoints are written: each is whole or absent."""

import pytest

from tests.chaos.power_loss.recording import Recording, record
from tests.chaos.power_loss.tries import Tries, Wrong


def cut_often(tries: Tries) -> None:
    for seed in range(60):
        tries.cut(seed)


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Recording:
    return record(tmp_path_factory.mktemp("power"), is_short=True)


def test_what_was_reported_is_there_and_what_was_replaced_is_the_old_or_the_new(recording):
    cut_often(Tries(recording))


@pytest.mark.parametrize("forgotten", ["files", "directories"])
def test_a_disk_that_ignores_syncs_is_found(recording, forgotten):
    tries = Tries(recording, frozenset({forgotten}))
    with pytest.raises(Wrong):
        cut_often(tries)
