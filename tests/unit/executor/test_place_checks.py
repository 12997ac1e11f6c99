"""What a planning or a task has read in a shared directory that is another one now does not count."""

import threading

import pytest

from onager import place_files
from onager.clock import ManualClock
from onager.errors import PlaceNotSeenError
from onager.executor.spark.failures import not_seen
from onager.executor.spark.place_checks import lost_place, planning_in, writing_at
from onager.place_files import EXCHANGE, WAREHOUSE, root_name
from onager.protocol import onager_pb2 as pb
from tests.support.places import judged
from tests.support.waiting import HANGS_S

FAILED = {"failure": {"message": "a table has no rows"}}
INLINE = {"inline": True}
ROOT = root_name("/data")


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


@pytest.mark.parametrize("work", [planning_in, lambda places: writing_at(places, places.views()[0].path)])
def test_work_that_failed_over_a_place_that_schedulers_refused_meanwhile_fails_for_that(tmp_path, work):
    places = judged({ROOT: tmp_path / "data"})
    (place,) = places.views()

    def fail():
        places.take([pb.PlaceVerdict(name=place.name, id=place.id, why="it is another one")])
        raise FileNotFoundError(f"file:{place.path}/d/part-0.parquet")

    with pytest.raises(PlaceNotSeenError, match="it is another one"), work(places):
        fail()


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


@pytest.mark.parametrize("name", [WAREHOUSE, ROOT])
def test_a_disk_that_hangs_holds_up_no_planning_that_reads_elsewhere(tmp_path, monkeypatch, name):
    clock = ManualClock()
    places = judged({each: tmp_path / each for each in (EXCHANGE, WAREHOUSE, ROOT)}, clock=clock)
    answers, is_called = threading.Event(), threading.Event()

    look, has_mark = place_files.look, place_files.has_mark

    def hangs(*at):
        is_called.set()
        assert answers.wait(HANGS_S)
        return look(*at)

    def called(path, *which):
        if name in path and not answers.is_set():
            is_called.set()
        return has_mark(path, *which)

    with monkeypatch.context() as patched:
        patched.setattr(place_files, "look", hangs)
        looking = threading.Thread(target=places.look, args=(name,), daemon=True)
        looking.start()
        assert is_called.wait(HANGS_S)
        clock.advance(16_000)
        patched.setattr(place_files, "has_mark", called)
        is_called.clear()
        plan(places, f"{tmp_path}/files")
        with pytest.raises(PlaceNotSeenError, match=rf"{name} is not seen here: it has not answered for 15 s"):
            plan(places, f"{tmp_path}/{name}/t")
        with pytest.raises(PlaceNotSeenError):
            places.check_path(f"{tmp_path}/{name}/t")
        places.check(EXCHANGE)
        assert not is_called.is_set(), "the disk that hangs is not called"
        answers.set()
        looking.join()
    places.look()
    plan(places, f"{tmp_path}/{name}/t")


def test_a_path_is_in_a_root_however_it_is_spelled_and_by_links(tmp_path):
    root, other = tmp_path / "data", tmp_path / "database"
    places = judged({ROOT: root}, refused=[ROOT])
    other.mkdir()
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "mount").symlink_to(tmp_path)
    for path in (
        *("data", "data/", "data//t", "other/../data/t", "./data/t", "link/t", "link", "mount/data/t"),
        *("data/t/day=1", "link/../data"),
    ):
        for spelled in (f"{tmp_path}/{path}", f"file:{tmp_path}/{path}", f"file://{tmp_path}//{path}"):
            assert places.of([spelled]) == {ROOT}, spelled
    assert not places.of([f"{tmp_path}/{path}" for path in ("database/t", "data2", "x/data/t", "", "data/../t")])


def test_a_failure_that_names_a_path_beginning_alike_is_not_blamed_on_a_root(tmp_path):
    places = judged({ROOT: tmp_path / "data"}, refused=[ROOT])
    with pytest.raises(ValueError, match="no rows"):
        plan(places, f"{tmp_path}/database/t", ValueError(f"{tmp_path}/database/t has no rows"))
    with pytest.raises(PlaceNotSeenError):
        plan(places, f"{tmp_path}/files", ValueError(f"file:{tmp_path}/data/t has no rows"))


def test_the_class_of_a_failure_names_a_root_and_others_as_schedulers_of_the_version_before_know_them():
    classes = {name: not_seen(PlaceNotSeenError(name, "no")).error_class for name in (EXCHANGE, WAREHOUSE, ROOT)}
    assert classes == {EXCHANGE: "EXCHANGE_NOT_SEEN", WAREHOUSE: "PLACE_NOT_SEEN", ROOT: f"PLACE_NOT_SEEN.{ROOT}"}
