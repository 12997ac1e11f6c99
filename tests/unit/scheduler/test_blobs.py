import asyncio
import os
import secrets

import pytest

from onager.errors import NotFoundError, SchemaVersionError, StateCorruptError
from onager.ids import JobId
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.state_backend import VALUE_CHUNK_BYTES, Conflict, Keyspace, OutcomeUnknown, Put
from tests.support.damage import damaged
from tests.unit.scheduler.small_graphs import keys

A, B = JobId("a"), JobId("b")


@pytest.mark.parametrize("content", [b"", b"plan", b"x" * 5_000_000, os.urandom(3_000_000)], ids=len)
async def test_what_is_put_is_got(backend, content):
    blobs = BlobStore(backend)
    await blobs.put(A, [content, b"another"])
    assert await blobs.get(digest_of(content)) == content


async def test_many_blobs_at_once(backend):
    contents = [f"plan {n}".encode() for n in range(100)]
    await BlobStore(backend).put(A, contents)
    assert [await BlobStore(backend).get(digest_of(c)) for c in contents] == contents


async def test_a_blob_goes_with_the_last_job_that_names_it(backend):
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    await blobs.put(B, [b"plan"])
    await blobs.put(B, [b"plan"])
    await blobs.release(A, [digest])
    await blobs.release(A, [digest])
    assert await blobs.get(digest) == b"plan"
    await blobs.release(B, [digest])
    with pytest.raises(NotFoundError, match="no job names it"):
        await blobs.get(digest)
    assert await keys(backend) == set()


async def test_any_number_of_jobs_name_one_blob_at_once(backend, monkeypatch):
    """One writer of each scheduler may lose the race for the content; after that, there are no conflicts."""
    schedulers = [BlobStore(backend) for _ in range(3)]
    commit, conflicts = backend._commit, []

    async def counted(*args):
        result = await commit(*args)
        conflicts.extend([result] if isinstance(result, Conflict) else [])
        return result

    monkeypatch.setattr(backend, "_commit", counted)
    for number in range(4):
        jobs = [JobId(f"job-{number}-{n}") for n in range(60)]
        await asyncio.gather(*(schedulers[n % 3].put(job_id, [b"plan"]) for n, job_id in enumerate(jobs)))
        assert len(conflicts) < 60, "at most once each, when nobody knew of it yet"
    references = {key for key in await keys(backend) if "/ref/" in key}
    assert len(references) == 240


async def test_a_blob_that_goes_while_it_is_written_is_written_again(backend, monkeypatch):
    """Another job with the same one comes and goes, and takes along the chunks that are there so far."""
    content = os.urandom(2_000_000)
    write = backend.put_all

    async def write_then_gone(ops):
        revisions = await write(ops)
        monkeypatch.setattr(backend, "put_all", write)
        other = BlobStore(backend)
        await other.put(B, [content])
        await other.release(B, [digest_of(content)])
        assert await keys(backend) == set()
        return revisions

    monkeypatch.setattr(backend, "put_all", write_then_gone)
    await BlobStore(backend).put(A, [content])
    assert await BlobStore(backend).get(digest_of(content)) == content


@pytest.mark.virtual_time
@pytest.mark.parametrize("is_unknown", [False, True], ids=["conflict", "unknown outcome"])
async def test_a_blob_that_goes_and_comes_all_the_time_is_soon_named(backend, monkeypatch, is_unknown):
    """Whoever pauses between look and write finds it changed once more, and the longer the pause, the surer."""
    other, turn, failed = BlobStore(backend), asyncio.Lock(), 0
    commit = backend._commit

    async def goes_and_comes():
        async with turn:
            await other.release(B, [digest_of(b"plan")])
            await other.put(B, [b"plan"])

    async def goes_and_comes_for_ever():
        while True:
            await goes_and_comes()
            await asyncio.sleep(0.005)

    async def fails_at_first(ops, expect):
        nonlocal failed
        if failed < 3 and Put(Keyspace.Plans, f"{digest_of(b'plan')}/ref/{A}", b"") in ops:
            failed += 1
            if is_unknown:
                return OutcomeUnknown("the answer was lost")
            await goes_and_comes()
        return await commit(ops, expect)

    monkeypatch.setattr(backend, "_commit", fails_at_first)
    passer = asyncio.create_task(goes_and_comes_for_ever())
    await asyncio.sleep(0.01)
    async with asyncio.timeout(0.1):
        await BlobStore(backend).put(A, [b"plan"])
    passer.cancel()
    assert failed == 3
    assert await BlobStore(backend).get(digest_of(b"plan")) == b"plan"


async def test_a_blob_that_an_earlier_version_left_without_its_end_is_completed(backend):
    content = os.urandom(1_500_000)
    writer = BlobStore(backend)
    await writer.put(A, [content])
    for key in (f"{digest_of(content)}/meta", f"{digest_of(content)}/1", f"{digest_of(content)}/ref/{A}"):
        await backend.delete(Keyspace.Plans, key)
    await BlobStore(backend).put(B, [content])
    assert await writer.get(digest_of(content)) == content


async def test_a_blob_that_somebody_begins_to_name_is_not_collected(backend):
    """The reference comes between the collector's look and its delete."""
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    read = backend._read
    is_first = True

    async def read_then_named(*args):
        nonlocal is_first
        found = await read(*args)
        if is_first:
            is_first = False
            await BlobStore(backend).put(B, [b"plan"])
        return found

    backend._read = read_then_named
    await blobs.release(A, [digest])
    assert await blobs.get(digest) == b"plan"


@pytest.mark.parametrize("value", [None, b"\x01rubbish", b"\x00other"])
async def test_damage_is_found(backend, value):
    blobs = BlobStore(backend)
    digest = digest_of(b"plan")
    await blobs.put(A, [b"plan"])
    if value is None:
        await backend.delete(Keyspace.Plans, f"{digest}/0")
    else:
        await backend.put(Keyspace.Plans, f"{digest}/0", value)
    with pytest.raises(StateCorruptError, match="damaged"):
        await BlobStore(backend).get(digest)


async def test_what_was_stored_lately_is_at_hand_until_nobody_names_it(backend):
    blobs = BlobStore(backend)
    small, large = b"plan", bytes(100_000)
    await blobs.put(A, [small, large])
    assert blobs.at_hand(digest_of(small)) == small
    assert blobs.at_hand(digest_of(large)) is None
    await blobs.release(A, [digest_of(small)])
    assert blobs.at_hand(digest_of(small)) is None
    with pytest.raises(NotFoundError):
        await blobs.get(digest_of(small))


async def test_what_is_at_hand_takes_no_more_than_a_few_mebibytes(backend):
    blobs = BlobStore(backend)
    contents = [secrets.token_bytes(64 * 1024) for _ in range(150)]
    await blobs.put(A, contents)
    assert sum(blobs.at_hand(digest_of(content)) is not None for content in contents) == 128


async def test_a_blob_is_read_without_its_references(backend):
    content = secrets.token_bytes(3 * VALUE_CHUNK_BYTES)
    await BlobStore(backend).put(A, [content])
    for number in range(300):
        await backend.put(Keyspace.Plans, f"{digest_of(content)}/ref/job-{number}", b"")
    reads = []
    read_txn = backend.read_txn
    backend.read_txn = lambda keys=(), ranges=(): (reads.append((keys, ranges)), read_txn(keys, ranges))[1]
    assert await BlobStore(backend).get(digest_of(content)) == content
    assert [(len(keys), len(ranges)) for keys, ranges in reads] == [(2, 0), (3, 0)]


async def test_a_new_blob_takes_one_round_trip_and_a_known_one_is_named_all_the_same(backend, monkeypatch):
    blobs = BlobStore(backend)
    reads, commits = [], []
    read, commit = backend._read, backend._commit

    async def counted_read(*args):
        reads.append(args)
        return await read(*args)

    async def counted_commit(*args):
        commits.append(args)
        return await commit(*args)

    monkeypatch.setattr(backend, "_read", counted_read)
    monkeypatch.setattr(backend, "_commit", counted_commit)
    await blobs.put(A, [b"plan"])
    assert (len(reads), len(commits)) == (0, 1)
    await blobs.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 2)
    elsewhere = BlobStore(backend)
    await elsewhere.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 4)
    await blobs.put(B, [b"plan"])
    assert (len(reads), len(commits)) == (0, 5), "that another job names it, too, stands in nobody's way"
    await elsewhere.release(A, [digest_of(b"plan")])
    assert await blobs.get(digest_of(b"plan")) == b"plan"
    await elsewhere.release(B, [digest_of(b"plan")])
    await blobs.put(A, [b"plan"])
    assert await blobs.get(digest_of(b"plan")) == b"plan", "it was removed since it was named here"


async def test_a_stored_blob_that_is_damaged_anywhere_is_never_another(backend):
    content = b"".join(b"%d, " % n for n in range(1_000))
    digest = digest_of(content)
    await BlobStore(backend).put(A, [content])
    for key in (f"{digest}/0", f"{digest}/meta"):
        whole = (await backend.get(Keyspace.Plans, key)).value
        for what, value in damaged(whole, seed=5):
            await backend.put(Keyspace.Plans, key, value)
            try:
                assert await BlobStore(backend).get(digest) == content, what
            except (StateCorruptError, SchemaVersionError) as error:
                assert digest in str(error)  # noqa: PT017 some flips do no harm
        await backend.put(Keyspace.Plans, key, whole)
