"""Rows of what programs cache: which job's rows are read, how long they stay, and which go."""

import pytest

from onager.caches import cache_fingerprint, cache_of
from onager.ids import JobId
from onager.scheduler.engine.caches import GRACE_MS
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_heads import JobTerms
from onager.state_backend.memory import MemoryStore
from tests.unit.scheduler.reuse_world import Cluster, plan_of

A, B = JobId("a"), JobId("b")
ANN = JobTerms(principal="ann")
ONE, OTHER = "1" * 32, "2" * 32
ROWS = cache_fingerprint(ONE, digest_of(b"files"))
LATER = cache_fingerprint(ONE, digest_of(b"other files"))
OTHERS = cache_fingerprint(OTHER, digest_of(b"files"))
DAY_MS = 86_400_000


@pytest.fixture
async def cluster(clock):
    made = Cluster(MemoryStore(clock), clock, "s")
    await made.start()
    yield made
    await made.app.close()


async def run(cluster, job_id, *prints, terms=ANN):
    """Run a job whose stages have *prints*; random ones, as far as its plan knows."""
    await cluster.refresh()
    return await cluster.run(job_id, terms, plan_of(*prints, deterministic=False))


async def sweep(cluster):
    await cluster.app.caches.tidy()
    await cluster.app.retention.sweep()


def offered(cluster, job_id):
    return {cache_of(fingerprint) for fingerprint in cluster.head(job_id).reusable}


def test_only_what_is_called_so_is_a_cache():
    assert cache_of(ROWS) == ONE
    others = ["", digest_of(b"x"), f"cache-{ONE}", ROWS + "0", ROWS.replace("1", "x")]
    assert [cache_of(other) for other in others] == [""] * len(others)


async def test_rows_are_made_once_though_they_may_differ(cluster):
    assert await run(cluster, A, ROWS) == [1, 2]
    assert await run(cluster, B, ROWS) == [2]
    assert await run(cluster, "c", ROWS, terms=JobTerms(principal="bob")) == [1, 2]
    assert await run(cluster, "d", LATER) == [1, 2], "a file has changed"
    assert await run(cluster, "e", OTHERS) == [1, 2]


@pytest.mark.parametrize("reuse", ["off", "job", "cluster"])
async def test_what_a_job_reuses_besides_makes_no_difference(cluster, reuse):
    terms = JobTerms(principal="ann", reuse=reuse)
    assert await run(cluster, A, ROWS, terms=terms) == [1, 2]
    assert await run(cluster, B, ROWS, terms=terms) == [2]


async def test_of_two_that_made_them_at_once_the_first_one_counts(cluster, clock):
    await cluster.refresh()
    plan = plan_of(ROWS, deterministic=False, tasks=1)
    first, second = [await cluster.begin(job_id, ANN, plan) for job_id in (A, B)]
    await cluster.finish(second)
    clock.advance(1)
    await cluster.finish(first)
    await cluster.refresh()
    (launched,) = await cluster.begin("c", ANN, plan)
    assert [location.job_id for location in launched.inputs] == [B]
    await sweep(cluster)
    assert (offered(cluster, A), offered(cluster, B)) == (set(), {ONE})


async def test_rows_outlive_results_and_records_until_they_are_dropped(cluster, clock):
    await run(cluster, A, ROWS)
    for _ in range(3):
        clock.advance(DAY_MS)
        await sweep(cluster)
        assert offered(cluster, A) == {ONE}
        assert all("1/" in kept for kept in (await cluster.asked()).values())
    assert not cluster.head(A).has_result
    assert await run(cluster, B, ROWS) == [2]
    await cluster.app.caches.drop([OTHER])
    assert offered(cluster, A) == {ONE}
    await cluster.app.caches.drop([ONE])
    assert (await cluster.asked())[A] == []
    await sweep(cluster)
    await sweep(cluster)
    assert cluster.head(A) is None, "its time is over"


async def test_a_job_that_made_several_keeps_the_others(cluster):
    await run(cluster, A, OTHERS, ROWS)
    await cluster.app.caches.drop([ONE])
    assert offered(cluster, A) == {OTHER}
    assert (await cluster.asked())[A][0] == "1/"


async def test_stale_rows_go_and_what_no_session_has(cluster, clock):
    await run(cluster, A, ROWS)
    clock.advance(1)
    await run(cluster, B, LATER)
    await sweep(cluster)
    assert (offered(cluster, A), offered(cluster, B)) == (set(), {ONE})
    await cluster.app.caches.keep({OTHER}, clock.now_ms() + GRACE_MS)
    assert offered(cluster, B) == {ONE}, "its session may have begun since"
    await cluster.app.caches.keep({ONE}, clock.now_ms() + 2 * GRACE_MS)
    assert offered(cluster, B) == {ONE}
    await cluster.app.caches.keep({OTHER}, clock.now_ms() + 2 * GRACE_MS)
    assert offered(cluster, B) == set()
