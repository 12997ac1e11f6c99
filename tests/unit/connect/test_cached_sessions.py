"""What sessions cache: limited in number, and who learns of what is not cached any more."""

import uuid

import pytest

from onager.protocol import onager_pb2 as pb
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.records import MAX_CACHES, SessionKey
from onager.scheduler.connect.sessions import Sessions

ANN, CLONE = (SessionKey("ann", str(uuid.UUID(int=number))) for number in (1, 2))
NOTHING = ((), {})


@pytest.fixture
def gone():
    return []


@pytest.fixture
def sessions(backend, clock, gone):
    async def uncached(cache_ids):
        gone.append(sorted(cache_ids))

    return Sessions(backend, clock, retention_s=3600, on_uncached=uncached)


def caches(*names):
    return [pb.ConnectEntry(kind="cache", name=name, command=b"c") for name in names]


async def test_what_a_session_gives_back_is_known_at_once(sessions, gone):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=caches("a", "b", "c")), NOTHING)
    session = await sessions.apply(session, pb.ConnectApplied(removed=caches("b")), NOTHING)
    assert gone == [["b"]]
    assert await sessions.sweep() >= {"a", "c"}
    await sessions.close(ANN)
    assert gone == [["b"], ["a", "c"]]
    assert not {"a", "b", "c"} & await sessions.sweep()


async def test_what_a_clone_has_stays_until_both_have_ended(sessions, gone):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=caches("a", "b")), NOTHING)
    clone = await sessions.clone(session, CLONE, lambda _: b"")
    await sessions.apply(clone, pb.ConnectApplied(removed=caches("a")), NOTHING)
    assert gone == [["a"]], "as in Spark, where all sessions share what is cached"
    await sessions.close(ANN)
    assert gone == [["a"], ["a"]]
    await sessions.close(CLONE)
    assert gone == [["a"], ["a"], ["b"]]


async def test_a_session_caches_a_limited_number(sessions):
    most = caches(*(f"c{number}" for number in range(MAX_CACHES)))
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=most), NOTHING)
    with pytest.raises(ConnectError, match="unpersist some of them"):
        await sessions.apply(session, pb.ConnectApplied(put=caches("one more")), NOTHING)
