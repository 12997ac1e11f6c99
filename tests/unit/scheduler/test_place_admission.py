"""Directories that machines share, and machines that see another one: who is admitted, and who is refused by name."""

import asyncio
import shutil
import threading

import pytest
from structlog.testing import capture_logs

from onager import place_files
from onager.errors import PlaceNotSeenError
from onager.place_files import EXCHANGE, FOLDER, WAREHOUSE, look, make_id
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.place_records import PlaceClaim, PlaceRecord
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend
from tests.support.waiting import HANGS_S
from tests.unit.scheduler.place_world import ended, states


async def test_the_first_makes_the_ids_and_those_that_see_them_are_admitted(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    assert s.own.is_admitted
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.app)
    assert not await world.known(WAREHOUSE)
    await a.beat(s.app)
    assert a.sees()  # the scheduler looks itself, so that no other executor is waited for
    assert a.sees(WAREHOUSE)
    await b.register(s.app)
    await b.beat(s.app)
    assert b.sees()
    assert not b.sees(WAREHOUSE)
    await a.beat(s.app, 2)  # it looks for the mark of the other
    await b.beat(s.app)
    assert b.sees(WAREHOUSE)
    assert states(s) == {"a": ("alive", ""), "b": ("alive", "")}
    assert s.app.executors.total_slots == 2
    for name in (EXCHANGE, WAREHOUSE):
        place_id = (await world.known(name)).place_id
        assert [path.name for path in (world.shared / name / FOLDER).iterdir()] == [place_id]


async def test_a_machine_without_its_mount_is_refused_by_name_gets_no_work_and_comes_back_by_itself(world):
    for name in ("s", "a"):
        world.mount(name)
    world.unmount("b")
    s = await world.scheduler("s")
    await s.look(3)
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.app)
    await a.beat(s.app)
    with capture_logs() as logs:
        await b.register(s.app)
        await b.beat(s.app)
    assert not list((world.tmp_path / "disk-of-b").rglob(".onager-place"))
    state, why = states(s)["b"]
    assert state == "no_place"
    assert f"{world.tmp_path}/b/exchange on host-of-b is not the cluster's exchange directory" in why
    assert "its volume is not mounted" in why
    assert {"place_not_seen"} == {log["event"] for log in logs if log["log_level"] == "error"}
    assert s.app.executors.taking_work() == {"a"}
    with pytest.raises(PlaceNotSeenError, match="host-of-b"):
        b.places.check(EXCHANGE)
    world.mount("b")
    b.places.look()
    await b.beat(s.app, 2)
    assert states(s)["b"][0] == "alive"
    assert s.app.executors.taking_work() == {"a", "b"}
    await a.beat(s.app, 2)
    await b.beat(s.app)
    assert b.sees(WAREHOUSE)


@pytest.mark.parametrize("place", [EXCHANGE, WAREHOUSE])
async def test_a_copy_with_the_same_id_is_refused_though_it_has_the_marks_of_the_living(world, place):
    s, a = await world.start()
    await a.beat(s.app, 2)
    copied = world.unmount("b")
    shutil.rmtree(world.tmp_path / "disk-of-b")
    (world.tmp_path / "disk-of-b").mkdir()
    for part in (EXCHANGE, WAREHOUSE):
        (copied / part).symlink_to(world.shared / part)
    (copied / place).unlink()
    shutil.copytree(world.shared / place, copied / place)
    b = world.machine("b")
    await b.register(s.app)
    for _ in range(3):
        await a.beat(s.app)
        await b.beat(s.app)
    assert not b.sees(place)
    assert f"is a copy of the cluster's {place}" in states(s)["b"][1]
    world.clock.advance(11_000)
    for _ in range(3):
        b.places.look()
        await b.beat(s.app)
        await a.beat(s.app)
    assert not b.sees(place)
    world.mount("b")
    b.places.look()
    for _ in range(3):
        await b.beat(s.app)
        await a.beat(s.app)
    await b.beat(s.app)
    assert b.sees(place)


async def test_two_first_registrations_at_once_with_different_directories_one_of_them_wins(world):
    world.unmount("a")
    world.unmount("b")
    world.mount("s1")
    world.mount("s2")
    schedulers = [await world.scheduler("s1", looks=False), await world.scheduler("s2", looks=False)]
    machines = [world.machine("a"), world.machine("b")]
    for tries in range(4):
        beats = [(m.beat if tries else m.register)(s.app) for m, s in zip(machines, schedulers, strict=True)]
        await asyncio.gather(*beats)
        for s in schedulers:
            await s.app.executors.refresh()
    seen = [machine.sees() for machine in machines]
    assert sorted(seen) == [False, True]
    loser = machines[seen.index(False)]
    assert states(schedulers[0])[loser.name][0] == "no_place"


async def test_a_death_between_the_directory_and_the_store_costs_nothing_nor_does_another_cluster(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    make_id(str(world.shared / "exchange"), "a" * 16)  # and then it was killed; or it is another cluster's
    a = world.machine("a")
    await a.register(s.app)
    await a.beat(s.app)
    assert a.sees()
    assert (await world.known()).place_id != "a" * 16


async def test_after_all_have_ended_the_generation_decides_and_a_death_in_between_locks_nobody_out(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s", looks=False)
    a = world.machine("a")
    await a.register(s.app)
    await a.beat(s.app, 2)
    place_id = (await world.known()).place_id
    old = world.tmp_path / "old"
    shutil.copytree(world.shared, old, symlinks=True)
    await ended(world, s, "a")
    for lives in range(2, 5):
        a = world.machine("a")
        await a.register(s.app)
        await a.beat(s.app)
        assert a.sees()
        await a.beat(s.app)
        known = await world.known()
        assert (known.generation, look(str(world.shared / "exchange"), place_id).generation) == (lives, lives)
        await a.beat(s.app)
        assert not (await world.known()).generation_before
        await ended(world, s, "a")
    world.mount("b", old)
    b = world.machine("b")
    await b.register(s.app)
    await b.beat(s.app)
    assert not b.sees()
    assert "generation 1, and the cluster is at 4" in states(s)["b"][1]
    await ended(world, s, "b")
    # The store has the next generation, and its maker died before it could write it.
    known = await world.known()
    dead = known.model_copy(update={"generation": 5, "generation_before": 4})
    await MemoryBackend(world.store).put(Keyspace.Places, EXCHANGE, dead.encoded())
    a = world.machine("a")
    await a.register(s.app)
    await a.beat(s.app)
    assert a.sees()


async def test_of_a_directory_and_its_copy_only_one_gets_in_when_all_have_ended(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    a = world.machine("a")
    await a.register(s.app)
    await a.beat(s.app, 2)
    await ended(world, s, "a")
    shutil.copytree(world.shared, world.tmp_path / "copy")
    world.mount("b", world.tmp_path / "copy")
    others = [await world.scheduler(f"s{n}", looks=False) for n in range(2)]
    machines = [world.machine("a"), world.machine("b")]
    await asyncio.gather(*(m.register(o.app) for m, o in zip(machines, others, strict=True)))
    for _ in range(3):
        for machine, other in zip(machines, others, strict=True):
            await other.app.executors.refresh()
            await machine.beat(other.app)
    assert sorted(machine.sees() for machine in machines) == [False, True]


async def test_a_mount_that_is_lost_fails_what_asks_and_is_reported_and_is_found_again(world):
    s, a = await world.start()
    await a.beat(s.app)
    a.places.check_path(str(world.tmp_path / "a" / "warehouse" / "t"))
    world.unmount("a")
    with pytest.raises(PlaceNotSeenError, match="was lost while this executor ran"):
        a.places.check(EXCHANGE)
    with pytest.raises(PlaceNotSeenError, match="warehouse"):
        a.places.check_path(f"file://{world.tmp_path}/a/warehouse/t/part-0")
    a.places.check_path("/elsewhere/t")
    assert not a.places.may_work  # at once, before any scheduler knows
    await a.beat(s.app)
    assert states(s)["a"][0] == "no_place"
    world.mount("a")
    a.places.look()
    await a.beat(s.app, 3)
    assert a.places.may_work
    assert states(s)["a"] == ("alive", "")
    assert a.sees(WAREHOUSE)


async def test_what_two_schedulers_note_of_an_executor_is_kept_and_what_is_decided_by_an_older_claim_is_not(world):
    for name in ("s1", "s2", "a"):
        world.mount(name)
    first, second = [(await world.scheduler(name, looks=False)).app.executors for name in ("s1", "s2")]
    a = world.machine("a")
    await a.register(world.schedulers[0].app)
    await second.refresh()
    before = first.registry.find("a").places
    admitted = PlaceClaim(path="/w", mark="m", place_id="a" * 16)
    assert await second.claim("a", a.incarnation, WAREHOUSE, admitted, instead_of=before[WAREHOUSE])
    seen = PlaceClaim(path="/e", mark="n", place_id="b" * 16)
    assert await first.claim("a", a.incarnation, EXCHANGE, seen, instead_of=before[EXCHANGE])
    refused = PlaceClaim(path="/w", why="it is not there")
    assert not await first.claim("a", a.incarnation, WAREHOUSE, refused, instead_of=before[WAREHOUSE])
    await second.refresh()
    for executors in (first, second):
        assert executors.registry.find("a").places == {EXCHANGE: seen, WAREHOUSE: admitted}


async def test_an_executor_that_is_leaving_and_loses_its_mount_is_no_witness_any_more(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s", looks=False)
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.app)
    await a.beat(s.app, 3)
    await s.app.executors.drain(s.app.executors.session("a"))
    world.unmount("a")
    a.places.look()
    await a.beat(s.app)
    assert not s.app.executors.registry.find("a").places[EXCHANGE].is_admitted
    await b.register(s.app)
    await b.beat(s.app, 2)
    assert b.sees()
    world.mount("a")
    a.places.look()
    await a.beat(s.app)
    await b.beat(s.app, 2)
    await a.beat(s.app)
    assert a.sees()
    assert states(s)["a"][0] == "draining"


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_admission_that_another_process_forestalls_does_not_switch_the_check_off(world, is_first):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s", looks=not is_first)
    if not is_first:
        await s.look(3)
    executors = s.app.executors
    a = world.machine("a")
    await a.register(s.app)
    claim = executors.claim

    async def late(*args, **kwargs):
        record = await world.known() or PlaceRecord(place_id="a" * 16, generation=1)
        await s.backend.put(Keyspace.Places, EXCHANGE, record.encoded())
        return await claim(*args, **kwargs)

    executors.claim = late
    for _ in range(2):
        await a.beat(s.app)
        with pytest.raises(PlaceNotSeenError):
            a.places.check(EXCHANGE)


async def test_an_executor_whose_disk_hangs_is_no_witness_and_comes_back(world, monkeypatch):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s", looks=False)
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.app)
    await a.beat(s.app, 3)
    await b.register(s.app)
    await b.beat(s.app)
    look, began, may_look = place_files.look, threading.Event(), threading.Event()

    def hangs(path, place_id):
        if "/a/" in path:
            began.set()
            assert may_look.wait(HANGS_S)
        return look(path, place_id)

    monkeypatch.setattr(place_files, "look", hangs)
    hanging = asyncio.create_task(asyncio.to_thread(a.places.look))
    assert await asyncio.to_thread(began.wait, HANGS_S)
    world.clock.advance(16_000)
    takes, a._take = a._take, lambda answer: a.places.take(answer.places)
    await a.beat(s.app)
    state, why = states(s)["a"]
    assert (state, "it has not answered for 15 s" in why) == ("no_place", True)
    assert not a.places.may_work
    await b.beat(s.app, 2)
    assert b.sees()
    may_look.set()
    await hanging
    a._take = takes
    a.places.look()
    for _ in range(3):
        await a.beat(s.app)
        await b.beat(s.app)
    await a.beat(s.app)
    assert a.sees()
    assert states(s)["a"][0] == "alive"


async def test_a_removed_record_is_made_anew_by_the_first_that_looks(world):
    s, a = await world.start()
    fresh = world.tmp_path / "fresh"
    (fresh / "exchange").mkdir(parents=True)
    world.mount("s", fresh)
    world.mount("a", fresh)
    await s.look()
    assert not s.own.is_admitted
    await s.backend.delete(Keyspace.Places, EXCHANGE)
    await s.look(3)
    assert s.own.is_admitted
    a.places.look()
    await a.beat(s.app, 3)
    assert a.sees()


async def test_a_damaged_record_costs_no_heartbeat(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    await s.backend.put(Keyspace.Places, EXCHANGE, b"{")
    a = world.machine("a")
    with capture_logs() as logs:
        await a.register(s.app)
        await a.beat(s.app)
    assert "place_record_damaged" in {log["event"] for log in logs}


@pytest.mark.parametrize("mark", ["../../etc/passwd", "id", "x" * 64])
async def test_a_mark_that_is_none_is_looked_for_in_vain(world, mark):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s")
    await s.look(3)
    place_id = (await world.known()).place_id
    request = pb.PlaceView(name=EXCHANGE, path="/x", wanted=place_id, id=place_id, generation=1, mark=mark)
    a = world.machine("a")
    a.places.views = lambda: [request]
    await a.register(s.app)
    assert s.app.executors.taking_work() == set()
