"""Warehouses and roots that an executor does not see: it works on all that does not need them."""

import errno
import shutil

import pytest
from structlog.testing import capture_logs

from onager import place_files
from onager.errors import PlaceNotSeenError
from onager.place_files import EXCHANGE, WAREHOUSE, root_name
from tests.support.fakes.machines import Machine
from tests.unit.scheduler.place_world import ended, states


async def test_the_warehouse_alone_does_not_keep_an_executor_from_other_work(world):
    s, a = await world.start()
    await a.beat(s.app, 2)
    own = world.tmp_path / "container" / "warehouse"
    b = Machine("b", world.clock, world.shared / "exchange", own)
    await b.register(s.app)
    await b.beat(s.app)
    assert not own.exists()
    state, why = states(s)["b"]
    assert state == "alive"
    assert "it is not there; mount the volume that holds the cluster's warehouse" in why
    assert b.places.may_work
    with pytest.raises(PlaceNotSeenError) as error:
        b.places.check_path(f"{own}/t")
    assert error.value.place == WAREHOUSE


async def test_a_warehouse_may_still_be_seen_until_every_executor_has_been_refused_for_a_while(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.app)
    await a.beat(s.app, 2)
    await b.register(s.app)
    executors = s.app.executors
    shutil.move(world.shared / "warehouse", world.shared / "away")
    for machine in (a, b):
        machine.places.look()
    await a.beat(s.app)
    world.clock.advance(11_000)
    assert executors.may_see(WAREHOUSE)  # what the second one sees is not known yet
    await b.beat(s.app, 2)
    assert executors.may_see(WAREHOUSE)  # its disk may have failed for a moment
    world.clock.advance(11_000)
    await a.beat(s.app)
    await b.beat(s.app)
    assert not executors.may_see(WAREHOUSE)
    shutil.move(world.shared / "away", world.shared / "warehouse")
    a.places.look()
    await a.beat(s.app, 2)
    assert a.sees(WAREHOUSE)
    assert executors.may_see(WAREHOUSE)
    await ended(world, s, "a")
    assert executors.may_see(WAREHOUSE)  # it may start again
    world.clock.advance(61_000)
    assert not executors.may_see(WAREHOUSE)


async def test_a_root_is_seen_or_left_to_others_and_is_made_by_nobody(world):
    for name in ("s", "a"):
        world.mount(name)
    world.unmount("b")
    (world.shared / "data").mkdir()
    s = await world.scheduler("s")
    await s.look(3)
    a, b, c = (
        Machine(name, world.clock, world.shared / "exchange", roots={"/data": world.tmp_path / at / "data"})
        for name, at in (("a", "a"), ("b", "b"), ("c", "b"))
    )
    root = root_name("/data")
    (missing := world.tmp_path / "b" / "data").mkdir()  # what is there without its mount
    await a.register(s.app)
    await a.beat(s.app, 2)
    assert a.sees(root)
    await b.register(s.app)
    await b.beat(s.app, 2)
    state, why = states(s)["b"]
    assert state == "alive"
    assert f"{missing} on host-of-b is not the cluster's directory of files (--root): it lacks its id" in why
    with pytest.raises(PlaceNotSeenError) as error:
        b.places.check_path(f"{missing}/table")
    assert error.value.place == root
    missing.rmdir()
    await c.register(s.app)
    await c.beat(s.app, 2)
    assert not c.sees(root)
    assert not missing.exists()
    assert s.app.executors.may_see(root)


async def test_a_root_that_is_nowhere_or_where_nobody_may_write_is_not_checked(world, monkeypatch):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    (world.tmp_path / "given").mkdir()
    roots = {f"/{name}": world.tmp_path / name for name in ("nowhere", "given")}
    a = Machine("a", world.clock, world.shared / "exchange", roots=roots)
    make = place_files.make_id

    def refused(path, place_id):
        if path.endswith("/given"):
            raise PermissionError(errno.EROFS, "it is read-only", path)
        make(path, place_id)

    monkeypatch.setattr(place_files, "make_id", refused)
    await a.register(s.app)
    with capture_logs() as logs:
        await a.beat(s.app, 3)
    assert {log["log_level"] for log in logs if log["event"] == "place_not_written"} <= {"info"}
    for path in roots.values():
        a.places.check_path(f"{path}/table")
    assert not (world.tmp_path / "nowhere").exists()
    assert states(s)["a"] == ("alive", "")


async def test_where_nobody_can_make_a_warehouse_nothing_is_checked(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    (world.tmp_path / "file").touch()
    a = Machine("a", world.clock, world.shared / "exchange", world.tmp_path / "file" / "warehouse")
    await a.register(s.app)
    with capture_logs() as logs:
        await a.beat(s.app, 3)
    assert [log["event"] for log in logs].count("place_not_written") <= 1
    a.places.check(WAREHOUSE)
    assert states(s)["a"] == ("alive", "")


async def test_an_executor_of_the_version_before_works_as_before(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    old = Machine("old", world.clock, world.tmp_path / "nowhere")
    old.places = type(old.places)({}, old.incarnation, world.clock)
    await old.register(s.app)
    await old.beat(s.app)
    assert s.app.executors.taking_work() == {"old"}


async def test_without_a_scheduler_that_judges_nothing_is_checked(world):
    world.mount("a")
    a = world.machine("a")
    a.places.look()
    assert a.places.may_work
    a.places.check(EXCHANGE)
    a.places.check_path(str(world.tmp_path / "a" / "warehouse" / "t"))
    assert a.places.unseen() == set()
