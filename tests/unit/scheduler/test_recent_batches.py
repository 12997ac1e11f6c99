"""Batches that were committed a moment ago, for those who follow a job."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onager.clock import ManualClock
from onager.execution_graph import EventBatch, JobCancelled
from onager.ids import JobId
from onager.scheduler.jobs import job_log, recent_batches
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.recent_batches import RecentBatches
from tests.unit.scheduler.small_graphs import forget, graph, store, succeeded
from tests.unit.scheduler.test_job_store import running, step

JOB, OTHER = JobId("job-1"), JobId("job-2")


def batch(number, events=1):
    cancelled = JobCancelled(reason=str(number), at_ms=number)
    return EventBatch(batch_id=str(number), events=(cancelled,) * events)


@given(
    first=st.integers(1, 5),
    committed=st.lists(st.integers(1, 4), max_size=12),
    position=st.integers(0, 20),
    limit=st.integers(1, 10),
    gap_at=st.integers(0, 12),
)
def test_what_is_found_is_what_was_committed_without_a_gap(first, committed, position, limit, gap_at):
    recent = RecentBatches(ManualClock())
    recent.after(JOB, 0, 1)
    kept = {}
    at = first
    for number, events in enumerate(committed):
        if number == gap_at:
            at, kept = at + 1, {}
        kept[at] = batch(at, events)
        recent.add(JOB, at, kept[at])
        at += 1
    found = recent.after(JOB, position, limit)
    assert all(kept[where] == what for where, what in found)
    positions = [where for where, _ in found]
    assert positions == list(range(position + 1, position + 1 + len(found)))
    assert bool(found) == (position + 1 in kept)
    counts = [len(what.events) for _, what in found]
    assert sum(counts[:-1]) < limit
    if found and positions[-1] + 1 in kept:
        assert sum(counts) >= limit


def test_jobs_that_nobody_reads_keep_nothing():
    clock = ManualClock()
    recent = RecentBatches(clock)
    recent.add(JOB, 1, batch(1))
    assert recent.after(JOB, 0, 10) == []
    recent.add(JOB, 2, batch(2))
    assert recent.after(JOB, 1, 10) == [(2, batch(2))]
    clock.advance(6_000)
    assert recent.after(OTHER, 0, 10) == []
    assert (recent._events, list(recent._jobs)) == (0, [OTHER]), "forgotten, though nothing more comes"


def test_all_jobs_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(recent_batches, "_MAX_EVENTS", 10)
    recent = RecentBatches(ManualClock())
    for job in (OTHER, JOB):
        recent.after(job, 0, 1)
    for at in range(1, 5):
        recent.add(OTHER, at, batch(at, 2))
        recent.add(JOB, at, batch(at, 2))
    assert [where for where, _ in recent.after(JOB, 0, 99)] == [1, 2, 3, 4]
    assert [where for where, _ in recent.after(OTHER, 3, 99)] == [4]
    assert recent.after(OTHER, 0, 99) == []
    recent.forget(JOB)
    assert recent.after(JOB, 0, 99) == []


async def test_who_keeps_up_reads_what_was_committed_without_asking_the_store(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    job = await running(jobs, 3)
    seen = await history.after(JOB, 0, 100)
    position = seen[-1].position
    for partition in range(2):
        job = await step(jobs, job, [succeeded(1, partition, at_ms=20)])
    with monkeypatch.context() as without_store:
        without_store.setattr(history, "_backend", None)
        mine = await history.after(JOB, position, 100)
    elsewhere = store(backend, clock, "s2")
    assert mine == await JobHistory(backend, elsewhere.recent).after(JOB, position, 100)
    assert [entry.position for entry in mine] == [position + 1, position + 2]
    # Another scheduler goes on: what is read of its batches is kept here as well.
    theirs = await step(elsewhere, await elsewhere.load(JOB), [succeeded(1, 2, at_ms=30)])
    assert not theirs.graph.is_active
    assert [entry.position for entry in await history.after(JOB, position + 2, 100)] == [theirs.seq]


async def test_a_look_at_a_job_does_not_decode_what_is_being_committed_here(backend, clock, monkeypatch):
    jobs = store(backend, clock, "s1")
    job = await running(jobs, 3)
    is_stored, is_read, may_answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
    put_txn, read_txn = backend.put_txn, backend.read_txn

    async def noted_read_txn(*args):
        found = await read_txn(*args)
        is_read.set()
        return found

    async def slow_put_txn(*args, **options):
        result = await put_txn(*args, **options)
        is_stored.set()
        await may_answer.wait()
        return result

    monkeypatch.setattr(backend, "put_txn", slow_put_txn)
    monkeypatch.setattr(backend, "read_txn", noted_read_txn)
    monkeypatch.setattr(job_log, "follow", lambda *_: pytest.fail("it was decoded"))
    committing = asyncio.create_task(step(jobs, job, [succeeded(1, 0, at_ms=20)]))
    await is_stored.wait()
    looking = asyncio.create_task(jobs.fresh(JOB))
    await is_read.wait()
    may_answer.set()
    assert (await looking).graph is (await committing).graph


async def test_sizes_go_on_where_another_schedulers_batches_are_followed(backend, clock, monkeypatch):
    mine, theirs = store(backend, clock, "s1"), store(backend, clock, "s2")
    job = await running(mine, 4)
    assert theirs.sizes.of((await theirs.fresh(JOB)).graph) == 0
    for partition in range(2):
        job = await step(mine, job, [succeeded(1, partition, at_ms=20)])
    monkeypatch.setattr("onager.scheduler.jobs.exchange_sizes._sum", lambda _: pytest.fail("added up anew"))
    assert theirs.sizes.of((await theirs.fresh(JOB)).graph) == 2


async def test_what_is_kept_of_a_job_is_forgotten_when_its_id_is_another_jobs(backend, clock):
    jobs = store(backend, clock, "s1")
    history = JobHistory(backend, jobs.recent)
    await history.after((await running(jobs, 1)).header.job_id, 0, 100)
    old = await step(jobs, await jobs.load(JOB), [succeeded(1, 0, at_ms=20)])
    assert not old.graph.is_active
    elsewhere = store(backend, clock, "s2")
    await forget(backend, JOB)
    await elsewhere.submit(graph(at_ms=5_000))
    jobs._ended.clear()  # as when others pushed it out
    assert (await jobs.load(JOB)).graph.submitted_ms == 5_000
    assert jobs.recent.after(JOB, old.seq - 1, 100) == []
