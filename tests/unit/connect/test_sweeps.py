"""Sweeps of Spark Connect by two schedulers: one at a time looks at the files, and all look at the sessions."""

import errno
import os
import uuid

import pytest

from onager.clock import ManualClock, SystemClock
from onager.errors import DiskError
from onager.exchange_layout import CHECKPOINTS
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import KEPT
from onager.scheduler.connect.checkpoints import GRACE_MS
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.service import SWEEP_S
from tests.support.disks import FaultyDisk
from tests.unit.scheduler.pair import Pair

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
ROUND_MS = int(1000 * SWEEP_S)
NOTHING = ((), {})


@pytest.fixture
async def pair(clock, tmp_path):
    made = Pair(clock, tmp_path)
    await made.start()
    return made


def orphan(scheduler, clock):
    """Make a file that was a session's until the day before yesterday."""
    folder = scheduler.spark_connect.artifacts._folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ("a" * 64)
    file.write_bytes(b"x")
    at_s = clock.now_ms() / 1000 - 2 * 24 * 3_600
    os.utime(file, (at_s, at_s))
    return file


async def test_in_each_round_one_scheduler_alone_removes_files(pair, clock):
    turns, names = [], list(pair.schedulers)
    for _ in range(24):
        clock.advance(ROUND_MS)
        mine = []
        names.reverse()
        for name in names:
            scheduler = pair.schedulers[name]
            file = orphan(scheduler, clock)
            await scheduler.spark_connect.sweep_in_turn(scheduler.rounds)
            mine += [] if file.exists() else [name]
        turns.append(mine)
    assert {len(mine) for mine in turns} == {1}
    assert len({name for (name,) in turns}) == 2, "who comes first does it"


async def test_what_was_seen_in_the_rounds_of_others_counts_in_its_own(pair, clock, tmp_path):
    folder = tmp_path / CHECKPOINTS / "connect-1"
    folder.mkdir(parents=True)
    sessions = pair.here.spark_connect.sessions

    async def sweep():
        """Do a round of one scheduler; the other one does nothing. Return whether it looked at the files."""
        clock.advance(ROUND_MS)
        file = orphan(pair.here, clock)
        await pair.here.spark_connect.sweep_in_turn(pair.here.rounds)
        return not file.exists()

    kept = pb.ConnectEntry(kind=KEPT, name="connect-1", command=b"c")
    await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[kept]), NOTHING)
    claim = pair.here.rounds.claim

    async def left_to_the_other(*given):
        return not await pair.there.rounds.claim(*given) and await claim(*given)

    pair.here.rounds.claim = left_to_the_other
    assert not await sweep(), "it was a round of the other one"
    pair.here.rounds.claim = claim
    await sessions.close(ANN)
    looks = sum([await sweep() for _ in range(24)])
    assert looks > 1
    assert not folder.exists(), "a checkpoint that is known as one of this cluster"


async def test_files_are_as_old_as_their_share_says_whatever_the_clock_here_says(tmp_path):
    pair = Pair(ManualClock(SystemClock().now_ms() + 2 * 24 * 3_600_000), tmp_path)
    await pair.start()
    folder = pair.here.spark_connect.artifacts._folder
    folder.mkdir()
    (folder / "coming.tmp").write_bytes(b"x")
    await pair.here.spark_connect.sweep(with_files=True)
    assert (folder / "coming.tmp").exists()


async def test_an_error_with_files_keeps_no_checkpoint(pair, clock, tmp_path, monkeypatch):
    folder = tmp_path / CHECKPOINTS / "connect-1"
    folder.mkdir(parents=True)
    connect = pair.here.spark_connect
    connect.checkpoints.note({folder.name})
    await connect.sweep(with_files=True)
    clock.advance(2 * GRACE_MS)
    FaultyDisk(connect.artifacts._folder, monkeypatch).fail(errno.EIO, 0)
    with pytest.raises(DiskError):
        await connect.sweep(with_files=True)
    assert not folder.exists()
