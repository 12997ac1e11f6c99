"""Leases and what is bound to them, locks, and the fences that make locks safe."""

import asyncio

import pytest

from onager.errors import InvalidRequestError, LeaseExpiredError, LockTimeoutError
from onager.state_backend import Committed, Conflict, Delete, Keyspace, LeaseId, Put
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted
from onager.state_backend.model import Fenced
from tests.support.waiting import HANGS_S

BEATS, HEADS, LOG = Keyspace.Heartbeats, Keyspace.JobHeads, Keyspace.JobLog


async def test_a_bound_key_goes_with_its_lease(harness):
    backend = await harness.connect()
    lease = await backend.lease(2 * harness.ttl_s)
    await backend.put(BEATS, "e1", b"", lease=lease.id)
    await backend.put(BEATS, "e2", b"")
    await harness.let_pass(lease.ttl_s * 0.4)
    assert await backend.get(BEATS, "e1") is not None
    await harness.let_pass(lease.ttl_s * 0.6 + 1)
    assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["e2"]


async def test_any_client_keeps_a_lease_alive_by_its_id(harness):
    one, other = await harness.connect(), await harness.connect()
    lease = await one.lease(2 * harness.ttl_s)
    await one.put(BEATS, "e1", b"", lease=lease.id)
    for _ in range(3):
        await harness.let_pass(lease.ttl_s * 0.5)
        await other.keep_alive(lease.id)
    assert await other.get(BEATS, "e1") is not None


async def test_a_lease_that_is_gone_says_so(harness):
    backend = await harness.connect()
    lease = await backend.lease(harness.ttl_s)
    await harness.let_pass(lease.ttl_s + 1)
    with pytest.raises(LeaseExpiredError):
        await backend.keep_alive(lease.id)
    with pytest.raises(LeaseExpiredError):
        await backend.put(BEATS, "e1", b"", lease=lease.id)
    with pytest.raises(LeaseExpiredError):
        await backend.put_txn([Put(HEADS, "job", b""), Put(BEATS, "e1", b"", LeaseId(12345))])
    assert await backend.get(HEADS, "job") is None
    with pytest.raises(LeaseExpiredError):
        async with backend.lock(HEADS, "sweep", lease.id):
            pass
    await backend.revoke(lease.id)


async def test_leases_outlive_their_client(harness):
    backend = await harness.connect()
    lease = await backend.lease(10 * HANGS_S)
    await backend.put(BEATS, "e1", b"", lease=lease.id)
    await backend.close()
    other = await harness.connect()
    assert await other.get(BEATS, "e1") is not None
    await other.keep_alive(lease.id)
    await other.put(BEATS, "e2", b"", lease=lease.id)
    await other.revoke(lease.id)
    assert len(await other.get_from_prefix(BEATS, "")) == 0


@pytest.mark.parametrize("ttl_s", [0.0004, 0.5, 2.001, 3600])
async def test_a_lease_is_never_shorter_than_asked_for(backend, ttl_s):
    lease = await backend.lease(ttl_s)
    assert ttl_s <= lease.ttl_s < ttl_s + 3
    await backend.revoke(lease.id)
    with pytest.raises(LeaseExpiredError):
        await backend.keep_alive(lease.id)


async def test_revoking_deletes_what_is_bound_and_frees_locks(backend):
    lease, other = await backend.lease(10 * HANGS_S), await backend.lease(10 * HANGS_S)
    await backend.put_txn(
        [Put(BEATS, "e1", b"", lease.id), Put(BEATS, "e2", b"", lease.id), Put(BEATS, "e3", b"", other.id)]
    )
    async with backend.lock(HEADS, "sweep", lease.id):
        await backend.revoke(lease.id)
        assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["e3"]
        async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
            pass


async def test_a_key_put_again_without_the_lease_outlives_it(backend):
    lease, other = await backend.lease(10 * HANGS_S), await backend.lease(10 * HANGS_S)
    for key in ("kept", "moved", "again"):
        await backend.put(BEATS, key, b"", lease=lease.id)
    await backend.put(BEATS, "kept", b"")
    await backend.put(BEATS, "moved", b"", lease=other.id)
    await backend.delete(BEATS, "again")
    await backend.put(BEATS, "again", b"")
    await backend.revoke(lease.id)
    assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["again", "kept", "moved"]
    await backend.revoke(other.id)
    assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["again", "kept"]


async def test_mv_leaves_the_lease_behind(backend):
    lease = await backend.lease(10 * HANGS_S)
    await backend.put(BEATS, "e1", b"v", lease=lease.id)
    await backend.mv(BEATS, "e1", Keyspace.Executors)
    await backend.revoke(lease.id)
    assert (await backend.get(Keyspace.Executors, "e1")).value == b"v"


async def test_an_expired_lease_makes_a_conflict_for_a_writer_that_expected_its_key(harness):
    backend = await harness.connect()
    lease = await backend.lease(harness.ttl_s)
    revision = await backend.put(BEATS, "e1", b"", lease=lease.id)
    await harness.let_pass(lease.ttl_s + 1)
    assert isinstance(await backend.put_txn([Put(HEADS, "x", b"")], expect={(BEATS, "e1"): revision}), Conflict)


async def test_a_lease_without_time_is_refused(backend):
    with pytest.raises(InvalidRequestError):
        await backend.lease(0)


async def test_a_lock_excludes_and_its_tokens_grow(harness):
    clients = [await harness.connect() for _ in range(4)]
    holders = 0
    tokens = []

    async def hold(client):
        nonlocal holders
        lease = await client.lease(10 * HANGS_S)
        for _ in range(5):
            async with client.lock(HEADS, "sweep", lease.id) as token:
                holders += 1
                assert holders == 1
                tokens.append(token.revision)
                await asyncio.sleep(0)
                holders -= 1

    await asyncio.gather(*(hold(client) for client in clients))
    assert len(tokens) == 20
    assert tokens == sorted(set(tokens))


async def test_locks_of_other_names_and_keyspaces_are_free(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with (
        backend.lock(HEADS, "job1", lease.id, timeout_s=0),
        backend.lock(HEADS, "job10", lease.id, timeout_s=0),
        backend.lock(LOG, "job1", lease.id, timeout_s=0),
    ):
        assert await backend.get(HEADS, "job1") is None
        await backend.put(HEADS, "job1", b"a lock is not a key")


@pytest.mark.parametrize("timeout_s", [0, 0.05])
async def test_waiting_for_a_lock_ends(harness, timeout_s):
    one, other = await harness.connect(), await harness.connect()
    lease, other_lease = await one.lease(10 * HANGS_S), await other.lease(10 * HANGS_S)
    async with one.lock(HEADS, "sweep", lease.id):
        with pytest.raises(LockTimeoutError, match="JobHeads/sweep"):
            async with other.lock(HEADS, "sweep", other_lease.id, timeout_s=timeout_s):
                pass
    async with other.lock(HEADS, "sweep", other_lease.id, timeout_s=timeout_s):
        pass


async def test_a_lock_is_released_when_the_block_raises(backend):
    lease = await backend.lease(10 * HANGS_S)
    with pytest.raises(ZeroDivisionError):
        async with backend.lock(HEADS, "sweep", lease.id):
            raise ZeroDivisionError
    async with backend.lock(HEADS, "sweep", lease.id, timeout_s=0):
        pass


async def test_a_cancelled_waiter_leaves_no_lock_behind(harness):
    backend = await harness.connect()
    lease = await backend.lease(10 * HANGS_S)

    async def hold():
        async with backend.lock(HEADS, "sweep", lease.id):
            await asyncio.sleep(60)

    for turns in range(8):
        task = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with backend.lock(HEADS, "sweep", lease.id, timeout_s=HANGS_S):
            pass


async def test_a_waiter_cancelled_with_its_lease_gone_is_cancelled(harness):
    backend = await harness.connect()
    lease = await backend.lease(10 * HANGS_S)
    await backend.revoke(lease.id)

    async def hold():
        async with backend.lock(HEADS, "sweep", lease.id):
            pass

    for turns in range(1, 5):
        task = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, LeaseExpiredError)):
            await task


async def test_a_lock_is_not_re_entrant(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(HEADS, "sweep", lease.id):
        with pytest.raises(LockTimeoutError):
            async with backend.lock(HEADS, "sweep", lease.id, timeout_s=0):
                pass


@pytest.mark.parametrize("key", ["a/b", "a/", "/", "\0", "日本/語", "schema", "🐫"])
async def test_locks_have_names_of_any_characters(backend, key):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(HEADS, key, lease.id, timeout_s=0) as token:
        assert (token.keyspace, token.key, token.lease) == (HEADS, key, lease.id)
        async with backend.lock(HEADS, key + "0", lease.id, timeout_s=0):
            assert isinstance(await backend.put_txn([Put(HEADS, key, b"")], fence=[token]), Committed)
        with pytest.raises(LockTimeoutError):
            async with backend.lock(HEADS, key, lease.id, timeout_s=0):
                pass
    with pytest.raises(InvalidRequestError):
        async with backend.lock(HEADS, "", lease.id):
            pass


async def test_a_lost_release_is_compensated_by_the_end_of_the_lease(harness):
    backend = await harness.connect()
    lease, other = await backend.lease(harness.ttl_s), await backend.lease(10 * HANGS_S)
    faulty = FaultyBackend(backend, scripted({"put_txn": [None, FaultKind.UNAVAILABLE]}))
    async with faulty.lock(HEADS, "sweep", lease.id) as token:
        pass  # leaving raises nothing
    with pytest.raises(LockTimeoutError):
        async with backend.lock(HEADS, "sweep", other.id, timeout_s=0):
            pass
    assert isinstance(await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]), Committed)
    await harness.let_pass(lease.ttl_s + 1)
    assert await backend.put_txn([Put(HEADS, "a", b"")], fence=[token]) == Fenced(token)
    async with backend.lock(HEADS, "sweep", other.id, timeout_s=HANGS_S):
        pass


async def test_of_several_fences_the_broken_one_is_named(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(HEADS, "one", lease.id) as one:
        async with backend.lock(HEADS, "two", lease.id) as two:
            assert isinstance(await backend.put_txn([Put(LOG, "a", b"")], fence=[one, two]), Committed)
        assert await backend.put_txn([Put(LOG, "a", b"")], fence=[one, two]) == Fenced(two)
        async with backend.lock(HEADS, "two", lease.id) as again:
            assert again.revision > two.revision
            assert await backend.put_txn([Put(LOG, "a", b"")], fence=[two, one]) == Fenced(two)
            assert isinstance(await backend.put_txn([Put(LOG, "a", b"")], fence=[again, one]), Committed)


async def test_revoking_frees_many_keys_at_once(backend):
    lease = await backend.lease(10 * HANGS_S)
    await backend.put_all(Put(BEATS, f"e{n:03}", b"", lease.id) for n in range(300))
    await backend.put(BEATS, "stays", b"")
    await backend.revoke(lease.id)
    assert [item.key for item in await backend.get_from_prefix(BEATS, "")] == ["stays"]


async def test_a_fence_holds_while_the_lock_is_held(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(HEADS, "sweep", lease.id) as token:
        assert isinstance(await backend.put_txn([Put(HEADS, "a", b"1")], fence=[token]), Committed)
    assert await backend.put_txn([Put(HEADS, "a", b"2")], fence=[token]) == Fenced(token)
    assert await backend.put_txn([Delete(HEADS, "a")], fence=[token], expect={(HEADS, "a"): 999}) == Fenced(token)
    assert (await backend.get(HEADS, "a")).value == b"1"


async def test_a_zombie_past_its_lease_is_fenced_and_cannot_unlock(harness):
    zombie, successor = await harness.connect(), await harness.connect()
    lease = await zombie.lease(harness.ttl_s)
    async with zombie.lock(HEADS, "sweep", lease.id) as stale:
        await harness.let_pass(lease.ttl_s + 1)  # paused past its lease
        successor_lease = await successor.lease(10 * HANGS_S)
        async with successor.lock(HEADS, "sweep", successor_lease.id, timeout_s=0) as token:
            assert token.revision > stale.revision
            await successor.put_txn([Put(HEADS, "a", b"successor")], fence=[token])
            assert await zombie.put_txn([Put(HEADS, "a", b"zombie")], fence=[stale]) == Fenced(stale)
            # Without the fence the zombie's write goes through: the fence is what keeps it out.
            assert isinstance(await zombie.put_txn([Put(LOG, "a", b"zombie")]), Committed)
            third = await successor.lease(10 * HANGS_S)
            await zombie._release(stale)
            with pytest.raises(LockTimeoutError):
                async with successor.lock(HEADS, "sweep", third.id, timeout_s=0):
                    pass
    assert (await successor.get(HEADS, "a")).value == b"successor"


async def test_a_waiter_gets_the_lock_when_the_holders_lease_ends(harness):
    one, other = await harness.connect(), await harness.connect()
    lease, other_lease = await one.lease(harness.ttl_s), await other.lease(10 * HANGS_S)
    async with one.lock(HEADS, "sweep", lease.id):

        async def wait():
            async with other.lock(HEADS, "sweep", other_lease.id) as token:
                return token

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)  # no store tells that somebody waits
        assert not waiting.done()
        await harness.let_pass(lease.ttl_s + 1)
        assert (await asyncio.wait_for(waiting, HANGS_S)).lease == other_lease.id


async def test_a_waiter_learns_that_its_own_lease_ended(harness):
    one, other = await harness.connect(), await harness.connect()
    lease, short = await one.lease(10 * HANGS_S), await other.lease(harness.ttl_s)
    async with one.lock(HEADS, "sweep", lease.id):

        async def wait():
            async with other.lock(HEADS, "sweep", short.id):
                pass

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)  # no store tells that somebody waits
        await harness.let_pass(short.ttl_s + 1)
        with pytest.raises(LeaseExpiredError):
            await asyncio.wait_for(waiting, HANGS_S)
