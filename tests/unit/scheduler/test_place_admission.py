"""Directories that machines share, and machines that see another one: who is admitted, and who is refused by name."""

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from onager import place_files
from onager.errors import PlaceNotSeenError
from onager.place_files import EXCHANGE, FOLDER, WAREHOUSE, look, make_id, root_name
from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.place_records import PlaceClaim, PlaceRecord
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.support.fakes.machines import Machine, SchedulerMachine
from tests.support.waiting import HANGS_S


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
def shared(tmp_path):
    """What is mounted; each machine sees it by a link, as by a mount."""
    directory = tmp_path / "shared"
    (directory / "exchange").mkdir(parents=True)
    (directory / "warehouse").mkdir()
    return directory


class World:
    def __init__(self, tmp_path, clock, store, shared):
        self.tmp_path, self.clock, self.store, self.shared = tmp_path, clock, store, shared
        self.schedulers = []

    def mount(self, name, at=None):
        """Return what machine *name* sees: a link to what is shared, or else to its own disk below the mount."""
        link, own = self.tmp_path / name, self.tmp_path / f"disk-of-{name}"
        for part in ("exchange", "warehouse"):
            (own / part).mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(at or self.shared)
        return link

    def unmount(self, name):
        return self.mount(name, self.tmp_path / f"disk-of-{name}")

    def machine(self, name):
        link = self.tmp_path / name
        return Machine(name, self.clock, link / "exchange", link / "warehouse")

    async def scheduler(self, name, *, looks=True):
        made = SchedulerMachine(
            name, self.clock, MemoryBackend(self.store), self.tmp_path / name / "exchange", looks=looks
        )
        await made.start()
        self.schedulers.append(made)
        return made

    async def known(self, name=EXCHANGE):
        found = await MemoryBackend(self.store).get(Keyspace.Places, name)
        return None if found is None else PlaceRecord.decoded(found.value, name)


@pytest.fixture
async def world(tmp_path, clock, store, shared):
    made = World(tmp_path, clock, store, shared)
    yield made
    for scheduler in made.schedulers:
        await scheduler.replica.close()


def states(scheduler):
    return {info.executor_id: (info.state, info.reason) for info in scheduler.replica.executors.infos()}


async def test_the_first_makes_the_ids_and_those_that_see_them_are_admitted(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    assert s.own.is_admitted
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.replica)
    assert not await world.known(WAREHOUSE)
    await a.beat(s.replica)
    assert a.sees()  # the scheduler looks itself, so that no other executor is waited for
    assert a.sees(WAREHOUSE)
    await b.register(s.replica)
    await b.beat(s.replica)
    assert b.sees()
    assert not b.sees(WAREHOUSE)
    await a.beat(s.replica, 2)  # it looks for the mark of the other
    await b.beat(s.replica)
    assert b.sees(WAREHOUSE)
    assert states(s) == {"a": ("alive", ""), "b": ("alive", "")}
    assert s.replica.executors.total_slots == 2
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
    await a.register(s.replica)
    await a.beat(s.replica)
    with capture_logs() as logs:
        await b.register(s.replica)
        await b.beat(s.replica)
    assert not list((world.tmp_path / "disk-of-b").rglob(".onager-place"))
    state, why = states(s)["b"]
    assert state == "no_place"
    assert f"{world.tmp_path}/b/exchange on host-of-b is not the cluster's exchange directory" in why
    assert "its volume is not mounted" in why
    assert {"place_not_seen"} == {log["event"] for log in logs if log["log_level"] == "error"}
    assert s.replica.executors.taking_work() == {"a"}
    with pytest.raises(PlaceNotSeenError, match="host-of-b"):
        b.places.check(EXCHANGE)
    world.mount("b")
    b.places.look()
    await b.beat(s.replica, 2)
    assert states(s)["b"][0] == "alive"
    assert s.replica.executors.taking_work() == {"a", "b"}
    await a.beat(s.replica, 2)
    await b.beat(s.replica)
    assert b.sees(WAREHOUSE)


@pytest.mark.parametrize("place", [EXCHANGE, WAREHOUSE])
async def test_a_copy_with_the_same_id_is_refused_though_it_has_the_marks_of_the_living(world, place):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica, 2)
    copied = world.unmount("b")
    shutil.rmtree(world.tmp_path / "disk-of-b")
    (world.tmp_path / "disk-of-b").mkdir()
    for part in (EXCHANGE, WAREHOUSE):
        (copied / part).symlink_to(world.shared / part)
    (copied / place).unlink()
    shutil.copytree(world.shared / place, copied / place)
    b = world.machine("b")
    await b.register(s.replica)
    for _ in range(3):
        await a.beat(s.replica)
        await b.beat(s.replica)
    assert not b.sees(place)
    assert f"is a copy of the cluster's {place}" in states(s)["b"][1]
    world.clock.advance(11_000)
    for _ in range(3):
        b.places.look()
        await b.beat(s.replica)
        await a.beat(s.replica)
    assert not b.sees(place)
    world.mount("b")
    b.places.look()
    for _ in range(3):
        await b.beat(s.replica)
        await a.beat(s.replica)
    await b.beat(s.replica)
    assert b.sees(place)


async def test_two_first_registrations_at_once_with_different_directories_one_of_them_wins(world):
    world.unmount("a")
    world.unmount("b")
    world.mount("s1")
    world.mount("s2")
    schedulers = [await world.scheduler("s1", looks=False), await world.scheduler("s2", looks=False)]
    machines = [world.machine("a"), world.machine("b")]
    for tries in range(4):
        beats = [(m.beat if tries else m.register)(s.replica) for m, s in zip(machines, schedulers, strict=True)]
        await asyncio.gather(*beats)
        for s in schedulers:
            await s.replica.executors.refresh()
    seen = [machine.sees() for machine in machines]
    assert sorted(seen) == [False, True]
    loser = machines[seen.index(False)]
    assert states(schedulers[0])[loser.name][0] == "no_place"


async def test_two_schedulers_that_start_first_at_once_on_one_directory_are_both_admitted(world):
    world.mount("s1")
    world.mount("s2")
    first, second = [await world.scheduler(name) for name in ("s1", "s2")]
    for _ in range(6):
        await asyncio.gather(first.look(), second.look())
    assert first.own.is_admitted
    assert second.own.is_admitted
    first.own.check()
    second.own.check()


async def test_two_schedulers_that_start_first_at_once_on_two_directories_one_serves(world):
    world.mount("s1")
    world.unmount("s2")
    first, second = [await world.scheduler(name) for name in ("s1", "s2")]
    for _ in range(6):
        await asyncio.gather(first.look(), second.look())
    refused = [s for s in (first, second) if not s.own.is_admitted]
    assert len(refused) == 1
    with pytest.raises(PlaceNotSeenError, match=r"reads nothing there.*is not the cluster's exchange directory"):
        refused[0].own.check()


async def test_a_death_between_the_directory_and_the_store_costs_nothing_nor_does_another_cluster(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    make_id(str(world.shared / "exchange"), "a" * 16)  # and then it was killed; or it is another cluster's
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica)
    assert a.sees()
    assert (await world.known()).place_id != "a" * 16


async def ended(world, s, *names):
    """End executors, and let their records say so."""
    for name in names:
        record = s.replica.executors.registry.find(name)
        await s.replica.executors.deregister(name, record.incarnation, "it left")


async def test_after_all_have_ended_the_generation_decides_and_a_death_in_between_locks_nobody_out(world):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s", looks=False)
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica, 2)
    place_id = (await world.known()).place_id
    old = world.tmp_path / "old"
    shutil.copytree(world.shared, old, symlinks=True)
    await ended(world, s, "a")
    for lives in range(2, 5):
        a = world.machine("a")
        await a.register(s.replica)
        await a.beat(s.replica)
        assert a.sees()
        await a.beat(s.replica)
        known = await world.known()
        assert (known.generation, look(str(world.shared / "exchange"), place_id).generation) == (lives, lives)
        await a.beat(s.replica)
        assert not (await world.known()).generation_before
        await ended(world, s, "a")
    world.mount("b", old)
    b = world.machine("b")
    await b.register(s.replica)
    await b.beat(s.replica)
    assert not b.sees()
    assert "generation 1, and the cluster is at 4" in states(s)["b"][1]
    await ended(world, s, "b")
    # The store has the next generation, and its maker died before it could write it.
    known = await world.known()
    dead = known.model_copy(update={"generation": 5, "generation_before": 4})
    await MemoryBackend(world.store).put(Keyspace.Places, EXCHANGE, dead.encoded())
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica)
    assert a.sees()


async def test_of_a_directory_and_its_copy_only_one_gets_in_when_all_have_ended(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica, 2)
    await ended(world, s, "a")
    shutil.copytree(world.shared, world.tmp_path / "copy")
    world.mount("b", world.tmp_path / "copy")
    others = [await world.scheduler(f"s{n}", looks=False) for n in range(2)]
    machines = [world.machine("a"), world.machine("b")]
    await asyncio.gather(*(m.register(o.replica) for m, o in zip(machines, others, strict=True)))
    for _ in range(3):
        for machine, other in zip(machines, others, strict=True):
            await other.replica.executors.refresh()
            await machine.beat(other.replica)
    assert sorted(machine.sees() for machine in machines) == [False, True]


async def test_a_mount_that_is_lost_fails_what_asks_and_is_told_and_is_found_again(world):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    a = world.machine("a")
    await a.register(s.replica)
    await a.beat(s.replica)
    a.places.check_path(str(world.tmp_path / "a" / "warehouse" / "t"))
    world.unmount("a")
    with pytest.raises(PlaceNotSeenError, match="was lost while this executor ran"):
        a.places.check(EXCHANGE)
    with pytest.raises(PlaceNotSeenError, match="warehouse"):
        a.places.check_path(f"file://{world.tmp_path}/a/warehouse/t/part-0")
    a.places.check_path("/elsewhere/t")
    assert not a.places.may_work  # at once, before any scheduler knows
    await a.beat(s.replica)
    assert states(s)["a"][0] == "no_place"
    world.mount("a")
    a.places.look()
    await a.beat(s.replica, 3)
    assert a.places.may_work
    assert states(s)["a"] == ("alive", "")
    assert a.sees(WAREHOUSE)


async def test_what_two_schedulers_note_of_an_executor_is_kept_and_what_is_decided_by_an_older_claim_is_not(world):
    for name in ("s1", "s2", "a"):
        world.mount(name)
    first, second = [(await world.scheduler(name, looks=False)).replica.executors for name in ("s1", "s2")]
    a = world.machine("a")
    await a.register(world.schedulers[0].replica)
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
    await a.register(s.replica)
    await a.beat(s.replica, 3)
    await s.replica.executors.drain(s.replica.executors.session("a"))
    world.unmount("a")
    a.places.look()
    await a.beat(s.replica)
    assert not s.replica.executors.registry.find("a").places[EXCHANGE].is_admitted
    await b.register(s.replica)
    await b.beat(s.replica, 2)
    assert b.sees()
    world.mount("a")
    a.places.look()
    await a.beat(s.replica)
    await b.beat(s.replica, 2)
    await a.beat(s.replica)
    assert a.sees()
    assert states(s)["a"][0] == "draining"


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_admission_that_another_process_forestalls_does_not_switch_the_check_off(world, is_first):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s", looks=not is_first)
    if not is_first:
        await s.look(3)
    executors = s.replica.executors
    a = world.machine("a")
    await a.register(s.replica)
    claim = executors.claim

    async def late(*args, **kwargs):
        record = await world.known() or PlaceRecord(place_id="a" * 16, generation=1)
        await s.backend.put(Keyspace.Places, EXCHANGE, record.encoded())
        return await claim(*args, **kwargs)

    executors.claim = late
    for _ in range(2):
        await a.beat(s.replica)
        with pytest.raises(PlaceNotSeenError):
            a.places.check(EXCHANGE)


async def test_the_warehouse_alone_does_not_keep_an_executor_from_other_work(world):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    a = world.machine("a")
    await a.register(s.replica)
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
    assert executors.may_see(WAREHOUSE)  # what the second one sees is not known yet
    await b.beat(s.replica, 2)
    assert executors.may_see(WAREHOUSE)  # its disk may have failed for a moment
    world.clock.advance(11_000)
    await a.beat(s.replica)
    await b.beat(s.replica)
    assert not executors.may_see(WAREHOUSE)
    shutil.move(world.shared / "away", world.shared / "warehouse")
    a.places.look()
    await a.beat(s.replica, 2)
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
    await a.register(s.replica)
    await a.beat(s.replica, 2)
    assert a.sees(root)
    await b.register(s.replica)
    await b.beat(s.replica, 2)
    state, why = states(s)["b"]
    assert state == "alive"
    assert f"{missing} on host-of-b is not the cluster's directory of files (--root): it lacks its id" in why
    with pytest.raises(PlaceNotSeenError) as error:
        b.places.check_path(f"{missing}/table")
    assert error.value.place == root
    missing.rmdir()
    await c.register(s.replica)
    await c.beat(s.replica, 2)
    assert not c.sees(root)
    assert not missing.exists()
    assert s.replica.executors.may_see(root)


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
    await a.register(s.replica)
    with capture_logs() as logs:
        await a.beat(s.replica, 3)
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


async def test_a_scheduler_is_found_by_executors_and_by_other_schedulers(world):
    for name in ("s1", "s2", "s3", "a"):
        world.mount(name)
    first = await world.scheduler("s1")
    await first.look(3)
    second = await world.scheduler("s2")
    await second.look()
    assert not second.own.is_admitted
    await first.look()
    await second.look()
    assert second.own.is_admitted
    a = world.machine("a")
    await a.register(second.replica)
    await a.beat(second.replica)
    await first.stop()
    await second.stop()
    third = await world.scheduler("s3")
    await third.look()
    assert not third.own.is_admitted  # an executor lives that has to find it
    third.own.check()  # it may read meanwhile: the id is the right one, and results have checksums
    await a.beat(third.replica, 2)
    await third.look()
    assert third.own.is_admitted


async def test_a_scheduler_on_a_copy_is_refused(world):
    world.mount("s1")
    first = await world.scheduler("s1")
    await first.look(3)
    shutil.copytree(world.shared, world.tmp_path / "copy")
    world.mount("s2", world.tmp_path / "copy")
    second = await world.scheduler("s2")
    for _ in range(2):
        await second.look()
        await first.look()
    assert not second.own.is_admitted
    world.clock.advance(6_000)
    await second.look()
    with pytest.raises(PlaceNotSeenError, match="is a copy of the cluster's exchange directory"):
        second.own.check()


async def test_a_scheduler_that_loses_its_mount_reads_nothing_at_once_and_comes_back_by_itself(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    s.own.check()
    world.unmount("s")
    with pytest.raises(PlaceNotSeenError, match=r"does not see the exchange directory .* any more"):
        s.own.check()
    await s.look()
    assert not s.own.is_admitted
    world.mount("s")
    await s.look(2)
    assert s.own.is_admitted
    s.own.check()


async def test_a_scheduler_that_cannot_write_a_mark_is_not_admitted_unless_it_may_only_read(world, monkeypatch):
    world.mount("s1")
    first = await world.scheduler("s1")
    await first.look(3)
    await first.stop()
    world.mount("s2")
    second = await world.scheduler("s2")
    error = OSError(errno.ENOSPC, "no space left")

    def opened(self, *_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        await second.look(2)
        assert not second.own.is_admitted
        with pytest.raises(PlaceNotSeenError, match="no space left"):
            second.own.check()
        error = OSError(errno.EROFS, "read-only file system")
        await second.look(2)
        assert second.own.is_admitted
    second.own.check()


async def test_a_scheduler_whose_disk_fails_for_long_is_no_witness_and_needs_one_to_come_back(world, monkeypatch):
    world.mount("s1")
    world.mount("s2")
    first = await world.scheduler("s1")
    await first.look(3)
    mark = first.own._mark
    second = await world.scheduler("s2")
    look, fails = place_files.look, True

    def failing(path, place_id):
        if fails and "/s1/" in path:
            raise OSError(errno.EIO, "input/output error")
        return look(path, place_id)

    monkeypatch.setattr(place_files, "look", failing)
    for _ in range(2):
        await first.look()
        await second.look()
        assert first.own.is_admitted  # for a moment a disk may fail
        assert not second.own.is_admitted
        with pytest.raises(PlaceNotSeenError, match="input/output error"):
            first.own.check()
        world.clock.advance(8_000)
    await first.look()
    assert not first.own.is_admitted
    await second.look()
    assert second.own.is_admitted  # by the generation, since nobody is there to look
    await first.look()
    assert not first.own.is_admitted
    fails = False
    await first.look()
    assert not first.own.is_admitted
    assert first.own._mark not in ("", mark), "what was found before proves nothing now"
    first.own.check()
    await second.look()
    await first.look()
    assert first.own.is_admitted


async def test_an_executor_whose_disk_hangs_is_no_witness_and_comes_back(world, monkeypatch):
    for name in ("s", "a", "b"):
        world.mount(name)
    s = await world.scheduler("s", looks=False)
    a, b = world.machine("a"), world.machine("b")
    await a.register(s.replica)
    await a.beat(s.replica, 3)
    await b.register(s.replica)
    await b.beat(s.replica)
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
    await a.beat(s.replica)
    state, why = states(s)["a"]
    assert (state, "it has not answered for 15 s" in why) == ("no_place", True)
    assert not a.places.may_work
    await b.beat(s.replica, 2)
    assert b.sees()
    may_look.set()
    await hanging
    a._take = takes
    a.places.look()
    for _ in range(3):
        await a.beat(s.replica)
        await b.beat(s.replica)
    await a.beat(s.replica)
    assert a.sees()
    assert states(s)["a"][0] == "alive"


async def test_a_removed_record_is_made_anew_by_the_first_that_looks(world):
    for name in ("s", "a"):
        world.mount(name)
    s = await world.scheduler("s")
    await s.look(3)
    a = world.machine("a")
    await a.register(s.replica)
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
    await a.beat(s.replica, 3)
    assert a.sees()


async def test_a_damaged_record_costs_no_heartbeat(world):
    world.mount("s")
    world.mount("a")
    s = await world.scheduler("s", looks=False)
    await s.backend.put(Keyspace.Places, EXCHANGE, b"{")
    a = world.machine("a")
    with capture_logs() as logs:
        await a.register(s.replica)
        await a.beat(s.replica)
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
    await a.register(s.replica)
    assert s.replica.executors.taking_work() == set()
