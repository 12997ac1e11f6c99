"""Sessions: changed only as they were read, of one size however often a view is replaced, ended for good."""

import uuid

import pytest

from onager.errors import StateUnavailableError
from onager.protocol import onager_pb2 as pb
from onager.scheduler.connect import sessions as module
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.sessions import Sessions
from onager.state_backend import ABSENT, Keyspace, Put
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted

ANN = SessionKey("ann/of a&b", str(uuid.UUID(int=1)))
NOTHING = ((), {})


@pytest.fixture
def sessions(backend, clock):
    return Sessions(backend, clock, retention_s=3600)


def view(name, command=b"v"):
    return pb.ConnectEntry(kind="view", name=name, command=command)


def of_clone(_):
    """Answer the call that makes a clone."""
    return b""


async def names(sessions, key=ANN):
    return [entry.name for entry in (await sessions.find(key)).message.entries]


async def test_a_session_keeps_its_other_id_and_its_changes_for_every_scheduler(sessions, backend, clock):
    opened = await sessions.open(ANN)
    changed = await sessions.apply(
        opened, pb.ConnectApplied(put=[view("v", b"1"), view("w")], conf={"a": "1"}, database="db"), NOTHING
    )
    other = await Sessions(backend, clock, retention_s=60).open(ANN, opened.record.server_side_session_id)
    assert other.message == changed.message
    assert (other.message.revision, dict(other.message.conf), other.message.database) == (2, {"a": "1"}, "db")
    assert [(e.name, e.command) for e in other.message.entries] == [("v", b"1"), ("w", b"v")]


async def test_who_has_not_read_the_session_as_it_is_changes_nothing(sessions):
    opened = await sessions.open(ANN)
    place = (Keyspace.ConnectOperations, f"{ANN.path}/op")
    extra = ([Put(*place, b"{}")], {place: ABSENT})
    assert await sessions.apply(opened, pb.ConnectApplied(put=[view("v")]), extra) is not None
    assert await sessions.apply(opened, pb.ConnectApplied(put=[view("w")]), NOTHING) is None
    again = await sessions.open(ANN)
    assert await sessions.apply(again, pb.ConnectApplied(put=[view("w")]), extra) is None, "the operation is recorded"
    assert await names(sessions) == ["v"]


async def test_a_view_that_is_replaced_a_thousand_times_is_one(sessions, backend):
    session = await sessions.open(ANN)
    for number in range(1000):
        session = await sessions.apply(session, pb.ConnectApplied(put=[view("v", b"%d" % number)]), NOTHING)
    assert [(e.name, e.command) for e in session.message.entries] == [("v", b"999")]
    assert len(await backend.get_from_prefix(Keyspace.ConnectEntries, f"{ANN.path}/")) == 1


async def test_a_session_that_was_ended_is_never_another_one(sessions, clock):
    opened = await sessions.open(ANN)
    await sessions.apply(opened, pb.ConnectApplied(put=[view("v")]), NOTHING)
    await sessions.close(ANN)
    with pytest.raises(ConnectError, match="SESSION_CLOSED"):
        await sessions.open(ANN)
    clock.advance(3_700_000)
    await sessions.sweep()
    with pytest.raises(ConnectError, match="SESSION_CHANGED"):
        await sessions.open(ANN, opened.record.server_side_session_id)
    assert (await sessions.open(ANN)).record.server_side_session_id != opened.record.server_side_session_id
    assert await names(sessions) == []


async def test_a_session_that_is_used_stays_and_another_one_goes_with_all_that_is_its(sessions, backend, clock):
    old = SessionKey("bob", str(uuid.UUID(int=2)))
    for key in (ANN, old):
        await sessions.apply(await sessions.open(key), pb.ConnectApplied(put=[view("v")]), NOTHING)
        await backend.put(Keyspace.ConnectOperations, f"{key.path}/op", b"{}")
    clock.advance(3_000_000)
    await sessions.open(ANN)
    clock.advance(3_000_000)
    await sessions.sweep()
    for keyspace in (Keyspace.ConnectSessions, Keyspace.ConnectEntries, Keyspace.ConnectOperations):
        assert [item.key.startswith(ANN.path) for item in await backend.get_from_prefix(keyspace, "")] == [True]


async def test_a_clone_is_like_its_model_and_changes_alone(sessions):
    session = await sessions.apply(
        await sessions.open(ANN), pb.ConnectApplied(put=[view("v", b"x")], conf={"a": "1"}), NOTHING
    )
    to = SessionKey(ANN.user, str(uuid.UUID(int=3)))
    made = await sessions.clone(session, to, of_clone)
    assert made.record.server_side_session_id != session.record.server_side_session_id
    await sessions.apply(made, pb.ConnectApplied(removed=[view("v")], put=[view("w")], conf={"a": "2"}), NOTHING)
    assert (await names(sessions), await names(sessions, to)) == (["v"], ["w"])
    with pytest.raises(ConnectError, match="ALREADY_EXISTS"):
        await sessions.clone(session, to, of_clone)


async def test_a_clone_that_is_asked_for_again_is_the_same_one(sessions, backend, clock):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[view("v")]), NOTHING)
    to = SessionKey(ANN.user, str(uuid.UUID(int=3)))
    made = await sessions.clone(session, to, of_clone)
    again = await Sessions(backend, clock, retention_s=60).clone(session, to, of_clone)
    assert again.record.server_side_session_id == made.record.server_side_session_id
    other = await sessions.open(SessionKey(ANN.user, str(uuid.UUID(int=4))))
    with pytest.raises(ConnectError, match="ALREADY_EXISTS"):
        await sessions.clone(other, to, of_clone)
    await sessions.close(to)
    with pytest.raises(ConnectError, match="ALREADY_EXISTS"):
        await sessions.clone(session, to, of_clone)


async def test_a_clone_that_a_dead_scheduler_has_left_is_made_as_its_model_is_now(sessions, backend, clock):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[view("v")]), NOTHING)
    to = SessionKey(ANN.user, str(uuid.UUID(int=3)))
    dying = FaultyBackend(backend, scripted({"put_txn": [None, None, FaultKind.UNAVAILABLE]}))
    with pytest.raises(StateUnavailableError):
        await Sessions(dying, clock, retention_s=3600).clone(session, to, of_clone)
    changed = await sessions.apply(session, pb.ConnectApplied(removed=[view("v")], put=[view("w")]), NOTHING)
    await sessions.clone(changed, to, of_clone)
    assert await names(sessions, to) == ["w"]


@pytest.mark.parametrize("goes_on", ["made by another", "swept"])
@pytest.mark.parametrize("dies_at", ["entries", "end"])
async def test_a_clone_that_a_dead_scheduler_has_left_is_made_or_goes(sessions, backend, clock, dies_at, goes_on):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[view("v")]), NOTHING)
    to = SessionKey(ANN.user, str(uuid.UUID(int=3)))
    written = [None] * ["record", "entries", "end"].index(dies_at)
    dying = FaultyBackend(backend, scripted({"put_txn": [*written, FaultKind.UNAVAILABLE]}))
    with pytest.raises(StateUnavailableError):
        await Sessions(dying, clock, retention_s=3600).clone(session, to, of_clone)
    left = await backend.get_from_prefix(Keyspace.ConnectEntries, f"{to.path}/")
    assert len(left) == (dies_at == "end"), "its entries are there before it is"
    with pytest.raises(ConnectError, match="SESSION_CLOSED"):
        await sessions.open(to)
    if goes_on == "made by another":
        await sessions.clone(session, to, of_clone)
        assert await names(sessions, to) == ["v"]
    clock.advance(3_700_000)
    await sessions.open(ANN)
    await sessions.sweep()
    assert not await backend.get_from_prefix(Keyspace.ConnectEntries, f"{to.path}/")
    assert await sessions.find(to) is None
    assert await names(sessions) == ["v"]


@pytest.mark.parametrize(
    "record", [b"{", b'{"user": "bob", "artifacts": [{"digest": "%s"}]}' % (b"a" * 64), b'{"v": 99}']
)
async def test_a_record_that_cannot_be_read_keeps_no_other_from_its_end(sessions, backend, clock, record):
    old, first = SessionKey("zoe", str(uuid.UUID(int=2))), f"aaa/{uuid.UUID(int=1)}"
    await backend.put(Keyspace.ConnectSessions, first, record)
    await sessions.apply(await sessions.open(old), pb.ConnectApplied(put=[view("v")]), NOTHING)
    clock.advance(3_700_000)
    kept = await sessions.sweep()
    assert [item.key for item in await backend.get_from_prefix(Keyspace.ConnectSessions, "")] == [first]
    assert not await backend.get_from_prefix(Keyspace.ConnectEntries, "")
    assert ("a" * 64 in kept) == (b"digest" in record), "its files stay"


async def test_a_user_has_a_limited_number_of_sessions_and_takes_none_from_others(sessions, monkeypatch):
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    for number in range(3):
        await sessions.open(SessionKey("ann", str(uuid.UUID(int=number))))
    with pytest.raises(ConnectError, match="user 'ann' has 4 sessions"):
        await sessions.open(SessionKey("ann", str(uuid.UUID(int=4))))
    await sessions.open(SessionKey("bob", str(uuid.UUID(int=4))))


@pytest.mark.parametrize(
    ("applied", "what"),
    [
        (pb.ConnectApplied(put=[view(f"v{n}") for n in range(6)]), "views, functions and checkpoints"),
        (pb.ConnectApplied(put=[view("v", bytes(2000))]), "are made of"),
        (pb.ConnectApplied(conf={"k": "v" * 300_000}), "is set in the session"),
        (pb.ConnectApplied(conf={f"k{n}": "v" for n in range(1001)}), "settings"),
    ],
)
async def test_what_a_session_holds_has_limits(sessions, monkeypatch, applied, what):
    monkeypatch.setattr(module, "MAX_ENTRIES", 5)
    monkeypatch.setattr(module, "MAX_ENTRIES_BYTES", 1000)
    session = await sessions.open(ANN)
    with pytest.raises(ConnectError, match=what):
        await sessions.apply(session, applied, NOTHING)


@pytest.mark.parametrize("session_id", ["", "s1", "../../x", "1" * 10_000])
async def test_an_id_that_is_none_is_refused(sessions, session_id):
    with pytest.raises(ConnectError, match=r"INVALID_HANDLE\.FORMAT"):
        await sessions.open(SessionKey("ann", session_id))


@pytest.mark.parametrize("lost", [FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_LATE])
async def test_a_write_of_unknown_outcome_is_settled(backend, clock, lost):
    sessions = Sessions(FaultyBackend(backend, scripted({"put_txn": [lost] * 3 + [None, lost]})), clock, retention_s=60)
    session = await sessions.open(ANN)
    applied = await sessions.apply(session, pb.ConnectApplied(put=[view("v")], conf={"a": "1"}), NOTHING)
    assert dict(applied.message.conf) == {"a": "1"}
    assert await names(sessions) == ["v"]


@pytest.mark.parametrize("lost", [FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_UNWRITTEN])
async def test_a_clone_has_all_views_also_when_the_outcome_of_a_write_is_unknown(sessions, backend, clock, lost):
    session = await sessions.apply(await sessions.open(ANN), pb.ConnectApplied(put=[view("v"), view("w")]), NOTHING)
    cloning = Sessions(FaultyBackend(backend, scripted({"put_txn": [lost, lost]})), clock, retention_s=60)
    to = SessionKey(ANN.user, str(uuid.UUID(int=2)))
    await cloning.clone(session, to, of_clone)
    assert await names(sessions, to) == ["v", "w"]
