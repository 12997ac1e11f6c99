"""The agent looks at shared directories: it makes ids when asked to, and says at once when it sees one no more."""

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from onager import place_files
from onager.clock import ManualClock, SystemClock
from onager.errors import PlaceNotSeenError
from onager.executor.agent.place_watch import PlaceWatch
from onager.executor.exchange.seen_places import SeenPlaces
from onager.ids import new_incarnation, new_nonce
from onager.place_files import EXCHANGE, FOLDER, WAREHOUSE, Seen, look, make_id, root_name, write_mark
from onager.protocol import onager_pb2 as pb
from tests.support.waiting import HANGS_S, eventually


@pytest.fixture
def exchange(tmp_path):
    directory = tmp_path / "exchange"
    directory.mkdir()
    return directory


class Watched:
    def __init__(self, exchange):
        self.places = SeenPlaces({EXCHANGE: str(exchange)}, new_incarnation(), SystemClock())
        self.beats = self.changes = 0
        self.watch = PlaceWatch(self.places, self.in_thread, beat=self.beat, on_change=self.change)

    async def in_thread(self, call):
        return await asyncio.to_thread(call)

    def beat(self):
        self.beats += 1

    def change(self):
        self.changes += 1

    def view(self):
        request = pb.HeartbeatRequest()
        self.watch.add_to(request)
        (view,) = request.places
        return view

    def looked_for(self):
        request = pb.HeartbeatRequest()
        self.watch.add_to(request)
        return list(request.looked_for)


@pytest.fixture
async def watched(exchange):
    made = Watched(exchange)
    running = asyncio.create_task(made.watch.run())
    yield made
    running.cancel()


def answer(**verdict):
    return pb.HeartbeatResponse(places=[pb.PlaceVerdict(name=EXCHANGE, **verdict)])


async def admitted(watched):
    place_id = new_nonce()
    watched.watch.take(answer(new_id=place_id))
    await eventually(lambda: watched.view().mark, "a mark")
    watched.watch.take(answer(id=place_id, admitted=True, generation=1, mark=watched.view().mark))
    return place_id


async def test_it_makes_the_id_that_it_is_given_and_says_so_at_once(watched, exchange):
    assert watched.watch.may_work  # as long as no scheduler judges
    place_id = await admitted(watched)
    assert [path.name for path in (exchange / FOLDER).iterdir()] == [place_id]
    assert watched.view().id == place_id
    assert watched.beats
    assert watched.watch.may_work


async def test_it_does_not_say_that_it_lacks_an_id_for_which_it_has_not_looked_yet(exchange):
    made = Watched(exchange)
    for place_id in (new_nonce(), new_nonce()):
        made.places.look()
        make_id(str(exchange), place_id)
        made.watch.take(answer(id=place_id))
        assert made.view().wanted != place_id
    made.places.look()
    assert made.view().wanted == made.view().id == place_id


async def test_it_makes_nothing_where_there_is_an_id_already(watched, exchange):
    place_id = new_nonce()
    watched.watch.take(answer(id=place_id, why="its volume is not mounted"))
    assert not watched.watch.may_work
    await eventually(lambda: watched.view().wanted == place_id, "a look for it")
    assert not (exchange / FOLDER).exists()
    make_id(str(exchange), place_id)  # it is mounted
    await eventually(lambda: watched.view().mark, "a mark")


async def test_it_writes_the_generation_and_finds_the_marks_that_it_is_asked_for(watched, exchange):
    place_id = await admitted(watched)
    there = write_mark(str(exchange), new_incarnation(), place_id)
    asked = answer(id=place_id, admitted=True, generation=7, mark=watched.view().mark)
    asked.look_for.add(place=EXCHANGE, mark=there)
    asked.look_for.add(place=EXCHANGE, mark=f"{new_nonce()}.{new_nonce()}")
    watched.watch.take(asked)
    found = await eventually(watched.looked_for, "an answer")
    assert [mark.seen for mark in found] == [True, False]
    assert watched.view().generation == 7


async def test_once_a_task_finds_it_lost_no_work_is_taken_until_it_is_there_again(watched, exchange):
    place_id = await admitted(watched)
    watched.places.check(EXCHANGE)
    away = exchange.with_name("away")
    exchange.rename(away)
    exchange.mkdir()
    with pytest.raises(PlaceNotSeenError, match="was lost"):
        watched.places.check(EXCHANGE)
    assert not watched.watch.may_work
    changes, beats = watched.changes, watched.beats
    watched.watch.doubt()
    assert watched.changes > changes
    await eventually(lambda: watched.beats > beats, "a heartbeat")
    assert not watched.view().id
    exchange.rmdir()
    away.rename(exchange)
    watched.watch.doubt()
    mark = await eventually(lambda: watched.view().mark, "the directory")
    assert not watched.watch.may_work
    changes = watched.changes
    watched.watch.take(answer(id=place_id, admitted=True, generation=1, mark=mark))
    assert watched.watch.may_work
    assert watched.changes > changes


def swap(exchange):
    """Replace the directory by a copy that has its id, and not its marks."""
    away = exchange.with_name("away")
    exchange.rename(away)
    shutil.copytree(away, exchange, ignore=shutil.ignore_patterns("????????????????.????????????????"))


async def test_what_was_said_of_one_mark_admits_no_other_one(exchange):
    made = Watched(exchange)
    place_id = new_nonce()
    made_id = answer(new_id=place_id).places
    made.places.take(made_id)
    made.places.obey(made_id)
    made.places.look()
    before = answer(id=place_id, admitted=True, generation=1, mark=made.view().mark).places
    made.places.take(before)
    made.places.check(EXCHANGE)
    swap(exchange)
    late = answer(id=place_id, admitted=True, generation=9, mark=made.view().mark).places
    made.places.take(late)
    made.places.obey(late)
    assert look(str(exchange), place_id) == Seen(place_id, 1), "no generation goes into a directory without the mark"
    made.places.look()
    assert made.view().mark not in ("", late[0].mark)
    for _ in range(2):
        assert not made.places.may_work
        assert not made.places.are_settled
        with pytest.raises(PlaceNotSeenError, match="not known yet"):
            made.places.check(EXCHANGE)
        assert made.places.find([pb.PlaceMark(place=EXCHANGE, mark=made.view().mark)]) == []
        assert made.places.first_lost() is not None, "a task may have failed because of that"
        made.places.take(late)  # the answer to a heartbeat that was sent before
        made.places.obey(late)
    assert look(str(exchange), place_id) == Seen(place_id, 1)
    now = answer(id=place_id, admitted=True, generation=9, mark=made.view().mark).places
    assert made.places.take(now)
    made.places.obey(now)
    made.places.check(EXCHANGE)
    assert made.places.may_work
    assert look(str(exchange), place_id) == Seen(place_id, 9)


async def test_what_was_said_of_a_mark_does_not_hold_once_no_mark_is_there(exchange):
    made = Watched(exchange)
    place_id = new_nonce()
    make_id(str(exchange), place_id)
    made.places.take(answer(id=place_id).places)
    made.places.look()
    admits = answer(id=place_id, admitted=True, generation=1, mark=made.view().mark).places
    made.places.take(admits)
    away = exchange.with_name("away")
    exchange.rename(away)
    made.places.look()
    shutil.copytree(away, exchange)
    with pytest.raises(PlaceNotSeenError):
        made.places.check(EXCHANGE)
    made.places.take(admits)
    with pytest.raises(PlaceNotSeenError):
        made.places.check(EXCHANGE)


async def test_a_scheduler_of_the_version_before_admits_without_naming_the_mark(exchange):
    made = Watched(exchange)
    place_id = new_nonce()
    make_id(str(exchange), place_id)
    made.places.take(answer(id=place_id).places)
    made.places.look()
    made.places.take(answer(id=place_id, admitted=True, generation=1).places)
    made.places.check(EXCHANGE)
    assert made.places.may_work
    made.places.look()
    made.places.check(EXCHANGE)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
async def test_a_place_that_may_only_be_read_is_seen_without_a_mark(exchange, monkeypatch, number):
    made, place_id = unwritable(exchange, monkeypatch, number)
    made.places.look()
    assert (made.view().id, made.view().mark, made.view().problem) == (place_id, "", "")
    made.places.take(answer(id=place_id, admitted=True, generation=1, mark="").places)
    made.places.check(EXCHANGE)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE])
async def test_a_mark_that_cannot_be_written_for_another_reason_is_a_problem(exchange, monkeypatch, number):
    made, place_id = unwritable(exchange, monkeypatch, number)
    made.places.look()
    assert (made.view().id, made.view().mark) == ("", "")
    assert made.view().problem == f"it cannot be used ({os.strerror(number)})"
    monkeypatch.undo()
    made.places.look()
    assert (made.view().id, made.view().problem) == (place_id, "")
    assert made.view().mark


def unwritable(exchange, monkeypatch, number):
    """Return an executor that may not make files where the place is, because of the error *number*."""
    made = Watched(exchange)
    place_id = new_nonce()
    make_id(str(exchange), place_id)
    made.places.take(answer(id=place_id).places)

    def opened(self, *_):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "open", opened)
    return made, place_id


async def test_a_mark_that_cannot_be_looked_for_is_a_problem(exchange, monkeypatch):
    made = Watched(exchange)
    place_id = new_nonce()
    make_id(str(exchange), place_id)
    made.places.take(answer(id=place_id).places)
    made.places.look()
    mark = made.view().mark
    made.places.take(answer(id=place_id, admitted=True, generation=1, mark=mark).places)
    os_open = os.open

    def opened(path, *args, **kwargs):
        if str(path).endswith(mark):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return os_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(PlaceNotSeenError, match="Stale"):
        made.places.check(EXCHANGE)
    made.places.look()
    assert "Stale" in made.view().problem
    assert not made.places.may_work


async def test_a_disk_that_hangs_is_a_problem_of_its_place_alone(tmp_path, monkeypatch):
    paths = {EXCHANGE: tmp_path / "exchange", WAREHOUSE: tmp_path / "warehouse"}
    for path in paths.values():
        path.mkdir()
    clock = ManualClock()
    made = Watched(paths[EXCHANGE])
    made.places = SeenPlaces({name: str(path) for name, path in paths.items()}, new_incarnation(), clock)
    made.watch = PlaceWatch(made.places, made.in_thread, beat=made.beat, on_change=made.change)
    looks, may_look, looked = place_files.look, threading.Event(), []

    def hangs(path, place_id):
        looked.append(path)
        if path == str(paths[WAREHOUSE]):
            assert may_look.wait(HANGS_S)
        return looks(path, place_id)

    monkeypatch.setattr(place_files, "look", hangs)
    running = asyncio.create_task(made.watch.run())

    def problems():
        request = pb.HeartbeatRequest()
        made.watch.add_to(request)
        return {view.name: view.problem for view in request.places}

    await eventually(lambda: set(looked) == {str(path) for path in paths.values()}, "the first looks")
    clock.advance(14_000)
    assert problems() == {EXCHANGE: "", WAREHOUSE: ""}
    clock.advance(2_000)
    assert problems() == {EXCHANGE: "", WAREHOUSE: "it has not answered for 15 s"}
    before = len(looked)
    made.watch.take(answer(id=new_nonce()))
    await eventually(lambda: len(looked) > before, "another look at the directory that answers")
    verdict = pb.PlaceVerdict(name=WAREHOUSE, id=new_nonce())
    made.watch.take(pb.HeartbeatResponse(places=[verdict]))
    assert made.places.views()[1].wanted == verdict.id  # refused by name, not sent the id for ever
    may_look.set()
    await eventually(lambda: problems() == {EXCHANGE: "", WAREHOUSE: ""}, "an answer")
    running.cancel()


async def test_an_executor_without_places_says_nothing_of_them(clock):
    watch = PlaceWatch(
        SeenPlaces({}, new_incarnation(), clock), asyncio.to_thread, beat=lambda: None, on_change=lambda: None
    )
    request = pb.RegisterExecutorRequest()
    watch.add_to(request)
    watch.take(pb.RegisterExecutorResponse())
    watch.doubt()
    await watch.run()
    assert watch.may_work
    assert not request.places


async def test_an_id_that_cannot_be_made_is_tried_again_after_a_while_and_not_with_each_heartbeat(
    exchange, tmp_path, monkeypatch
):
    root, clock, tried = root_name("/data"), ManualClock(), []
    (tmp_path / "data").mkdir()
    made = Watched(exchange)
    made.places = SeenPlaces({EXCHANGE: str(exchange), root: str(tmp_path / "data")}, new_incarnation(), clock)
    made.watch = PlaceWatch(made.places, made.in_thread, beat=made.beat, on_change=made.change)

    def refused(path, place_id):
        tried.append(path)
        raise PermissionError(errno.EROFS, "it is read-only", path)

    monkeypatch.setattr(place_files, "make_id", refused)
    running = asyncio.create_task(made.watch.run())
    asked = pb.HeartbeatResponse(places=[pb.PlaceVerdict(name=root, new_id=new_nonce())])
    made.watch.take(asked)
    await eventually(lambda: tried, "the first try")
    await eventually(lambda: made.places.are_settled, "places of which nothing more is to be expected")
    for _ in range(3):
        made.watch.take(asked)
    assert not made.watch._verdicts
    clock.advance(61_000)
    made.watch.take(asked)
    await eventually(lambda: len(tried) == 2, "another try")
    made.watch.take(answer(new_id=new_nonce()))  # no task runs before that is made
    await eventually(lambda: str(exchange) in tried, "a try there")
    made.watch.take(answer(new_id=new_nonce()))
    await eventually(lambda: tried.count(str(exchange)) == 2, "another one at once")
    assert not made.places.are_settled
    running.cancel()
