"""Warehouses that an executor does not see: it works on all that does not need them."""

import shutil

import pytest
from structlog.testing import capture_logs

from onager.errors import PlaceNotSeenError
from onager.place_files import EXCHANGE, WAREHOUSE
from tests.support.fakes.machines import Machine
from tests.unit.scheduler.place_world import ended, states


async def test_the_warehouse_alone_does_not_keep_an_executor_from_other_work(world):
    s, a = await world.start()
    await a.beat(s.replica, 2)
    own = world.tmp_path / "container" / "warehouse"
    b = Machine("b", world.clock, world.shared / "exchange", own)
    await b.register(s.replica)
    await b.beat(s.replica)
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
    await a.register(s.replica)
    await a.beat(s.replica, 2)
    await b.register(s.replica)
    executors = s.replica.executors
    shutil.move(world.shared / "warehouse", world.shared / "away")
    for machine in (a, b):
        machine.places.look()
    await a.beat(s.replica)
    world.clock.advance(11_000)
    assert executors.may_see_warehouse()  # what the second one sees is not known yet
    await b.beat(s.replica, 2)
    assert executors.may_see_warehouse()  # its disk may have failed for a moment
    world.clock.advance(11_000)
    await a.beat(s.replica)
    await b.beat(s.replica)
    assert not executors.may_see_warehouse()
    shutil.move(world.shared / "away", world.shared / "warehouse")
    a.places.look()
    await a.beat(s.replica, 2)
    assert a.sees(WAREHOUSE)
    assert executors.may_see_warehouse()
    await ended(world, s, "a")
    assert executors.may_see_warehouse()  # it may start again
    world.clock.advance(61_000)
    assert not executors.may_see_warehouse()


async def test_where_nobody_can_make_a_warehouse_nothing_is_checked(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    (world.tmp_path / "file").touch()
    a = Machine("a", world.clock, world.shared / "exchange", world.tmp_path / "file" / "warehouse")
    await a.register(s.replica)
    with capture_logs() as logs:
        await a.beat(s.replica, 3)
    assert [log["event"] for log in logs].count("place_not_written") <= 1
    a.places.check(WAREHOUSE)
    assert states(s)["a"] == ("alive", "")


async def test_an_executor_of_the_version_before_works_as_before(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    old = Machine("old", world.clock, world.tmp_path / "nowhere")
    old.places = type(old.places)({}, old.incarnation, world.clock)
    await old.register(s.replica)
    await old.beat(s.replica)
    assert s.replica.executors.taking_work() == {"old"}


async def test_without_a_scheduler_that_judges_nothing_is_checked(world):
    world.mount("a")
    a = world.machine("a")
    a.places.look()
    assert a.places.may_work
    a.places.check(EXCHANGE)
    a.places.check_path(str(world.tmp_path / "a" / "warehouse" / "t"))
    assert a.places.unseen() == set()
