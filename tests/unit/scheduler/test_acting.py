from types import SimpleNamespace

from onager.ids import JobId
from scheduler.replicas import rendezvous
from scheduler.replicas.acting import Acting

JOBS = [JobId(f"job-{n}") for n in range(20)]


def test_who_follows_is_found_out_anew_when_others_come():
    listeners = []
    peers = SimpleNamespace(live=frozenset({"me"}), id="me", listen=listeners.append)
    acting = Acting(peers)
    for job_id in JOBS:
        acting.read(job_id)
    peers.live = frozenset({"me", "other"})
    for listener in listeners:
        listener()

    mine = [job_id for job_id in JOBS if rendezvous.first(job_id, peers.live) == "me"]
    assert acting.followed == mine
    assert 0 < len(mine) < len(JOBS)
