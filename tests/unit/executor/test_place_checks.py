"""What a planning or a task has read in a shared directory that is another one now does not count."""

import pytest

from onager.errors import PlaceNotSeenError
from onager.executor.spark.place_checks import lost_place, planning_in
from onager.place_files import EXCHANGE, WAREHOUSE
from onager.protocol import onager_pb2 as pb
from tests.support.places import judged

FAILED = {"failure": {"message": "a table has no rows"}}
INLINE = {"inline": True}


@pytest.fixture
def places(tmp_path):
    """The exchange directory, and a warehouse that this executor does not see."""
    return judged({name: tmp_path / name for name in (EXCHANGE, WAREHOUSE)}, refused=[WAREHOUSE])


def plan(places, path, error=None):
    with planning_in(places) as note_read:
        try:
            if error is not None:
                raise error
        finally:
            note_read([path])


def test_a_planning_that_has_read_what_is_not_seen_fails_for_that_whatever_it_came_to(places, tmp_path):
    for path in (f"{tmp_path}/warehouse/t", f"file:{tmp_path}/warehouse/t"):
        for error in (None, ValueError("a table has no rows")):
            with pytest.raises(PlaceNotSeenError, match=r"warehouse .* is not seen here: it is another one"):
                plan(places, path, error)


def test_a_planning_that_has_read_elsewhere_is_not_concerned(places, tmp_path):
    plan(places, f"{tmp_path}/files")
    with pytest.raises(ValueError, match="no rows"):
        plan(places, f"{tmp_path}/files", ValueError("no rows"))


def lost(places, read, event):
    return lost_place(places, pb.TaskSet(), read, event, is_streamed=False)


def test_a_task_that_has_read_what_is_not_seen_fails_though_it_wrote_nothing(places):
    assert lost(places, frozenset(), INLINE) is None
    assert lost(places, frozenset({EXCHANGE}), INLINE) is None
    error = lost(places, frozenset({WAREHOUSE}), INLINE)
    assert isinstance(error, PlaceNotSeenError)
    assert error.place == WAREHOUSE


def test_a_task_that_failed_over_what_it_read_fails_for_that(places):
    assert lost(places, frozenset(), FAILED) is None
    assert isinstance(lost(places, frozenset({WAREHOUSE}), FAILED), PlaceNotSeenError)
