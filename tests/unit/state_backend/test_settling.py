"""Transactions whose outcome is known in the end, and decisions that are made anew when others were first."""

import pytest

from onager.clock import ManualClock
from onager.errors import InvalidRequestError, LeaseExpiredError, OutcomeUnknownError, StateUnavailableError
from onager.state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    Keyspace,
    Move,
    Put,
    Write,
    commit_settled,
    transact,
    transactions,
)
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted
from onager.state_backend.memory import MemoryBackend, MemoryStore

HEADS, ACTIVE, DONE = Keyspace.JobHeads, Keyspace.ActiveJobs, Keyspace.CompletedJobs
A = (HEADS, "a")
UNKNOWN = [FaultKind.UNKNOWN_UNWRITTEN, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_LATE]


@pytest.fixture
async def honest():
    async with MemoryBackend(MemoryStore(ManualClock())) as backend:
        yield backend


def faulty(honest, *faults):
    return FaultyBackend(honest, scripted({"put_txn": faults}))


@pytest.mark.parametrize("first", UNKNOWN)
@pytest.mark.parametrize("second", [None, *UNKNOWN])
async def test_an_unknown_outcome_is_settled_and_written_once(honest, first, second):
    backend = faulty(honest, first, second)
    written = await commit_settled(backend, [Put(*A, b"mine")], {A: ABSENT})
    await backend.settle()
    found = await honest.get(*A)
    assert written == Committed(found.mod_revision)
    assert (found.value, found.mod_revision) == (b"mine", 1)


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("ops", [[Delete(*A)], [Move(HEADS, "a", DONE, b"new")]])
async def test_a_key_that_went_by_the_own_write_is_no_conflict(honest, kind, ops):
    expect = {A: await honest.put(*A, b"old")} | ({(DONE, "a"): ABSENT} if isinstance(ops[0], Move) else {})
    backend = faulty(honest, kind)
    assert isinstance(await commit_settled(backend, ops, expect), Committed)
    await backend.settle()
    assert await honest.get(*A) is None


async def test_what_another_wrote_meanwhile_is_not_taken_for_the_own_write(honest):
    theirs = [Put(*A, b"another's")]
    result = await overtaken(honest, FaultKind.UNKNOWN_UNWRITTEN, [Put(*A, b"mine")], {A: ABSENT}, theirs)
    assert isinstance(result, Conflict)
    assert result.found[A].value == b"another's"


async def test_a_move_that_another_made_is_not_taken_for_the_own_one(honest):
    revision = await honest.put(ACTIVE, "a", b"old")
    await honest.put_txn([Move(ACTIVE, "a", DONE, b"other")], expect={(ACTIVE, "a"): revision, (DONE, "a"): ABSENT})
    expect = {(ACTIVE, "a"): revision, (DONE, "a"): ABSENT}
    backend = faulty(honest, FaultKind.UNKNOWN_UNWRITTEN)
    assert isinstance(await commit_settled(backend, [Move(ACTIVE, "a", DONE, b"mine")], expect), Conflict)


@pytest.mark.parametrize("expect", [{}, {A: 1}, {(DONE, "a"): ABSENT}, {A: ABSENT, (DONE, "a"): ABSENT}])
async def test_a_move_that_expects_too_little_is_refused(honest, expect):
    await honest.put(*A, b"v")
    with pytest.raises(InvalidRequestError, match="has to expect its revision"):
        await honest.put_txn([Move(HEADS, "a", DONE, b"new")], expect=expect)


class Overtaken(FaultyBackend):
    """After a write of unknown outcome another one writes *theirs*."""

    theirs: tuple = ()

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        if self.met and self.theirs:
            await self.inner.put_all(self.theirs)
            self.theirs = ()
        return result


async def overtaken(honest, kind, ops, expect, theirs):
    backend = Overtaken(honest, scripted({"put_txn": [kind]}))
    backend.inner, backend.theirs = honest, theirs
    return await commit_settled(backend, ops, expect)


async def test_an_equal_value_beside_a_job_is_not_taken_for_its_end(honest):
    """Two jobs make one database: the record beside has no writer's name in it."""
    revision, beside = await honest.put(ACTIVE, "a", b"running"), (Keyspace.Catalog, "d")
    ops = [Put(*beside, b"made"), Move(ACTIVE, "a", DONE, b"ended")]
    expect = {(ACTIVE, "a"): revision, (DONE, "a"): ABSENT, beside: ABSENT}
    theirs = [Put(*beside, b"made")]
    assert isinstance(await overtaken(honest, FaultKind.UNKNOWN_UNWRITTEN, ops, expect, theirs), Conflict)
    assert (await honest.get(ACTIVE, "a")).value == b"running"


async def test_the_own_end_of_a_job_stays_its_own_whatever_is_written_beside_it_later(honest):
    revision, beside = await honest.put(ACTIVE, "a", b"running"), (Keyspace.Catalog, "d")
    ops = [Put(*beside, b"made"), Move(ACTIVE, "a", DONE, b"ended")]
    expect = {(ACTIVE, "a"): revision, (DONE, "a"): ABSENT, beside: ABSENT}
    theirs = [Put(*beside, b"altered")]
    assert isinstance(await overtaken(honest, FaultKind.UNKNOWN_WRITTEN, ops, expect, theirs), Committed)


async def test_another_s_end_of_a_job_is_not_the_own_one_if_both_write_the_same_beside_it(honest):
    revision, beside = await honest.put(ACTIVE, "a", b"running"), (Keyspace.Catalog, "d")
    ops = [Put(*beside, b"made"), Move(ACTIVE, "a", DONE, b"ended by me")]
    expect = {(ACTIVE, "a"): revision, (DONE, "a"): ABSENT, beside: ABSENT}
    theirs = [Put(*beside, b"made"), Put(DONE, "a", b"ended by another"), Delete(ACTIVE, "a")]
    assert isinstance(await overtaken(honest, FaultKind.UNKNOWN_UNWRITTEN, ops, expect, theirs), Conflict)


async def test_one_of_two_records_that_another_wrote_equally_is_not_taken_for_both(honest):
    b = (HEADS, "b")
    ops, expect = [Put(*A, b"one"), Put(*b, b"two")], {A: ABSENT, b: ABSENT}
    assert isinstance(await overtaken(honest, FaultKind.UNKNOWN_UNWRITTEN, ops, expect, [Put(*A, b"one")]), Conflict)
    assert await honest.get(*b) is None


async def test_a_store_that_goes_away_after_an_unknown_outcome_leaves_it_unknown(honest):
    with pytest.raises(OutcomeUnknownError, match="may have been written"):
        await commit_settled(faulty(honest, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNAVAILABLE), [Put(*A, b"")], {})
    with pytest.raises(StateUnavailableError):
        await commit_settled(faulty(honest, FaultKind.UNAVAILABLE), [Put(*A, b"")], {})


async def test_a_store_that_never_says_is_asked_a_limited_number_of_times(honest, monkeypatch):
    monkeypatch.setattr(transactions, "_PAUSE_S", 0)
    backend = faulty(honest, *[FaultKind.UNKNOWN_UNWRITTEN] * 99)
    with pytest.raises(OutcomeUnknownError, match="could not be settled in 20 tries"):
        await commit_settled(backend, [Put(*A, b"")], {A: ABSENT})


async def test_a_lost_lock_is_an_error(honest):
    lease = await honest.lease(10)
    async with honest.lock(*A, lease.id) as token:
        pass
    with pytest.raises(LeaseExpiredError, match="JobHeads/a is lost"):
        await commit_settled(honest, [Put(*A, b"")], {}, [token])


def number_in(found):
    return int(found.value.split()[0]) if found else 0


async def count(backend, honest, others=0, most=1_000):
    """Add one to a number below *most*, while others add one *others* times in between; return the number."""
    left = [others]

    async def read():
        found = await honest.get(*A)
        if left[0]:
            left[0] -= 1
            await honest.put(*A, b"%d others" % (number_in(found) + 1))
        return found

    def decide(found):
        number = number_in(found)
        if number == most:
            return number
        # The value names its writer: others may come to the same number.
        put = Put(*A, b"%d mine" % (number + 1))
        return Write([put], {A: found.mod_revision if found else ABSENT}, lambda _: number + 1)

    return await transact(backend, "the number", read, decide)


@pytest.mark.parametrize("kind", [None, *UNKNOWN])
@pytest.mark.parametrize("others", [0, 1, 3])
async def test_a_decision_is_made_anew_after_each_conflict(honest, kind, others):
    backend = faulty(honest, kind)
    assert await count(backend, honest, others) == others + 1
    await backend.settle()
    assert (await honest.get(*A)).value == b"%d mine" % (others + 1)


async def test_a_decision_to_write_nothing_is_the_result(honest):
    await honest.put(*A, b"9 others")
    assert await count(honest, honest, most=9) == 9
    assert (await honest.get(*A)).mod_revision == 1


async def test_who_is_never_first_gets_an_error_that_says_so(honest, monkeypatch):
    monkeypatch.setattr(transactions, "_PAUSE_S", 0)
    with pytest.raises(StateUnavailableError, match="the number changes too often: others were first 20 times"):
        await count(honest, honest, others=99)
