"""Storage levels: reported as a program has asked for them, by any scheduler, and of a limited number of DataFrames."""

import asyncio
import uuid

import pytest

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import AnalyzePlanRequest, StorageLevel
from onager.scheduler.connect import storage_levels
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.sessions import Sessions
from onager.scheduler.connect.storage_levels import level_of, persist, unpersist

ANN = SessionKey("ann", str(uuid.UUID(int=1)))
NONE = StorageLevel(replication=1)
DISK = StorageLevel(use_disk=True, replication=2)
USUAL = StorageLevel(use_disk=True, use_memory=True, deserialized=True, replication=1)


@pytest.fixture
def sessions(backend, clock):
    return Sessions(backend, clock, retention_s=3600)


def asked(relation, level=None):
    return AnalyzePlanRequest.Persist(relation=relation, storage_level=level)


async def levels(sessions, *relations):
    session = await sessions.open(ANN)
    return [level_of(session, relation) for relation in relations]


async def test_a_level_is_reported_until_it_is_taken_back(sessions, backend, clock):
    await persist(sessions, await sessions.open(ANN), asked(b"a", DISK), b"")
    await persist(sessions, await sessions.open(ANN), asked(b"b"), b"")
    other = Sessions(backend, clock, retention_s=3600)
    assert await levels(other, b"a", b"b", b"c") == [DISK, USUAL, NONE]
    await persist(other, await other.open(ANN), asked(b"a", USUAL), b"")
    assert await levels(sessions, b"a") == [DISK], "the first one counts, as in Spark"
    for relation in (b"a", b"c"):
        await unpersist(sessions, await sessions.open(ANN), relation, b"")
    assert await levels(other, b"a", b"b") == [NONE, USUAL]


async def test_what_is_asked_at_once_is_all_remembered(sessions):
    session = await sessions.open(ANN)
    await asyncio.gather(*(persist(sessions, session, asked(b"%d" % n), b"") for n in range(5)))
    assert await levels(sessions, *(b"%d" % n for n in range(5))) == [USUAL] * 5


async def test_of_very_many_the_first_ones_are_forgotten_and_nothing_else(sessions, monkeypatch):
    monkeypatch.setattr(storage_levels, "MAX_LEVELS", 3)
    view = pb.ConnectEntry(kind="view", name="v", command=b"v")
    await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[view], conf={"a": "1"}), ((), {}))
    for n in range(10):
        await persist(sessions, await sessions.open(ANN), asked(b"%d" % n), b"")
    assert await levels(sessions, b"6", b"7", b"9") == [NONE, USUAL, USUAL]
    message = (await sessions.open(ANN)).message
    assert ([e.name for e in message.entries if e.kind == "view"], dict(message.conf)) == (["v"], {"a": "1"})
    assert len(message.entries) == 4
