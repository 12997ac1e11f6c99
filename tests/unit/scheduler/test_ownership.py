from types import SimpleNamespace

from onager.ids import JobId
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.policy import rendezvous

JOBS = [JobId(f"job-{n}") for n in range(20)]


def test_the_driver_is_determined_again_when_schedulers_change():
    schedulers = SimpleNamespace(live=frozenset({"me"}), id="me")
    ownership = Ownership(schedulers)
    for job_id in JOBS:
        ownership.read(job_id)
    schedulers.live = frozenset({"me", "other"})
    assert ownership.on_schedulers()

    mine = [job_id for job_id in JOBS if rendezvous.first(job_id, schedulers.live) == "me"]
    assert ownership.followed == mine
    assert 0 < len(mine) < len(JOBS)
    assert not ownership.on_schedulers()
