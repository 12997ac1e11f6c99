"""A write of unknown outcome is settled by reading: none is lost or done twice."""

import asyncio
import random  # noqa: TID251 seeded
from collections import Counter

import pytest

from onager.errors import OutcomeUnknownError, StateUnavailableError
from onager.state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    Keyspace,
    OutcomeUnknown,
    Put,
)
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted, seeded
from tests.support.waiting import HANGS_S

LOG, HEADS, ACTIVE, DONE = Keyspace.JobLog, Keyspace.JobHeads, Keyspace.ActiveJobs, Keyspace.CompletedJobs
UNKNOWN = [FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_LATE]
RATES = {**dict.fromkeys(UNKNOWN, 0.15), FaultKind.UNAVAILABLE: 0.05, FaultKind.SLOW_ANSWER: 0.1}


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_a_transaction_of_unknown_outcome_is_whole_or_not_there(harness, kind):
    honest = await harness.connect()
    await honest.put_txn([Put(LOG, f"job/{n}", b"") for n in range(3)])
    backend = FaultyBackend(honest, scripted({"put_txn": [kind]}))
    ops = [Put(HEADS, "a", b"1"), Put(HEADS, "b", b"1"), DeleteRange(LOG, "job/"), Delete(HEADS, "c")]
    assert isinstance(await backend.put_txn(ops, expect={(HEADS, "a"): ABSENT}), OutcomeUnknown)
    await backend.settle()
    heads = [item.value for item in await honest.get_from_prefix(HEADS, "")]
    log = await honest.get_from_prefix(LOG, "")
    assert (len(heads), len(log)) == ((0, 3) if kind is FaultKind.UNKNOWN_UNWRITTEN else (2, 0))
    # Whichever it was, the same again changes nothing more, and says so.
    again = await honest.put_txn(ops, expect={(HEADS, "a"): ABSENT})
    assert isinstance(again, Committed if kind is FaultKind.UNKNOWN_UNWRITTEN else Conflict)
    assert [item.value for item in await honest.get_from_prefix(HEADS, "")] == [b"1", b"1"]


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_a_move_of_unknown_outcome_leaves_the_key_in_one_place(harness, kind):
    honest = await harness.connect()
    await honest.put(ACTIVE, "job", b"graph")
    backend = FaultyBackend(honest, scripted({"put_txn": [kind]}))
    assert isinstance(await backend.mv(ACTIVE, "job", DONE), OutcomeUnknown)
    await backend.settle()
    await backend.mv(ACTIVE, "job", DONE)
    assert await honest.get(ACTIVE, "job") is None
    assert (await honest.get(DONE, "job")).value == b"graph"


class Writer:
    """Appends entries to a log that several write: each at the first position that is absent."""

    def __init__(self, backend, number, counts):
        self.backend, self.number, self.counts = backend, number, counts
        self.position = 0
        self.acknowledged: list[bytes] = []

    async def append(self, entry):
        """Return once *entry* is in the log, at one position."""
        while True:
            key = f"log/{self.position:06}"
            if await self._put(key, entry):
                self.acknowledged.append(entry)
                self.counts["acknowledged"] += 1
                return
            self.position += 1

    async def _put(self, key, entry):
        """Return whether *entry* came to be at *key*, or another did."""
        while True:
            self.counts["tried"] += 1
            try:
                result = await self.backend.put_txn([Put(LOG, key, entry)], expect={(LOG, key): ABSENT})
            except StateUnavailableError:
                self.counts["unavailable"] += 1
                continue
            match result:
                case Committed():
                    return True
                case Conflict(found):
                    # It may be what an earlier try of ours wrote after all.
                    return found[LOG, key].value == entry
                case OutcomeUnknown():
                    self.counts["unknown"] += 1  # the same again: only one of them can win


async def test_writes_of_unknown_outcome_are_neither_lost_nor_doubled(harness, tell):
    honest = await harness.connect()
    counts = Counter()
    async with honest.watch(LOG) as events:
        writers = [
            Writer(FaultyBackend(await harness.connect(), seeded(random.Random(n).random, RATES)), n, counts)
            for n in range(4)
        ]

        async def write(writer):
            for n in range(75):
                await writer.append(b"%d/%d" % (writer.number, n))

        await asyncio.gather(*(write(writer) for writer in writers))
        for writer in writers:
            await writer.backend.settle()
        await honest.put(LOG, "end", b"")
        received = []
        async with asyncio.timeout(HANGS_S):
            async for event in events:
                if event.key == "end":
                    break
                received.append(event)
    stored = [item.value for item in await honest.get_from_prefix(LOG, "log/")]
    acknowledged = [entry for writer in writers for entry in writer.acknowledged]
    counts["lost"] = len(set(acknowledged) - set(stored))
    counts["doubled"] = len(stored) - len(set(stored))
    tell(str(dict(counts)))
    assert len(acknowledged) == 300
    assert counts["unknown"] > 100
    assert counts["lost"] == counts["doubled"] == 0
    assert sorted(stored) == sorted(acknowledged)
    # Nothing was put over anything on the way either.
    assert [(event.kind, event.value) for event in received] == [(EventKind.PUT, value) for value in stored]


async def test_a_lease_of_unknown_outcome_can_be_asked_for_again(harness):
    backend = FaultyBackend(await harness.connect(), scripted({"lease": [FaultKind.UNKNOWN_WRITTEN]}))
    with pytest.raises(OutcomeUnknownError):
        await backend.lease(10 * HANGS_S)
    lease = await backend.lease(10 * HANGS_S)
    await backend.put(HEADS, "a", b"", lease=lease.id)
    await backend.revoke(lease.id)
    assert await backend.get(HEADS, "a") is None
