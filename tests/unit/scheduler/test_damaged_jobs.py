"""Records of jobs that are damaged, or newer than what reads them."""

import pytest

from onager.errors import SchemaVersionError, StateCorruptError
from onager.ids import JobId
from onager.scheduler.jobs.job_log import JobHeader
from onager.state_backend import Keyspace
from tests.unit.scheduler.small_graphs import running, store

JOB = JobId("job-1")


async def damage(backend, keyspace, prefix, value):
    item = (await backend.scan(keyspace, prefix, limit=10)).items[-1]
    if value is None:
        await backend.delete(keyspace, item.key)
    else:
        await backend.put(keyspace, item.key, value)


@pytest.mark.parametrize(
    ("keyspace", "prefix", "value"),
    [
        (Keyspace.ActiveJobs, "", b"rubbish"),
        (Keyspace.ActiveJobs, "", b'{"schema_version":"1.0"}'),
        (Keyspace.GraphChunks, "job-1/", b"\x01rubbish"),
        (Keyspace.GraphChunks, "job-1/", b'{"schema_version":"11.0","stages":3}'),
        (Keyspace.GraphChunks, "job-1/", None),
        (Keyspace.JobLog, "job-1/", b'{"schema_version":"11.0","batch_id":"b","events":[{"type":"?"}]}'),
    ],
)
async def test_a_damaged_record_is_marked_and_raised(backend, clock, keyspace, prefix, value):
    await running(store(backend, clock))
    await damage(backend, keyspace, prefix, value)
    jobs = store(backend, clock)
    with pytest.raises(StateCorruptError):
        await jobs.load(JOB)
    head = jobs.heads.get(JOB)
    assert head.broken
    assert not head.is_active
    fresh = store(backend, clock)
    await fresh.heads.refresh()
    assert fresh.heads.get(JOB).broken == head.broken
    revision = (await backend.get(Keyspace.JobHeads, JOB)).mod_revision
    with pytest.raises(StateCorruptError):
        await fresh.load(JOB)
    assert (await backend.get(Keyspace.JobHeads, JOB)).mod_revision == revision  # once is enough


async def test_a_head_that_cannot_be_read_is_written_anew_from_the_record(backend, clock):
    await running(store(backend, clock))
    sound = (await backend.get(Keyspace.JobHeads, JOB)).value
    await damage(backend, Keyspace.JobHeads, "", b"rubbish")
    jobs = store(backend, clock)
    await jobs.heads.refresh()
    assert not jobs.heads.get(JOB).is_active
    await jobs.mend_heads()
    assert jobs.heads.get(JOB).is_active
    assert (await backend.get(Keyspace.JobHeads, JOB)).value == sound
    assert jobs.heads.damaged == []


async def test_a_head_that_others_have_mended_is_left_alone(backend, clock):
    await running(store(backend, clock))
    sound = (await backend.get(Keyspace.JobHeads, JOB)).value
    await damage(backend, Keyspace.JobHeads, "", b"rubbish")
    jobs = store(backend, clock)
    await jobs.heads.refresh()
    revision = await backend.put(Keyspace.JobHeads, JOB, sound)
    await jobs.mend_heads()
    assert (await backend.get(Keyspace.JobHeads, JOB)).mod_revision == revision


async def test_nobody_writes_over_a_head_that_can_be_mended(backend, clock):
    await running(store(backend, clock))
    await damage(backend, Keyspace.JobHeads, "", b"rubbish")
    jobs = store(backend, clock)
    await jobs.heads.refresh()
    placeholder = jobs.heads.get(JOB)
    assert await jobs.heads.put([placeholder.model_copy(update={"ended_ms": 1})]) == []
    await jobs.mend_heads()
    assert jobs.heads.get(JOB).is_active


async def test_a_head_without_a_record_is_broken_and_can_be_dated(backend, clock):
    await running(store(backend, clock))
    await damage(backend, Keyspace.JobHeads, "", b"rubbish")
    await backend.delete(Keyspace.ActiveJobs, JOB)
    jobs = store(backend, clock)
    await jobs.heads.refresh()
    await jobs.mend_heads()
    head = jobs.heads.get(JOB)
    assert head.broken == "its record is gone"
    assert [each.ended_ms for each in await jobs.heads.put([head.model_copy(update={"ended_ms": 1})])] == [1]


async def test_a_gap_in_the_log_is_damage(backend, clock):
    await running(store(backend, clock))
    first = (await backend.scan_keys(Keyspace.JobLog, "job-1/", limit=1)).items[0]
    await backend.delete(Keyspace.JobLog, first)
    with pytest.raises(StateCorruptError, match="is expected"):
        await store(backend, clock).load(JOB)


async def test_a_newer_record_is_refused_and_left_as_it_is(backend, clock):
    await running(store(backend, clock))
    stored = await backend.get(Keyspace.ActiveJobs, "job-1")
    header = JobHeader.decoded(stored.value, "h").model_copy(update={"schema_version": "2.0"})
    await backend.put(Keyspace.ActiveJobs, "job-1", header.encoded())
    before = await backend.get(Keyspace.JobHeads, "job-1")
    jobs = store(backend, clock)
    with pytest.raises(SchemaVersionError, match="newer"):
        await jobs.load(JOB)
    assert await backend.get(Keyspace.JobHeads, "job-1") == before
    assert not jobs.heads.get(JOB).is_active
