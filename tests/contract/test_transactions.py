"""put_txn, mv, and the limits of a request."""

import asyncio
import random  # noqa: TID251 seeded

import pytest

from onager.errors import InvalidRequestError, LimitExceededError
from onager.state_backend import (
    ABSENT,
    MAX_REQUEST_BYTES,
    MAX_TXN_OPS,
    VALUE_CHUNK_BYTES,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    KeyRange,
    Keyspace,
    KeyValue,
    Put,
    split_value,
)
from onager.state_backend.forwarding import ForwardingBackend
from onager.state_backend.limits import OP_OVERHEAD_BYTES, request_bytes
from onager.state_backend.model import Fenced
from tests.support.waiting import HANGS_S

LOG, HEADS, ACTIVE, DONE = Keyspace.JobLog, Keyspace.JobHeads, Keyspace.ActiveJobs, Keyspace.CompletedJobs


async def test_all_puts_of_a_commit_share_its_revision(backend):
    result = await backend.put_txn([Put(HEADS, "a", b"1"), Put(LOG, "a/1", b"2")])
    assert isinstance(result, Committed)
    assert (
        (await backend.get(HEADS, "a")).mod_revision == (await backend.get(LOG, "a/1")).mod_revision == result.revision
    )


async def test_a_commit_puts_and_deletes_at_once(backend):
    await backend.put_txn([Put(LOG, f"job/{n}", b"") for n in range(5)])
    await backend.put(HEADS, "old", b"")
    result = await backend.put_txn(
        [Put(HEADS, "new", b""), Delete(HEADS, "old"), Delete(HEADS, "never"), DeleteRange(LOG, "job/")]
    )
    assert isinstance(result, Committed)
    assert result.deleted == 6
    assert [item.key for item in await backend.get_from_prefix(HEADS, "")] == ["new"]
    assert len(await backend.get_from_prefix(LOG, "")) == 0


async def test_a_commit_that_changes_nothing_keeps_the_revision(backend):
    revision = await backend.put(HEADS, "a", b"")
    assert await backend.put_txn([Delete(HEADS, "b"), DeleteRange(LOG, "")]) == Committed(revision, 0)
    assert await backend.put_txn([], expect={(HEADS, "a"): revision}) == Committed(revision, 0)
    assert (await backend.get_from_prefix(HEADS, "")).revision == revision


async def test_a_conflict_writes_nothing_and_tells_what_it_found(backend):
    await backend.put(HEADS, "a", b"old")
    revision = await backend.put(HEADS, "a", b"new")
    result = await backend.put_txn(
        [Put(LOG, "a/1", b""), Delete(HEADS, "a")],
        expect={(HEADS, "a"): revision - 1, (LOG, "a/1"): ABSENT},
    )
    assert result == Conflict({(HEADS, "a"): KeyValue("a", b"new", revision), (LOG, "a/1"): None}, revision)
    assert await backend.get(LOG, "a/1") is None
    assert (await backend.get(HEADS, "a")).value == b"new"


async def test_a_conflict_tells_all_that_was_found_however_large(backend):
    for n in range(6):
        await backend.put(LOG, f"{n}", b"%d" % n + bytes(1_000_000))
    result = await backend.put_txn([Put(HEADS, "a", b"")], expect={(LOG, f"{n}"): ABSENT for n in range(8)})
    assert isinstance(result, Conflict)
    found = {key: None if item is None else item.value[:1] for (_, key), item in result.found.items()}
    assert found == {f"{n}": b"%d" % n if n < 6 else None for n in range(8)}
    assert await backend.get(HEADS, "a") is None


async def test_one_broken_condition_of_128_writes_nothing(backend):
    ops = [Put(LOG, f"{n}", b"") for n in range(MAX_TXN_OPS - 1)]
    await backend.put(HEADS, "127", b"")
    for expect in ({(HEADS, f"{n}"): ABSENT for n in range(MAX_TXN_OPS)}, {(HEADS, "127"): ABSENT}):
        result = await backend.put_txn([*ops, Delete(HEADS, "127")], expect=expect)
        assert isinstance(result, Conflict)
        assert set(result.found) == set(expect)
    assert len(await backend.get_from_prefix(LOG, "")) == 0
    assert await backend.get(HEADS, "127") is not None


async def test_absent_and_revision_are_distinguished(backend):
    revision = await backend.put(HEADS, "a", b"")
    assert isinstance(await backend.put_txn([Put(LOG, "x", b"")], expect={(HEADS, "a"): ABSENT}), Conflict)
    assert isinstance(await backend.put_txn([Put(LOG, "x", b"")], expect={(HEADS, "b"): revision}), Conflict)
    assert isinstance(await backend.put_txn([Put(LOG, "x", b"")], expect={(HEADS, "b"): ABSENT}), Committed)
    await backend.delete(HEADS, "a")
    assert isinstance(await backend.put_txn([Put(LOG, "y", b"")], expect={(HEADS, "a"): revision}), Conflict)
    assert isinstance(await backend.put_txn([Put(LOG, "y", b"")], expect={(HEADS, "a"): ABSENT}), Committed)


async def test_a_key_put_again_with_the_same_value_has_changed(backend):
    revision = await backend.put(HEADS, "a", b"same")
    await backend.put(HEADS, "a", b"same")
    assert isinstance(await backend.put_txn([Put(HEADS, "a", b"x")], expect={(HEADS, "a"): revision}), Conflict)


async def test_of_two_clients_racing_for_a_key_one_wins(harness):
    clients = [await harness.connect() for _ in range(4)]
    for seq in range(50):
        results = await asyncio.gather(
            *(
                client.put_txn([Put(LOG, f"job/{seq}", b"%d" % n)], expect={(LOG, f"job/{seq}"): ABSENT})
                for n, client in enumerate(clients)
            )
        )
        winners = [n for n, result in enumerate(results) if isinstance(result, Committed)]
        assert len(winners) == 1
        stored = await clients[0].get(LOG, f"job/{seq}")
        assert stored.value == b"%d" % winners[0]
        for result in results:
            if isinstance(result, Conflict):
                assert result.found[LOG, f"job/{seq}"] == stored


async def test_compare_and_set_loses_no_increment(harness):
    clients = [await harness.connect() for _ in range(4)]
    await clients[0].put(HEADS, "n", b"0")

    async def increment(client, times):
        while times:
            now = await client.get(HEADS, "n")
            result = await client.put_txn(
                [Put(HEADS, "n", b"%d" % (int(now.value) + 1))], expect={(HEADS, "n"): now.mod_revision}
            )
            times -= isinstance(result, Committed)

    await asyncio.gather(*(increment(client, 50) for client in clients))
    assert (await clients[0].get(HEADS, "n")).value == b"200"


@pytest.mark.parametrize(
    "ops",
    [
        [Put(HEADS, "a", b"1"), Put(HEADS, "a", b"2")],
        [Put(HEADS, "a", b"1"), Delete(HEADS, "a")],
        [Put(LOG, "job/1", b"1"), DeleteRange(LOG, "job/")],
        [DeleteRange(LOG, ""), Put(LOG, "job/1", b"1")],
    ],
)
async def test_a_key_written_twice_in_one_transaction_is_refused(backend, ops):
    with pytest.raises(InvalidRequestError, match="in one transaction"):
        await backend.put_txn(ops)
    assert len(await backend.get_from_prefix(HEADS, "")) == 0


async def test_mv_moves_value_and_name_in_one_commit(backend):
    await backend.put(ACTIVE, "job", b"graph")
    result = await backend.mv(ACTIVE, "job", DONE)
    assert isinstance(result, Committed)
    seen = await backend.read_txn([(ACTIVE, "job"), (DONE, "job")])
    assert seen.values == {(ACTIVE, "job"): None, (DONE, "job"): KeyValue("job", b"graph", result.revision)}


async def test_mv_of_a_missing_key_conflicts(backend):
    result = await backend.mv(ACTIVE, "job", DONE)
    assert isinstance(result, Conflict)
    assert result.found == {(ACTIVE, "job"): None, (DONE, "job"): None}


async def test_mv_onto_a_key_that_exists_conflicts_and_leaves_both(backend):
    await backend.put(ACTIVE, "job", b"new")
    await backend.put(DONE, "job", b"old")
    result = await backend.mv(ACTIVE, "job", DONE)
    assert isinstance(result, Conflict)
    assert result.found[DONE, "job"].value == b"old"
    assert (await backend.get(ACTIVE, "job")).value == b"new"


async def test_mv_of_a_source_that_changed_conflicts(backend):
    revision = await backend.put(ACTIVE, "job", b"1")
    await backend.put(ACTIVE, "job", b"2")
    result = await backend.mv(ACTIVE, "job", DONE, expected_revision=revision)
    assert isinstance(result, Conflict)
    assert result.found[ACTIVE, "job"].value == b"2"
    assert isinstance(await backend.mv(ACTIVE, "job", DONE, expected_revision=revision + 1), Committed)
    with pytest.raises(InvalidRequestError):
        await backend.mv(DONE, "job", DONE)


class Overtaken(ForwardingBackend):
    """Lets *overtake* do something between what a call reads and what it writes."""

    def __init__(self, inner, overtake):
        super().__init__(inner)
        self.overtake = overtake

    async def _commit(self, ops, expect):
        await self.overtake()
        return await super()._commit(ops, expect)


@pytest.mark.parametrize("change", ["put again", "deleted", "target put", "moved"])
async def test_mv_of_a_source_that_changes_under_the_move_conflicts(harness, change):
    backend, other = await harness.connect(), await harness.connect()
    await backend.put(ACTIVE, "job", b"1")

    async def overtake():
        match change:
            case "put again":
                await other.put(ACTIVE, "job", b"2")
            case "deleted":
                await other.delete(ACTIVE, "job")
            case "target put":
                await other.put(DONE, "job", b"2")
            case "moved":
                await other.mv(ACTIVE, "job", Keyspace.FailedJobs)

    result = await Overtaken(backend, overtake).mv(ACTIVE, "job", DONE)
    assert isinstance(result, Conflict)
    found = {keyspace: None if item is None else item.value for (keyspace, _), item in result.found.items()}
    assert (
        found
        == {
            "put again": {ACTIVE: b"2", DONE: None},
            "deleted": {ACTIVE: None, DONE: None},
            "target put": {ACTIVE: b"1", DONE: b"2"},
            "moved": {ACTIVE: None, DONE: None},
        }[change]
    )
    now = await backend.read_txn([(ACTIVE, "job"), (DONE, "job")])
    assert {keyspace: None if item is None else item.value for (keyspace, _), item in now.values.items()} == found


async def test_mv_is_fenced(backend):
    await backend.put(ACTIVE, "job", b"1")
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(ACTIVE, "job", lease.id) as token:
        pass
    assert await backend.mv(ACTIVE, "job", DONE, fence=[token]) == Fenced(token)
    assert (await backend.get(ACTIVE, "job")).value == b"1"
    async with backend.lock(ACTIVE, "job", lease.id) as token:
        assert isinstance(await backend.mv(ACTIVE, "job", DONE, fence=[token]), Committed)


async def test_of_concurrent_moves_one_wins(harness):
    clients = [await harness.connect() for _ in range(4)]
    await clients[0].put(ACTIVE, "job", b"graph")
    targets = [DONE, Keyspace.FailedJobs] * 2
    results = await asyncio.gather(*(c.mv(ACTIVE, "job", t) for c, t in zip(clients, targets, strict=True)))
    assert sum(isinstance(result, Committed) for result in results) == 1
    seen = await clients[0].read_txn(ranges=[KeyRange(ACTIVE), KeyRange(DONE), KeyRange(Keyspace.FailedJobs)])
    assert sum(len(page) for page in seen.ranges) == 1


async def test_limits_are_refused_before_anything_is_written(backend):
    with pytest.raises(LimitExceededError, match="129 operations"):
        await backend.put_txn([Put(LOG, f"{n}", b"") for n in range(MAX_TXN_OPS + 1)])
    with pytest.raises(LimitExceededError, match="129 conditions"):
        await backend.put_txn([Put(LOG, "a", b"")], expect={(LOG, f"{n}"): ABSENT for n in range(MAX_TXN_OPS + 1)})
    with pytest.raises(LimitExceededError, match="split_value"):
        await backend.put(LOG, "a", bytes(MAX_REQUEST_BYTES))
    with pytest.raises(LimitExceededError, match="split_ops"):
        await backend.put_txn([Put(LOG, f"{n}", bytes(200_000)) for n in range(8)])
    assert len(await backend.get_from_prefix(LOG, "")) == 0


async def test_a_transaction_at_the_limits_is_taken(backend):
    ops = [Put(LOG, f"{n:03}", bytes(10_000)) for n in range(MAX_TXN_OPS)]
    assert isinstance(
        await backend.put_txn(ops, expect={(HEADS, f"{n}"): ABSENT for n in range(MAX_TXN_OPS)}), Committed
    )
    assert len(await backend.get_from_prefix(LOG, "")) == MAX_TXN_OPS


async def test_a_request_of_exactly_the_limit_is_taken(backend):
    most = MAX_REQUEST_BYTES - OP_OVERHEAD_BYTES - len("a")
    value = random.Random(5).randbytes(most)
    await backend.put(LOG, "a", value)
    assert (await backend.get(LOG, "a")).value == value
    with pytest.raises(LimitExceededError):
        await backend.put(LOG, "a", bytes(most + 1))
    # Odd keys of a good length, and as many operations and conditions as there may be, to fill the rest with framing.
    keys = [f"日本\0/{n:03}/" + "\U0001f42b" * 20 for n in range(MAX_TXN_OPS)]
    expect = {(HEADS, key): ABSENT for key in keys}
    ops = [Put(HEADS, key, b"") for key in keys]
    left, more = divmod(MAX_REQUEST_BYTES - request_bytes(ops, expect), MAX_TXN_OPS)
    ops = [Put(HEADS, key, bytes(left + (more if n == 0 else 0))) for n, key in enumerate(keys)]
    assert request_bytes(ops, expect) == MAX_REQUEST_BYTES
    assert isinstance(await backend.put_txn(ops, expect=expect), Committed)
    # The conflict of a repeated request reports the records found: 1.5 MiB.
    result = await backend.put_txn(ops, expect=expect)
    assert isinstance(result, Conflict)
    assert sum(len(item.value) for item in result.found.values()) == sum(len(op.value) for op in ops)


async def test_two_chunks_and_their_bookkeeping_fit_a_request(backend):
    pieces = split_value(bytes(2 * VALUE_CHUNK_BYTES))
    ops = [Put(Keyspace.GraphChunks, f"job/{n}", piece) for n, piece in enumerate(pieces)]
    assert len(ops) == 2
    assert isinstance(await backend.put_txn([*ops, Put(HEADS, "job", bytes(1_000))]), Committed)


async def test_conditions_and_fences_count_together(backend):
    lease = await backend.lease(10 * HANGS_S)
    async with backend.lock(HEADS, "one", lease.id) as one, backend.lock(HEADS, "two", lease.id) as two:
        expect = {(LOG, f"{n}"): ABSENT for n in range(MAX_TXN_OPS - 2)}
        assert isinstance(await backend.put_txn([Put(LOG, "a", b"")], expect=expect, fence=[one, two]), Committed)
        expect[LOG, "one more"] = ABSENT
        with pytest.raises(LimitExceededError, match="129 conditions"):
            await backend.put_txn([Put(LOG, "b", b"")], expect=expect, fence=[one, two])
    assert await backend.get(LOG, "b") is None


async def test_however_many_ops_are_written_each_put_gets_its_revision(backend):
    await backend.put(LOG, "gone", b"")
    revisions = await backend.put_all([Delete(LOG, "gone"), *(Put(LOG, f"{n:03}", b"") for n in range(MAX_TXN_OPS))])
    assert {(LOG, item.key): item.mod_revision for item in await backend.get_from_prefix(LOG, "")} == revisions
    assert len(set(revisions.values())) == 2
    assert await backend.put_all([]) == {}


async def test_a_range_is_deleted_by_one_commit(harness):
    """However many keys it has: another client sees all of them or none."""
    backend, reader = await harness.connect(), await harness.connect()
    await backend.put_all(Put(LOG, f"job/{n:04}", b"") for n in range(3_000))
    await backend.put(LOG, "job0", b"")
    deleting = asyncio.create_task(backend.delete_range(LOG, "job/"))
    counts = set()
    while not deleting.done():
        counts.add(len(await reader.scan_keys(LOG, limit=10_000)))
    assert await deleting == 3_000
    assert counts <= {3_001, 1}
    assert [item.key for item in await reader.get_from_prefix(LOG, "")] == ["job0"]


async def test_a_cancelled_caller_does_not_disturb_the_others(backend):
    async def put(n):
        await backend.put(LOG, f"{n:03}", b"")

    tasks = [asyncio.create_task(put(n)) for n in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    stored = {item.key for item in await backend.get_from_prefix(LOG, "")}
    assert stored >= {f"{n:03}" for n in range(1, 100, 2)}
