"""The power fails while datasets, tables, results and checkpoints are written: each is whole or absent."""

import pytest

from tests.chaos.power_loss.recording import Recording, record
from tests.chaos.power_loss.tries import FORGOTTEN, Tries, Wrong


def cut_often(tries: Tries, *, each: int) -> None:
    """Cut the power *each* times at every moment when something was just reported, and at 60 that are drawn."""
    for one in range(each):
        for at in reversed(tries.reports):  # results come last
            tries.cut(each * at + one, at)
    for seed in range(60):
        tries.cut(seed)


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Recording:
    return record(tmp_path_factory.mktemp("power"), is_short=True)


def test_what_was_reported_is_there_and_what_was_replaced_is_the_old_or_the_new(recording):
    cut_often(Tries(recording), each=1)


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_a_disk_that_ignores_syncs_is_found(recording, forgotten):
    tries = Tries(recording, forgotten)
    with pytest.raises(Wrong):
        cut_often(tries, each=4)
