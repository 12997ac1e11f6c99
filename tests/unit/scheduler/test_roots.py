"""Roots: one that its owner replaces, one in another, and those in which nobody may write."""

import asyncio
import errno

import pytest
from structlog.testing import capture_logs

from onager import place_files
from onager.errors import PlaceNotSeenError
from onager.place_files import FOLDER, root_name
from onager.state_backend import Keyspace
from tests.support.fakes.machines import Machine
from tests.support.waiting import eventually
from tests.unit.scheduler.place_world import ended, states

ROOT = root_name("/data")


@pytest.fixture
async def seen(world):
    """A scheduler, and two executors that see one root."""
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    data = world.shared / "data"
    release(data, 1)
    a, b = (Machine(name, world.clock, world.shared / "exchange", roots={"/data": data}) for name in ("a", "b"))
    await a.register(s.app)
    await a.beat(s.app, 2)
    await b.register(s.app)
    await beat(s, b, a)
    assert a.sees(ROOT)
    assert b.sees(ROOT)
    return s, a, b


def release(directory, number):
    directory.mkdir()
    (directory / f"rows-{number}").touch()
    return directory


async def beat(s, *machines):
    for _ in range(4):
        for machine in machines:
            await machine.beat(s.app)


def refused(machine):
    with pytest.raises(PlaceNotSeenError) as error:
        machine.places.check(ROOT)
    return str(error.value)


# ---------------------------------------------------------------- replaced by their owners


async def test_a_root_that_its_owner_replaces_is_seen_again_and_so_is_the_one_before(world, seen):
    s, a, b = seen
    data, before = world.shared / "data", world.shared / "before"
    for number in (2, 3):
        data.rename(before.with_name(f"before-{number}"))
        release(data, number)
        assert "another directory is there now" in refused(a)
        with capture_logs() as logs:
            await beat(s, a, b)
        assert "place_id_made_again" in {log["event"] for log in logs}
        assert a.sees(ROOT)
        assert b.sees(ROOT)
    data.rename(before)
    (world.shared / "before-2").rename(data)  # as it was, with an older generation
    await beat(s, b, a)
    assert a.sees(ROOT)
    assert b.sees(ROOT)


async def test_so_is_one_whose_marks_an_owners_tool_removes_though_there_is_one_executor(world, seen):
    s, a, b = seen
    await ended(world, s, "b")
    place_files_removed(world.shared / "data")
    await beat(s, a)
    assert a.sees(ROOT)
    assert b.places.names


def place_files_removed(directory):
    for path in sorted((directory / FOLDER).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (directory / FOLDER).rmdir()


async def test_an_empty_directory_and_one_on_another_mount_are_not_taken_for_the_root(world, seen, monkeypatch):
    s, a, _ = seen
    await ended(world, s, "b")
    data, away = world.shared / "data", world.shared / "away"
    data.rename(away)
    data.mkdir()
    await beat(s, a)
    assert "lacks its id, so its volume is not mounted" in refused(a)
    assert not (data / FOLDER).exists()
    (data / "left-over").touch()
    with monkeypatch.context() as patched:
        patched.setattr(place_files, "mount_of", lambda _: "the mount below")
        await beat(s, a)
        assert "lacks its id, so its volume is not mounted" in refused(a)
        assert not (data / FOLDER).exists()
    await beat(s, a)  # it may be another volume that is mounted now
    assert "lacks its id, so its volume is not mounted" in refused(a)
    assert not (data / FOLDER).exists()
    (data / "left-over").unlink()
    data.rmdir()
    away.rename(data)
    await beat(s, a)
    assert a.sees(ROOT)


async def test_a_link_that_is_switched_on_one_machine_after_the_other_is_followed_once_all_have(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    for number in (1, 2):
        release(world.shared / f"release-{number}", number)
    links = {name: world.tmp_path / f"link-of-{name}" for name in ("a", "b")}
    for link in links.values():
        link.symlink_to(world.shared / "release-1")
    a, b = (Machine(name, world.clock, world.shared / "exchange", roots={"/data": at}) for name, at in links.items())
    await a.register(s.app)
    await a.beat(s.app, 2)
    await b.register(s.app)
    await beat(s, b, a)
    links["a"].unlink()
    links["a"].symlink_to(world.shared / "release-2")
    await beat(s, a, b)
    assert "does not find there what it wrote" in refused(a)  # their rows would differ
    assert b.sees(ROOT)
    links["b"].unlink()
    links["b"].symlink_to(world.shared / "release-2")
    await beat(s, b, a)
    world.clock.advance(11_000)  # then it leaves another mark
    await beat(s, b, a)
    assert a.sees(ROOT)
    assert b.sees(ROOT)


async def test_an_executor_that_takes_no_work_and_names_no_root_is_not_waited_for(world, seen):
    s, a, b = seen
    world.unmount("c")
    c = Machine("c", world.clock, world.tmp_path / "c" / "exchange")
    await c.register(s.app)
    await c.beat(s.app, 2)
    assert states(s)["c"][0] == "no_place"
    data = world.shared / "data"
    data.rename(world.shared / "away")
    data.mkdir()
    for _ in range(2):
        await beat(s, a, b)
        world.clock.advance(11_000)
    assert not s.app.executors.may_see(ROOT)


# ---------------------------------------------------------------- roots in others


async def test_a_root_in_another_one_is_part_of_it_unless_that_cannot_be_marked(world, monkeypatch):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    outer, inner = world.shared / "data", world.shared / "data" / "t"
    inner.mkdir(parents=True)
    roots = {"/data": outer, "/data/t": inner}
    a = Machine("a", world.clock, world.shared / "exchange", roots=roots)
    await a.register(s.app)
    await beat(s, a)
    assert (outer / FOLDER).exists()
    assert not (inner / FOLDER).exists()
    assert a.places.are_settled
    assert a.places.of([f"{inner}/part"]) == set(map(root_name, roots))
    for at in (outer, inner):
        a.places.check_path(f"{at}/x")
    outer.rename(world.shared / "away")
    inner.mkdir(parents=True)
    with pytest.raises(PlaceNotSeenError):
        a.places.check_path(f"{inner}/x")

    make = place_files.make_id

    def refused_at_outer(path, place_id):
        if path == str(outer):
            raise PermissionError(errno.EACCES, "it is not for writing", path)
        make(path, place_id)

    monkeypatch.setattr(place_files, "make_id", refused_at_outer)
    await world.schedulers[0].backend.delete(Keyspace.Places, root_name("/data"))
    b = Machine("b", world.clock, world.shared / "exchange", roots=roots)
    await b.register(s.app)
    await beat(s, b)
    assert not (outer / FOLDER).exists()
    assert (inner / FOLDER).exists()


async def test_a_root_in_another_one_that_is_a_mount_is_a_place_of_its_own(world, monkeypatch):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    outer, inner = world.shared / "data", world.shared / "data" / "t"
    inner.mkdir(parents=True)
    monkeypatch.setattr(place_files, "mount_of", lambda path: path)
    a = Machine("a", world.clock, world.shared / "exchange", roots={"/data": outer, "/data/t": inner})
    await a.register(s.app)
    await beat(s, a)
    assert (outer / FOLDER).exists()
    assert (inner / FOLDER).exists()
    assert a.places.unseen() == set()


# ---------------------------------------------------------------- where nobody may write


async def test_a_place_without_an_id_is_not_read_from_the_store_with_each_heartbeat(world, monkeypatch):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    data = release(world.shared / "data", 1)
    a = Machine("a", world.clock, world.shared / "exchange", roots={"/data": data})
    make = place_files.make_id

    def refused_at_root(path, place_id):
        if path == str(data):
            raise PermissionError(errno.EROFS, "it is read-only", path)
        make(path, place_id)

    monkeypatch.setattr(place_files, "make_id", refused_at_root)
    read, get = [], s.backend.get

    async def counted(keyspace, key):
        read.append((keyspace, key))
        return await get(keyspace, key)

    monkeypatch.setattr(s.app.places._backend, "get", counted)
    following = asyncio.create_task(s.app.places._watch())
    await eventually(lambda: s.app.places._is_following, "a watch")
    await a.register(s.app)
    await a.beat(s.app, 2)
    assert a.places.are_settled
    read.clear()
    await a.beat(s.app, 5)
    assert (Keyspace.Places, ROOT) not in read
    monkeypatch.setattr(place_files, "make_id", make)
    await a.beat(s.app, 3)  # somebody may write there now
    assert a.sees(ROOT)
    assert states(s)["a"] == ("alive", "")
    assert (data / FOLDER).exists()
    following.cancel()
