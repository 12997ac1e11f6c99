"""A job's changes of the catalog are made by the transaction that ends the job, on every store."""

import asyncio

from msgspec.structs import replace

from onager.clock import ManualClock
from onager.execution_graph import FailureKind, JobState
from onager.ids import JobId
from onager.scheduler.catalog.changes import encoded
from onager.scheduler.engine.query_coordinator import Cluster, QueryCoordinator, Share
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.job_writers import Decision, JobWriters
from onager.state_backend import Keyspace
from tests.support.catalogs import changes, make, partitions, partitions_of, put, record_of, table, with_catalog
from tests.unit.scheduler.small_graphs import SLOT, graph, planned, succeeded

TABLE = "tables/default/t"


class Job:
    """A job of one task, whose plan changes the catalog."""

    def __init__(self, backend, job_id="job-1", writer=""):
        clock = ManualClock()
        self.job_id = JobId(job_id)
        self.blobs = BlobStore(backend)
        self.jobs = JobStore(backend, JobHeads(backend, clock, interval_ms=500), clock, writer, blobs=self.blobs)
        self.writers = JobWriters(self.jobs, clock)
        self.coordinator = QueryCoordinator(self.job_id, self.writers, clock, Cluster(lambda: 1))

    async def plan(self, made, *, is_ddl=False):
        """Submit the job and plan it; with *is_ddl* planning ends it."""
        await self.jobs.submit(graph(self.job_id))
        await self.coordinator.launch_tasks([Share(SLOT, 1)])
        return await self.planned(made, is_ddl=is_ddl)

    async def planned(self, made, *, is_ddl=False, attempt=0):
        content = encoded(made)
        await self.blobs.put(self.job_id, [content])
        event = replace(with_catalog(planned(0 if is_ddl else 1), digest_of(content)), task_attempt=attempt)
        recorded = await self.writers.record_decision(self.job_id, lambda _: Decision([event]))
        if not is_ddl:
            await self.coordinator.launch_tasks([Share(SLOT, 1)])
        return recorded.graph

    async def end(self):
        return (await self.writers.record_decision(self.job_id, lambda _: Decision([succeeded(1, 0)]))).graph

    async def state(self):
        return (await self.jobs.load(self.job_id)).graph.state


async def test_nothing_is_changed_before_the_job_ends_and_all_of_it_with_its_end(backend):
    job = Job(backend)
    await job.plan(changes(put(TABLE, table()), partitions({"k=1": {"n": 1}})))
    assert await record_of(backend, TABLE) is None
    assert (await job.end()).state is JobState.SUCCESSFUL
    assert await partitions_of(backend) == {"k=1": {"n": 1}}
    header = await backend.get(Keyspace.CompletedJobs, "job-1")
    stored = await backend.get(Keyspace.Catalog, TABLE)
    assert header.mod_revision == stored.mod_revision, "they are of one transaction"


async def test_of_a_job_that_is_cancelled_nothing_is_changed(backend):
    job = Job(backend)
    await job.plan(changes(put(TABLE, table())))
    await job.coordinator.cancel_job("enough")
    assert await record_of(backend, TABLE) is None
    assert await job.state() is JobState.CANCELLED


async def test_a_conflict_at_the_end_fails_the_job_and_changes_nothing(backend):
    job = Job(backend)
    await job.plan(changes(put(TABLE, table()), put("tables/default/u", table("00000000000000bb"))))
    await make(backend, put(TABLE, table("00000000000000cc")))
    after = await job.end()
    assert after.state is JobState.FAILED
    assert after.outcome.failure.kind is FailureKind.USER_ERROR
    assert after.outcome.failure.message == (
        "table default.t was changed by another job while this one ran (it was made): submit it again"
    )
    assert (await record_of(backend, TABLE))["id"] == "00000000000000cc"
    assert await record_of(backend, "tables/default/u") is None
    assert await job.state() is JobState.FAILED


async def test_a_conflict_of_a_job_that_planning_ends_has_it_planned_anew(backend):
    job = Job(backend)
    made = await make(backend, put(TABLE, table(comment="old")))
    await job.jobs.submit(graph(job.job_id))
    await job.coordinator.launch_tasks([Share(SLOT, 1)])
    other = await make(backend, put(TABLE, table(comment="other"), made))
    after = await job.planned(changes(put(TABLE, table(comment="mine"), made)), is_ddl=True)
    assert after.is_active
    assert after.plan is None
    assert dict(after.stages[0].ledger.failures) == {0: 1}
    await job.coordinator.launch_tasks([Share(SLOT, 1)])
    after = await job.planned(changes(put(TABLE, table(comment="mine"), other)), is_ddl=True, attempt=1)
    assert after.state is JobState.SUCCESSFUL
    assert (await record_of(backend, TABLE))["spark"]["comment"] == "mine"


async def test_planned_anew_four_times_in_vain_the_job_fails_with_the_conflict(backend):
    job = Job(backend)
    await make(backend, put(TABLE, table()))
    await job.jobs.submit(graph(job.job_id))
    for attempt in range(4):
        await job.coordinator.launch_tasks([Share(SLOT, 1)])
        after = await job.planned(changes(put(TABLE, table(), 0)), is_ddl=True, attempt=attempt)
    assert after.state is JobState.FAILED
    assert after.outcome.failure.shown_kind == "catalog_changed"
    assert "table default.t was changed by another job" in after.outcome.failure.message


async def test_appends_of_many_jobs_at_once_all_win(backend):
    await make(backend, put(TABLE, table()))
    jobs = [Job(backend, f"job-{n}", f"s{n % 3}") for n in range(12)]
    for n, job in enumerate(jobs):
        await job.plan(changes(partitions({f"k={n}": {"n": n}}, {f"k={n}": None})))
    ended = await asyncio.gather(*(job.end() for job in jobs))
    assert {each.state for each in ended} == {JobState.SUCCESSFUL}
    assert await partitions_of(backend) == {f"k={n}": {"n": n} for n in range(12)}


async def test_of_two_schedulers_that_end_one_job_its_changes_are_made_once(backend):
    first, second = Job(backend, writer="s1"), Job(backend, writer="s2")
    await make(backend, put(TABLE, table()))
    await first.plan(
        changes(put(TABLE, table(comment="new"), (await backend.get(Keyspace.Catalog, TABLE)).mod_revision))
    )
    await second.jobs.load(second.job_id)
    await asyncio.gather(first.end(), second.end())
    assert await first.state() is JobState.SUCCESSFUL
    assert (await record_of(backend, TABLE))["spark"]["comment"] == "new"


async def test_what_does_not_fit_beside_the_end_is_stored_before_and_named_with_it(backend):
    """Ten thousand partitions of a table that the very job makes."""
    many = {f"k={n}": {"parameters": {"hash": f"{n * 7919 % 104729:064x}" * 4}} for n in range(10_000)}
    job = Job(backend)
    await job.plan(changes(put(TABLE, table()), partitions(many)))
    assert (await job.end()).state is JobState.SUCCESSFUL
    assert await partitions_of(backend) == many
