"""The exchange directory, as schedulers see it: they are admitted like executors, and lose it like them."""

import asyncio
import errno
import os
import shutil
import uuid
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from onager import place_files
from onager.errors import PlaceNotSeenError
from onager.exchange_layout import CONNECT_ARTIFACTS
from onager.protocol.spark_connect import request_of
from onager.scheduler.connect.records import SessionKey
from onager.state_backend import Keyspace, OutcomeUnknown


async def both_started(world):
    """Return two schedulers that have looked at the same times."""
    both = [await world.scheduler(name) for name in ("s1", "s2")]
    for _ in range(6):
        await asyncio.gather(*(each.look() for each in both))
    return both


async def test_two_schedulers_that_start_first_at_once_on_one_directory_are_both_admitted(world):
    world.mount("s1")
    world.mount("s2")
    first, second = await both_started(world)
    assert first.own.is_admitted
    assert second.own.is_admitted
    first.own.check()
    second.own.check()


async def test_a_scheduler_whose_first_record_got_no_answer_keeps_the_id_that_it_made(world, monkeypatch):
    world.mount("s1")
    first = await world.scheduler("s1")
    backend = first.app._backend
    commit, removed = backend._commit, []

    async def loses_the_answer(ops, expect):
        result = await commit(ops, expect)
        if any(op.keyspace is Keyspace.Places for op in ops) and not removed:
            monkeypatch.setattr(backend, "_commit", commit)
            return OutcomeUnknown("the answer was lost")
        return result

    monkeypatch.setattr(backend, "_commit", loses_the_answer)
    monkeypatch.setattr(place_files, "remove_id", lambda *given: removed.append(given))
    await first.look(3)
    assert not removed
    assert first.own.is_admitted
    first.own.check()


async def test_two_schedulers_that_start_first_at_once_on_two_directories_one_serves(world):
    world.mount("s1")
    world.unmount("s2")
    first, second = await both_started(world)
    refused = [s for s in (first, second) if not s.own.is_admitted]
    assert len(refused) == 1
    with pytest.raises(PlaceNotSeenError, match=r"reads nothing there.*is not the cluster's exchange directory"):
        refused[0].own.check()


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
    await a.register(second.app)
    await a.beat(second.app)
    await first.stop()
    await second.stop()
    third = await world.scheduler("s3")
    await third.look()
    assert not third.own.is_admitted  # an executor lives that has to find it
    third.own.check()  # it may read meanwhile: the id is the right one, and results have checksums
    await a.beat(third.app, 2)
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
    with capture_logs() as logs:
        await second.look()
    assert "place_not_seen" not in [entry["event"] for entry in logs], "who has to find its mark may have died just now"
    with pytest.raises(
        PlaceNotSeenError, match="no process that sees it has found yet what this scheduler has written"
    ):
        second.own.check()
    world.clock.advance(10_000)
    with capture_logs() as logs:
        await second.look()
    assert "place_not_seen" in [entry["event"] for entry in logs]
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


async def test_a_scheduler_that_has_lost_its_mount_reads_keeps_and_removes_nothing_there(world):
    world.mount("s")
    s = await world.scheduler("s")
    await s.look(3)
    connect = s.app.spark_connect
    session = await connect.sessions.open(SessionKey("ann", str(uuid.UUID(int=1))))
    upload = request_of("AddArtifacts")(session_id=session.key.session_id)
    upload.batch.artifacts.add(name="files/a").data.data = b"a"
    folder = world.unmount("s") / "exchange" / CONNECT_ARTIFACTS
    folder.mkdir()
    (folder / "old").touch()
    os.utime(folder / "old", (0, 0))
    for act in (
        lambda: connect.artifacts.add(session, upload, nothing()),
        lambda: connect.artifacts.sweep(()),
        lambda: asyncio.to_thread(s.app.results.check_exchange),
    ):
        with pytest.raises(PlaceNotSeenError):
            await act()
    assert (folder / "old").exists()
    assert not (await connect.sessions.find(session.key)).record.artifacts


async def nothing():
    for request in ():
        yield request


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
