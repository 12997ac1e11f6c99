"""The log of a job: one writer wins each position, even if the store's answer is lost."""

import asyncio

import pytest

from onager.errors import BusyError, JobConflictError, JobNotFoundError
from onager.execution_graph import ExecutorLost, JobCancelled, StagesStarted
from onager.execution_graph.codec import encode_graph
from onager.ids import JobId
from onager.scheduler.jobs import job_store
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.job_heads import JobHead, JobTerms, head_of
from onager.scheduler.jobs.job_store import Lost
from onager.state_backend import ABSENT, Keyspace, Put
from onager.state_backend.memory import MemoryStore
from tests.unit.scheduler.small_graphs import (
    UnsureBackend,
    append,
    graph,
    keys,
    launches,
    planned,
    running,
    step,
    store,
    succeeded,
)

JOB = JobId("job-1")


async def test_a_submitted_job_is_there_for_everybody(backend, clock):
    job, existed = await store(backend, clock).submit(graph())
    assert not existed
    found = await store(backend, clock).load(JOB)
    assert found.graph == job.graph
    assert await keys(backend, Keyspace.JobHeads, Keyspace.ActiveJobs) == {"JobHeads/job-1", "ActiveJobs/job-1"}


async def test_submitting_twice_runs_once_however_late(backend, clock):
    jobs = store(backend, clock)
    job = await running(jobs, 1)
    assert (await store(backend, clock).submit(graph()))[1]
    await step(jobs, job, [succeeded(1, 0)])
    found, existed = await store(backend, clock).submit(graph())
    assert existed
    assert found.keyspace is Keyspace.CompletedJobs
    with pytest.raises(JobConflictError):
        await store(backend, clock).submit(graph(digest="e" * 64))


@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_a_submission_of_unknown_outcome_is_settled(clock, fate):
    backend = UnsureBackend(MemoryStore(clock))
    backend.script = [fate]
    _, existed = await store(backend, clock).submit(graph())
    assert not existed
    assert (await store(backend, clock).load(JOB)).seq == 0


@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_what_is_written_with_a_job_is_written_with_it_or_not_at_all(clock, fate):
    backend = UnsureBackend(MemoryStore(clock))
    backend.script = [fate]
    jobs, place = store(backend, clock), (Keyspace.ConnectOperations, "ann/session/op")
    extra = ([Put(*place, b"begun")], {place: ABSENT})
    _, existed = await jobs.submit(graph(), extra=extra)
    assert not existed
    assert (await backend.get(*place)).value == b"begun"
    _, existed = await jobs.submit(graph(), extra=extra)
    assert existed, "the job is there, and was written with it"
    with pytest.raises(BusyError):
        await jobs.submit(graph("job-2"), extra=extra)
    assert await keys(backend, Keyspace.ActiveJobs) == {"ActiveJobs/job-1"}


async def test_a_small_spec_is_stored_with_its_job_in_one_transaction(backend, clock):
    blobs = BlobStore(backend)
    before = await revision(backend)
    await store(backend, clock).submit(graph(), blob=blobs.writes(JOB, b"spec"))
    assert await revision(backend) == before + 1
    assert await blobs.get(digest_of(b"spec")) == b"spec"
    other = JobId("job-2")
    await store(backend, clock).submit(graph(other), blob=blobs.writes(other, b"spec"))
    assert await revision(backend) == before + 2, "it is known how it is stored: a query that comes again"
    await blobs.release(JOB, [digest_of(b"spec")])
    assert await blobs.get(digest_of(b"spec")) == b"spec", "both jobs name it"
    assert blobs.writes(JOB, b"x" * 100_000) is None


@pytest.mark.parametrize("fate", ["known elsewhere", "lost", "done"])
async def test_a_spec_that_cannot_go_along_goes_before(clock, fate):
    backend = UnsureBackend(MemoryStore(clock))
    blobs = BlobStore(backend)
    if fate == "known elsewhere":
        await BlobStore(backend).put(JobId("other"), [b"spec"])
    else:
        backend.script = [fate]
    _, existed = await store(backend, clock).submit(graph(), blob=blobs.writes(JOB, b"spec"))
    assert not existed
    assert await blobs.get(digest_of(b"spec")) == b"spec"
    assert f"Plans/{digest_of(b'spec')}/ref/{JOB}" in await keys(backend, Keyspace.Plans)


async def revision(backend):
    return (await backend.read_txn([(Keyspace.JobHeads, "none")])).revision


async def test_only_one_of_two_writers_wins_a_position(backend, clock):
    mine, theirs = store(backend, clock), store(backend, clock)
    job, _ = await mine.submit(graph())
    other = await theirs.load(JOB)
    await step(theirs, other, launches(other.graph))
    assert isinstance(await append(mine, job, [JobCancelled(reason="no", at_ms=4)]), Lost)
    job = await mine.load(JOB)
    assert job.seq == 1
    job = await step(mine, job, [JobCancelled(reason="no", at_ms=4)])
    assert job.keyspace is Keyspace.FailedJobs


async def test_events_that_change_nothing_are_not_written(backend, clock):
    jobs = store(backend, clock)
    job = await running(jobs)
    again = await step(jobs, job, [succeeded(1, 0, attempt=7)])
    assert again is job


@pytest.mark.parametrize("fates", [["lost"], ["done"], ["lost", "lost", "done"]])
async def test_an_append_of_unknown_outcome_is_settled_by_its_id(clock, fates):
    backend = UnsureBackend(MemoryStore(clock))
    jobs = store(backend, clock)
    job = await running(jobs)
    backend.script = list(fates)
    after = await step(jobs, job, [succeeded(1, 0)])
    assert after.seq == job.seq + 1
    found = await store(backend, clock).load(JOB)
    assert found.seq == after.seq
    assert found.graph == after.graph


async def test_an_append_of_unknown_outcome_that_another_overtook_is_lost(clock):
    backend = UnsureBackend(MemoryStore(clock))
    jobs, others = store(backend, clock), store(backend, clock)
    job = await running(jobs)

    async def overtake():
        backend.before_answer = None
        await step(others, await others.load(JOB), [succeeded(1, 1)])

    backend.script, backend.before_answer = ["lost"], overtake
    assert isinstance(await append(jobs, job, [succeeded(1, 0)]), Lost)
    found = (await jobs.load(JOB)).graph.stages[1].ledger.outputs
    assert set(found) == {1}


@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_an_end_of_unknown_outcome_is_settled(clock, fate):
    backend = UnsureBackend(MemoryStore(clock))
    jobs = store(backend, clock)
    job = await running(jobs, 1)
    backend.script = [fate]
    assert (await step(jobs, job, [succeeded(1, 0)])).keyspace is Keyspace.CompletedJobs
    assert await keys(backend, Keyspace.ActiveJobs, Keyspace.JobLog) == set()


async def test_the_end_moves_the_header_and_leaves_no_log(backend, clock):
    jobs = store(backend, clock)
    job = await running(jobs, 1)
    job = await step(jobs, job, [succeeded(1, 0)])
    found = await keys(backend)
    assert {k.split("/")[0] for k in found} == {"CompletedJobs", "GraphChunks", "History", "JobHeads"}
    assert len([k for k in found if k.startswith("GraphChunks")]) == 1
    assert jobs.heads.get(JOB).state.value == "successful"
    assert (await store(backend, clock).load(JOB)).graph == job.graph


async def test_a_late_append_to_an_ended_job_is_lost_and_then_nothing(backend, clock):
    late, jobs = store(backend, clock), store(backend, clock)
    stale = await running(late, 2)
    job = await jobs.load(JOB)
    await step(jobs, job, [JobCancelled(reason="enough", at_ms=8)])
    assert isinstance(await append(late, stale, [succeeded(1, 0)]), Lost)
    ended = await late.load(JOB)
    assert await step(late, ended, [succeeded(1, 0)]) is ended
    assert await keys(backend, Keyspace.ActiveJobs, Keyspace.JobLog) == set()


async def test_snapshots_keep_the_log_short_and_the_graph_whole(backend, clock, monkeypatch):
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 1)
    monkeypatch.setattr(job_store, "SNAPSHOT_LOG_RATIO", 1)
    jobs = store(backend, clock)
    job = await running(jobs, 200)
    for partition in range(199):
        job = await step(jobs, job, [succeeded(1, partition)])
    assert job.header.generation > 2
    log = await keys(backend, Keyspace.JobLog)
    generations = {int(k.split("/")[2]) for k in log}
    assert generations <= {job.header.generation, job.header.generation - 1}
    assert len({k.split("/")[2] for k in await keys(backend, Keyspace.GraphChunks)}) == 1
    found = await store(backend, clock).load(JOB)
    assert (found.graph, found.seq) == (job.graph, job.seq)


async def test_all_snapshots_together_weigh_less_than_three_times_the_last(backend, clock, monkeypatch):
    weights = []
    snapshot_ops = job_store.job_log.snapshot_ops

    def weighed(*args):
        ops, size = yield from snapshot_ops(*args)
        weights.append(size)
        return ops, size

    monkeypatch.setattr(job_store.job_log, "snapshot_ops", weighed)
    jobs = store(backend, clock)
    job, _ = await jobs.submit(graph())
    job = await step(jobs, job, launches(job.graph))
    job = await step(jobs, job, [planned(10_000)])
    for start in range(0, 10_000, 100):
        job = await step(jobs, job, launches(job.graph, 100))
        job = await step(jobs, job, [succeeded(1, p) for p in range(start, start + 100)])
    assert len(weights) > 3, "the log has to be cut now and then"
    assert sum(weights) < 3 * weights[-1]


async def test_a_reader_during_a_snapshot_write_does_not_read_it_back(backend, clock, monkeypatch):
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 1)
    monkeypatch.setattr(job_store, "SNAPSHOT_LOG_RATIO", 0)
    jobs = store(backend, clock)
    job = await running(jobs, 3)
    is_committed, may_answer = asyncio.Event(), asyncio.Event()
    commit, loaded = backend._commit, []

    async def answers_late(ops, expect):
        result = await commit(ops, expect)
        is_committed.set()
        await may_answer.wait()
        return result

    async def load(job_id):
        loaded.append(job_id)
        raise AssertionError("it was read whole")

    monkeypatch.setattr(backend, "_commit", answers_late)
    monkeypatch.setattr(jobs, "load", load)
    appending = asyncio.create_task(step(jobs, job, [succeeded(1, 0)]))
    await is_committed.wait()
    looking = asyncio.create_task(jobs.fresh(JOB))
    await asyncio.sleep(0)
    may_answer.set()
    after = await appending
    assert after.header.generation > job.header.generation
    assert (await looking).graph == after.graph
    assert not loaded


async def test_a_reader_after_another_scheduler_wrote_a_snapshot_reads_it(backend, clock, monkeypatch):
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 1)
    monkeypatch.setattr(job_store, "SNAPSHOT_LOG_RATIO", 0)
    jobs, other = store(backend, clock), store(backend, clock)
    job = await running(jobs, 3)
    await other.load(JOB)
    job = await step(jobs, job, [succeeded(1, 0)])
    assert (await other.fresh(JOB)).graph == job.graph


async def test_bytes_per_task_do_not_grow_with_the_job(backend, clock):
    written = 0
    commit = backend._commit

    async def counted(ops, expect):
        nonlocal written
        written += sum(len(getattr(op, "value", b"")) for op in ops)
        return await commit(ops, expect)

    backend._commit = counted
    costs = []
    for size in (500, 4_000):
        jobs = store(backend, clock)
        job, _ = await jobs.submit(graph(f"job-{size}"))
        job = await step(jobs, job, launches(job.graph))
        job = await step(jobs, job, [planned(size)])
        written = 0
        for start in range(0, size, 20):
            job = await step(jobs, job, launches(job.graph, 20))
            job = await step(jobs, job, [succeeded(1, p) for p in range(start, start + 20)])
        assert not job.graph.is_active
        costs.append(written / size)
    assert max(costs) < 300
    assert costs[1] < 1.5 * costs[0]


async def test_a_graph_too_large_for_one_transaction_goes_in_chunks(backend, clock, monkeypatch):
    monkeypatch.setattr(job_store, "_INLINE_BYTES", 10)
    jobs = store(backend, clock)
    job = await running(jobs, 1)
    job = await step(jobs, job, [succeeded(1, 0)])
    assert encode_graph((await store(backend, clock).load(JOB)).graph) == encode_graph(job.graph)


async def test_a_job_that_is_not_there_is_not_found(backend, clock):
    with pytest.raises(JobNotFoundError):
        await store(backend, clock).load(JobId("nobody"))


async def test_a_head_is_written_that_another_scheduler_changed_and_this_one_did_not_see(backend, clock):
    mine, other = store(backend, clock), store(backend, clock)
    job, _ = await mine.submit(graph())
    job = await step(mine, job, launches(job.graph))
    job = await step(mine, job, [planned(1), StagesStarted(stage_ids=(1,), at_ms=4)])
    on_other = await other.load(JOB)
    await step(other, on_other, launches(on_other.graph))
    # The loss brings back what was there when this scheduler last wrote the head, but not what is stored by now.
    await step(mine, await mine.load(JOB), [ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=5)])
    head = JobHead.decoded((await backend.get(Keyspace.JobHeads, JOB)).value, JOB)
    assert head == head_of((await other.load(JOB)).graph, JobTerms())
    assert head.has_runnable_work


# ---------------------------------------------------------------- many tasks


async def many_done(jobs, tasks):
    """Return a job with *tasks* done, and one more that runs."""
    job = await running(jobs, tasks + 1)
    return await step(jobs, job, [succeeded(1, p) for p in range(tasks)])


async def turns_during(work):
    """Return what *work* returns, and how many times the event loop did other things meanwhile."""
    task, precedence = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        precedence += 1
    return task.result(), precedence


async def test_a_large_snapshot_and_reading_it_leave_others_their_turns(backend, clock, monkeypatch):
    jobs = store(backend, clock)
    job = await many_done(jobs, 5_000)
    monkeypatch.setattr(job_store, "SNAPSHOT_LOG_RATIO", 0)
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 0)
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="it left", at_ms=9)
    committed, precedence = await turns_during(append(jobs, job, [lost]))
    assert committed.job.header.snapshot_bytes > 300_000
    assert precedence > 10
    found, precedence = await turns_during(store(backend, clock).load(JOB))
    assert found == committed.job
    assert precedence > 5


async def test_a_long_log_leaves_others_their_turns(backend, clock, monkeypatch):
    monkeypatch.setattr(job_store, "SNAPSHOT_MIN_LOG_BYTES", 10**9)
    jobs = store(backend, clock)
    job = await running(jobs, 5_000)
    for start in range(0, 4_900, 100):
        job = await step(jobs, job, [succeeded(1, p) for p in range(start, start + 100)])
    found, precedence = await turns_during(store(backend, clock).load(JOB))
    assert (found.graph, found.seq) == (job.graph, job.seq)
    assert precedence > 10


@pytest.mark.virtual_time
async def test_a_reader_of_a_job_that_is_being_read_reads_only_newer_events(backend, clock, monkeypatch):
    first = store(backend, clock)
    job = await running(first, 3)
    other = store(backend, clock)
    reads = []
    read, may_go_on = other._backend._read, asyncio.Event()

    async def counted(keys, ranges):
        reads.append([r.keyspace for r in ranges])
        found = await read(keys, ranges)
        if len(reads) == 1:
            await may_go_on.wait()
        return found

    monkeypatch.setattr(other._backend, "_read", counted)
    calls = [asyncio.ensure_future(call(JOB)) for call in (other.load, other.fresh, other.get)]
    await asyncio.sleep(0.01)
    job = await step(first, job, [succeeded(1, 0)])  # what was read is older than that
    may_go_on.set()
    found = await asyncio.gather(*calls)
    assert [one.seq for one in found] == [job.seq - 1, job.seq, job.seq]
    assert reads == [[Keyspace.GraphChunks, Keyspace.JobLog], [Keyspace.JobLog], [Keyspace.JobLog]]


@pytest.mark.virtual_time
async def test_a_cancelled_read_does_not_stop_other_readers(backend, clock, monkeypatch):
    await running(store(backend, clock), 3)
    other = store(backend, clock)
    gate = asyncio.Event()
    read = other._backend._read

    async def slow(keys, ranges):
        await gate.wait()
        return await read(keys, ranges)

    monkeypatch.setattr(other._backend, "_read", slow)
    first, second = (asyncio.ensure_future(other.load(JOB)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    gate.set()
    assert (await second).seq == 3
    assert first.cancelled()
