"""Clean-ups after a job's end, until nothing of it is left."""

import asyncio
import gc
import threading
from functools import partial

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from onager.errors import NotFoundError, StateCorruptError
from onager.execution_graph import JobCancelled, SinkSpec, apply_all
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.rounds import HELD_S
from onager.scheduler.engine import clean_ups
from onager.scheduler.engine.clean_ups import CleanUps, Leftovers, clean_up_of
from onager.scheduler.engine.retention import Retention
from onager.scheduler.jobs.blobs import BlobStore, blobs_of, digest_of
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_log import JobHeader, StoredJob
from onager.scheduler.jobs.job_specs import decode_spec, encode_spec
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.results import InlineResult, ResultStore
from onager.state_backend import Keyspace
from tests.unit.scheduler.parts import env, stored, view
from tests.unit.scheduler.small_graphs import graph, keys, planned, succeeded
from tests.unit.scheduler.test_job_store import launches, running, step

JOB = JobId("job-1")
HOUR_MS = 3_600_000


class House:
    """The parts of a scheduler that a job's end concerns."""

    def __init__(self, backend, clock):
        self.heads = JobHeads(backend, clock, interval_ms=500)
        self.jobs = JobStore(backend, self.heads, clock)
        self.blobs = BlobStore(backend)
        self.results = ResultStore(backend)
        self.schedulers = LiveSchedulers(backend, clock, scheduler_id="s", address="", lease_ttl_s=1)
        bundles = env(clock), stored(backend, self.jobs, clock, self.blobs), view(self.schedulers)
        self.keeping, self.retention = CleanUps(*bundles), Retention(*bundles)
        self.heads.listen(self.keeping.on_head)
        self.heads.listen(self.retention.on_head)


@pytest.fixture
def house(backend, clock):
    return House(backend, clock)


async def ended(house, clock, tasks=2):
    job = await running(house.jobs, tasks)
    return await step(house.jobs, job, [succeeded(1, p, at_ms=clock.now_ms()) for p in range(tasks)])


async def clean_up(house):
    await house.keeping.prepare()
    assert [asked.job_id for asked in house.keeping.clean_ups_for("e1")] == [JOB]
    await house.keeping.cleaned_up([JOB])


async def test_intermediate_data_goes_at_once_and_the_result_stays(house, clock):
    await ended(house, clock)
    assert await house.keeping.prepare()
    (asked,) = house.keeping.clean_ups_for("e1")
    assert asked == pb.CleanUp(job_id=JOB, keep_result=True, keep_files=["1/0-n0.arrow", "1/1-n1.arrow"])
    assert house.keeping.clean_ups_for("e2") == []
    await house.keeping.cleaned_up([JOB, JOB, "nobody"])
    assert house.heads.get(JOB).clean_up == "none"
    assert not house.keeping.has_clean_ups


async def of_tables(house, clock):
    """Return a job that makes the folder /new of a table, and retires /old; its task runs."""
    job, _ = await house.jobs.submit(graph())
    job = await step(house.jobs, job, launches(job.graph))
    event = planned(1)
    summary = replace(event.summary, folders_made=("/new",), folders_retired=("/old",))
    job = await step(house.jobs, job, [replace(event, summary=summary)])
    return await step(house.jobs, job, launches(job.graph, 1))


async def test_folders_that_a_job_has_replaced_go_with_its_result(house, clock):
    job = await of_tables(house, clock)
    await step(house.jobs, job, [succeeded(1, 0, at_ms=clock.now_ms())])
    await house.keeping.prepare()
    assert [list(asked.folders) for asked in house.keeping.clean_ups_for("e1")] == [[]], "others may still read them"
    await house.keeping.cleaned_up([JOB])
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    await house.keeping.prepare()
    assert [list(asked.folders) for asked in house.keeping.clean_ups_for("e1")] == [["/old"]]


async def test_folders_that_a_job_has_made_go_if_it_does_not_succeed(house, clock):
    job = await of_tables(house, clock)
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=clock.now_ms())])
    await house.keeping.prepare()
    assert [list(asked.folders) for asked in house.keeping.clean_ups_for("e1")] == [["/new"]]


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
async def test_what_a_job_did_to_its_output_is_undone_if_it_does_not_succeed(house, clock, mode):
    job, _ = await house.jobs.submit(graph())
    job = await step(house.jobs, job, launches(job.graph))
    event = planned(1)
    summary = replace(event.summary, sink=SinkSpec(path="/out", format="csv", mode=mode))
    job = await step(house.jobs, job, [replace(event, summary=summary)])
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=clock.now_ms())])
    await house.keeping.prepare()
    assert [(asked.sink.path, asked.take_back) for asked in house.keeping.clean_ups_for("e1")] == [("/out", True)]


async def test_that_all_is_gone_is_not_believed_of_an_executor_that_was_asked_for_less(house, clock):
    await ended(house, clock)
    await clean_up(house)
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    await house.keeping.prepare()
    await house.keeping.cleaned_up([JOB])  # once more: the answer to the first time was lost
    assert house.heads.get(JOB).clean_up == "all"
    await clean_up(house)
    assert house.heads.get(JOB).clean_up == "none"


async def test_a_clean_up_that_nobody_confirms_is_asked_of_another(house, clock):
    await ended(house, clock)
    await house.keeping.prepare()
    assert house.keeping.clean_ups_for("e1")
    clock.advance(29_000)
    assert not house.keeping.clean_ups_for("e2")
    clock.advance(1_000)
    assert house.keeping.clean_ups_for("e2")


async def test_a_successor_finds_what_is_due(backend, house, clock):
    await ended(house, clock)
    successor = House(backend, clock)
    await successor.heads.refresh()
    assert await successor.keeping.prepare()
    assert successor.keeping.clean_ups_for("e1")


async def test_a_job_of_a_newer_version_is_left_to_schedulers_that_can_read_it(backend, house, clock):
    """It is reported only once: a scheduler that examines it at each report would loop forever."""
    await ended(house, clock)
    stored = await backend.get(Keyspace.CompletedJobs, JOB)
    header = JobHeader.decoded(stored.value, "h").model_copy(update={"schema_version": "2.0"})
    await backend.put(Keyspace.CompletedJobs, JOB, header.encoded())
    older, received = House(backend, clock), []
    older.heads.listen(lambda job_id, head: received.append((job_id, head.broken)))
    await older.heads.refresh()
    received.clear()
    for _ in range(3):
        assert not await older.keeping.prepare()
    assert not older.keeping.has_clean_ups
    ((job_id, broken),) = received
    assert job_id == JOB
    assert "newer" in broken


async def test_a_failed_job_keeps_nothing(house, clock):
    job = await running(house.jobs)
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=1)])
    await house.keeping.prepare()
    assert house.keeping.clean_ups_for("e1") == [pb.CleanUp(job_id=JOB)]


async def test_large_specifications_are_looked_at_one_by_one_and_beside_the_event_loop(
    backend, house, clock, monkeypatch
):
    sink = pb.Sink(path="/out", format="parquet")
    for n in range(5):
        spec = encode_spec(pb.JobSpec(name=f"job {n}", sql=pb.SqlScript(text="x" * 100_000), sink=sink))
        await house.blobs.put(JobId(f"job-{n}"), [spec])
        job, _ = await house.jobs.submit(graph(JobId(f"job-{n}"), digest_of(spec)))
        job = await step(house.jobs, job, launches(job.graph))
        await step(house.jobs, job, [JobCancelled(reason="no", at_ms=1)])
    under_way, most, threads, get = [], [], [], house.blobs.get

    async def counted(digest):
        under_way.append(1)
        most.append(len(under_way))
        await asyncio.sleep(0.01)
        under_way.pop()
        return await get(digest)

    def seen(content):
        threads.append(threading.current_thread())
        return decode_spec(content)

    monkeypatch.setattr(house.blobs, "get", counted)
    monkeypatch.setattr(clean_ups, "decode_spec", seen)
    await house.keeping.prepare()
    assert [asked.sink.path for asked in house.keeping.clean_ups_for("e1")] == ["/out"] * 5
    assert most == [1] * 5
    assert threading.current_thread() not in threads


async def test_a_job_that_never_ran_leaves_nothing_due(house):
    job, _ = await house.jobs.submit(graph())
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=1)])
    assert house.heads.get(JOB).clean_up == "none"


async def test_result_first_then_record_then_nothing(backend, house, clock):
    spec, plan = b"the spec", b"the plan"
    await house.blobs.put(JOB, [spec, plan])
    job, _ = await house.jobs.submit(graph(digest=digest_of(spec)))
    job = await step(house.jobs, job, launches(job.graph))
    job = await step(house.jobs, job, [JobCancelled(reason="no", at_ms=clock.now_ms())])
    await house.results.put([InlineResult(JOB, 0, "n", b"rows")])
    await clean_up(house)
    await house.retention.sweep()
    assert await keys(backend, Keyspace.Results)

    clock.advance(HOUR_MS)
    await house.retention.sweep()
    assert not await keys(backend, Keyspace.Results)
    assert not house.heads.get(JOB).has_result
    assert await house.jobs.load(JOB)

    clock.advance(23 * HOUR_MS)
    await house.retention.sweep()
    assert house.heads.get(JOB) is None
    assert {k.split("/")[0] for k in await keys(backend)} == {"Plans"}  # a plan that the graph never named

    assert await house.retention.collect_orphans() == 0
    clock.advance(600_000)
    assert await house.retention.collect_orphans() == 1
    clock.advance(int(1000 * HELD_S))
    assert await keys(backend) == set()


async def test_a_sweep_removes_all_that_is_due_many_together(backend, house, clock, monkeypatch):
    """Jobs end as fast as they can be run; what is past its retention has to go as fast."""
    jobs = 500
    for n in range(jobs):
        job_id = JobId(f"job-{n}")
        spec = b"the spec of half of them" if n % 2 else f"spec {n}".encode()
        job, _ = await house.jobs.submit(graph(job_id, digest=digest_of(spec)), blob=house.blobs.writes(job_id, spec))
        await step(house.jobs, job, [JobCancelled(reason="no", at_ms=clock.now_ms())])
    writes, commit = [], backend._commit

    async def counted(*args):
        writes.append(args)
        return await commit(*args)

    monkeypatch.setattr(backend, "_commit", counted)
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    assert not any(head.has_result for head in house.heads)
    clock.advance(23 * HOUR_MS)
    await house.retention.sweep()
    assert await keys(backend) == set()
    assert not list(house.heads)
    assert len(writes) < jobs / 2


async def test_few_jobs_are_in_memory_while_many_are_removed(backend, house, clock, monkeypatch):
    """Each of them may be a large one."""
    for n in range(96):
        job, _ = await house.jobs.submit(graph(JobId(f"job-{n}")))
        await step(house.jobs, job, [JobCancelled(reason="no", at_ms=clock.now_ms())])
    other = House(backend, clock)
    await other.heads.refresh()
    del house.jobs, job
    clock.advance(HOUR_MS)
    await other.retention.sweep()
    most, read, commit = [], backend._read, backend._commit
    before = jobs_in_memory()

    async def looking(act, *args):
        most.append(jobs_in_memory() - before)
        await asyncio.sleep(0)  # others begin, too
        return await act(*args)

    monkeypatch.setattr(backend, "_read", partial(looking, read))
    monkeypatch.setattr(backend, "_commit", partial(looking, commit))
    clock.advance(23 * HOUR_MS)
    await other.retention.sweep()
    assert await keys(backend) == set()
    assert max(most) <= 2


def jobs_in_memory():
    return sum(isinstance(each, StoredJob) for each in gc.get_objects())


async def test_what_grew_old_is_cleaned_up_without_reading_it(backend, house, clock, monkeypatch):
    """One job after the other would take longer than jobs take to end."""
    job_ids = [JobId(f"job-{n}") for n in range(100)]
    for job_id in job_ids:
        job, _ = await house.jobs.submit(graph(job_id))
        job = await step(house.jobs, job, launches(job.graph))
        job = await step(house.jobs, job, [planned(1)])
        job = await step(house.jobs, job, launches(job.graph))
        await step(house.jobs, job, [succeeded(1, 0, at_ms=clock.now_ms())])
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    reads, read = [], backend._read

    async def counted(*args):
        reads.append(args)
        return await read(*args)

    monkeypatch.setattr(backend, "_read", counted)
    assert await house.keeping.prepare()
    assert sorted(c.job_id for _ in range(2) for c in house.keeping.clean_ups_for("e1")) == sorted(job_ids)
    assert reads == []


async def test_a_blob_that_nobody_names_goes(backend, house, clock):
    """The scheduler that removed its last reference died before it removed the blob."""
    await house.blobs.put(JOB, [b"spec"])
    await backend.delete(Keyspace.Plans, f"{digest_of(b'spec')}/ref/{JOB}")
    assert await house.retention.collect_orphans() == 0
    clock.advance(600_000)
    assert await house.retention.collect_orphans() == 1
    clock.advance(int(1000 * HELD_S))
    assert await keys(backend) == set()


@pytest.mark.parametrize("part", ["header", "snapshot", "head"])
async def test_a_damaged_job_goes_after_its_retention(backend, house, clock, part):
    """Its record does not say when it ended: the time counts from when a scheduler noticed."""
    spec = b"the spec"
    await house.jobs.submit(graph(digest=digest_of(spec)), blob=house.blobs.writes(JOB, spec))
    if part == "snapshot":
        (key,) = await backend.scan_keys(Keyspace.GraphChunks, limit=2)
        await backend.put(Keyspace.GraphChunks, key, b"rubbish")
    elif part == "header":
        await backend.put(Keyspace.ActiveJobs, JOB, b"rubbish")
    else:
        await backend.delete(Keyspace.ActiveJobs, JOB)
        await backend.put(Keyspace.JobHeads, JOB, b"rubbish")
    other = House(backend, clock)
    await other.heads.refresh()
    await other.jobs.mend_heads()
    if part != "head":
        with pytest.raises(StateCorruptError):
            await other.jobs.load(JOB)
    await other.retention.sweep()
    clock.advance(HOUR_MS)
    await other.retention.sweep()
    assert await other.keeping.prepare()
    assert other.keeping.clean_ups_for("e1") == [pb.CleanUp(job_id=JOB)]
    await other.keeping.cleaned_up([JOB])
    clock.advance(22 * HOUR_MS)
    await other.retention.sweep()
    assert other.heads.get(JOB) is not None
    clock.advance(HOUR_MS)
    await other.retention.sweep()
    assert other.heads.get(JOB) is None
    for _ in range(2):
        await other.retention.collect_orphans()
        clock.advance(600_000)
    assert await keys(backend) == set()


async def test_a_job_s_end_is_logged_once_however_often_it_is_read(backend, house, clock):
    with capture_logs() as logs:
        await ended(house, clock)
        for _ in range(3):
            await House(backend, clock).jobs.load(JOB)
    assert [(entry["event"], entry["job_id"]) for entry in logs if entry["event"] == "job_ended"] == [
        ("job_ended", JOB)
    ]


async def test_blobs_of_a_submission_under_way_are_no_orphans(house, clock):
    await house.blobs.put(JOB, [b"spec"])
    await house.retention.collect_orphans()
    await house.jobs.submit(graph())
    clock.advance(600_000)
    assert await house.retention.collect_orphans() == 0
    assert await house.blobs.get(digest_of(b"spec")) == b"spec"
    with pytest.raises(NotFoundError):
        await house.blobs.get(digest_of(b"another"))


async def test_every_blob_of_a_graph_is_named(house, clock):
    job = await ended(house, clock)
    assert blobs_of(job.graph) == {"d" * 64, "p"}
    assert clean_up_of(job.graph, keeps_result=False) == pb.CleanUp(job_id=JOB)
    assert apply_all(job.graph, [JobCancelled(reason="late", at_ms=2)]) is job.graph


def lying(*writers, job_id=JOB):
    return [pb.ExchangeFiles(job_id=job_id, writers=writers)]


def to_remove(*clean_ups):
    return Leftovers(list(clean_ups), [])


async def test_what_the_dead_did_not_finish_goes_while_the_job_runs(house):
    await running(house.jobs)
    assert await house.keeping.leftovers(lying("dead", "alive"), lambda life: life == "alive") == to_remove(
        pb.CleanUp(job_id=JOB, dead_writers=["dead"])
    )
    assert await house.keeping.leftovers(lying("alive"), lambda life: life == "alive") == to_remove()
    assert await house.keeping.leftovers(lying(), lambda _: False) == to_remove()


async def test_a_late_task_of_an_ended_job_leaves_nothing(house):
    job = await running(house.jobs)
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=1)])
    # The clean-up is due, and is asked for as such. If the files counted as reported here, those that came after the
    # executor's clean-up would be forgotten.
    assert await house.keeping.leftovers(lying(), lambda _: True) == Leftovers([], [JOB])
    await clean_up(house)
    assert await house.keeping.leftovers(lying("whoever"), lambda _: True) == to_remove(pb.CleanUp(job_id=JOB))
    await house.keeping.cleaned_up([JOB])
    assert house.heads.get(JOB).clean_up == "none"


async def test_executors_forget_jobs_that_have_ended_and_no_others(backend, house, clock):
    job = await running(house.jobs)
    other = House(backend, clock)
    assert not await house.keeping.forgotten([JOB])
    assert not await other.keeping.forgotten([JOB]), "it is new to that scheduler"
    await step(house.jobs, job, [JobCancelled(reason="no", at_ms=1)])
    over = [pb.CleanUp(job_id=JOB, memory_only=True)]
    assert await house.keeping.forgotten([JOB]) == over
    await clean_up(house)
    assert await house.keeping.forgotten([JOB]) == over
    await house.retention._remove([house.heads.get(JOB)])
    assert await house.keeping.forgotten([JOB]) == over
    assert await other.keeping.forgotten([JOB]) == over


async def test_executors_keep_the_job_that_another_scheduler_can_read(house):
    await running(house.jobs)
    house.heads.mark_unreadable(JOB, "it is of a newer version")
    assert not await house.keeping.forgotten([JOB])


async def test_the_head_of_a_job_that_another_scheduler_can_read_is_left_to_that(backend, house, clock):
    await ended(house, clock)
    before = await backend.get(Keyspace.JobHeads, JOB)
    house.heads.mark_unreadable(JOB, "it is of a newer version")
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    assert await backend.get(Keyspace.JobHeads, JOB) == before


async def test_a_result_that_is_kept_is_no_leftover(house, clock):
    await ended(house, clock)
    await clean_up(house)
    again = pb.CleanUp(job_id=JOB, keep_result=True, keep_files=["1/0-n0.arrow", "1/1-n1.arrow"])
    assert await house.keeping.leftovers(lying(), lambda _: True) == to_remove(again)
    clock.advance(HOUR_MS)
    await house.retention.sweep()
    await clean_up(house)
    assert await house.keeping.leftovers(lying(), lambda _: True) == to_remove(pb.CleanUp(job_id=JOB))


async def test_jobs_that_are_not_known_here_may_be_another_cluster_s(house):
    assert await house.keeping.leftovers(lying("dead", job_id="job-of-others"), lambda _: False) == to_remove()
