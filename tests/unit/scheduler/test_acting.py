from types import SimpleNamespace

from onager.ids import JobId
from scheduler.replicas import rendezvous
from scheduler.replicas.acting import Acting

JOBS = [JobId(f"job-{n}") for n in range(20)]


def test_looking_at_the_followed_jobs_finds_out_that_some_are_not_ours_any_more():
    peers = SimpleNamespace(live=frozenset({"me"}), id="me", listen=lambda _: None)
    acting = Acting(peers)
    for job_id in JOBS:
        acting.read(job_id)
    peers.live = frozenset({"me", "other"})  # nobody was told yet

    mine = [job_id for job_id in JOBS if rendezvous.first(job_id, peers.live) == "me"]
    assert acting.followed == mine
    assert 0 < len(mine) < len(JOBS)
