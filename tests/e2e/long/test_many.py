"""A hundred jobs at once from ten clients: all right, in fair order, and no memory kept for them."""

import gc
from concurrent.futures import ThreadPoolExecutor

import onager
from tests.support.processes.cluster import Cluster

CLIENTS = 10
JOBS_EACH = 10
FLAT_BYTES = 64 * 1024 * 1024


def submit_all(cluster: Cluster) -> list[tuple[int, str, int]]:
    """Submit every job before any is waited for, and return number, id and answer of each."""

    def one_client(client_number: int):
        with onager.connect(cluster.address) as client:
            numbers = range(client_number * JOBS_EACH, (client_number + 1) * JOBS_EACH)
            jobs = [(n, client.sql(f"SELECT sum(id) AS s FROM range({1000 + n})")) for n in numbers]
            return [(n, job.id, job.to_arrow().column("s")[0].as_py()) for n, job in jobs]

    with ThreadPoolExecutor(CLIENTS) as pool:
        return [result for results in pool.map(one_client, range(CLIENTS)) for result in results]


def test_a_hundred_jobs_at_once(lone_cluster):
    cluster = lone_cluster
    first = submit_all(cluster)
    for number, _, answer in first:
        assert answer == sum(range(1000 + number))
    ended = {}
    for _, job_id, _ in first:
        progress = cluster.client.job(job_id).progress()
        ended[job_id] = (progress.submitted_ms, progress.ended_ms)
    by_submission = sorted(ended, key=lambda job_id: ended[job_id][0])
    by_end = sorted(ended, key=lambda job_id: ended[job_id][1])
    displacement = [abs(by_submission.index(job_id) - by_end.index(job_id)) for job_id in ended]
    assert max(displacement) <= 30, "first come, roughly first served"

    # What the first hundred needed is there; another hundred must not need more.
    before = cluster.scheduler.rss()
    submit_all(cluster)
    gc.collect()
    assert cluster.scheduler.rss() - before < FLAT_BYTES
