"""Jobs that a scheduler begins to drive: what fails meanwhile is done again."""

import pytest

from onager.errors import StateUnavailableError
from onager.execution_graph import ExecutorLost
from tests.unit.scheduler.pair import HERE, job_of


async def test_jobs_are_notified_of_losses_that_the_store_did_not_take_when_they_were_adopted(pair, monkeypatch):
    jobs = [job_of(HERE, number) for number in range(3)]
    for job_id in jobs:
        await pair.run_job(job_id, 1)
    adoption, received = pair.here.adoption, []
    losses = [ExecutorLost(executor_id=name, incarnation="life", reason="gone", at_ms=1) for name in ("e1", "e2")]

    async def lose(lost, *, jobs):
        received.append((lost.executor_id, sorted(jobs)))
        if len(received) == 1:
            raise StateUnavailableError("down")

    monkeypatch.setattr(pair.here.executors, "recent_losses", lambda: losses)
    monkeypatch.setattr(pair.here.local, "lose_executor", lose)
    adoption.waiting = dict.fromkeys(jobs)
    with pytest.raises(StateUnavailableError):
        await adoption.adopt_all()
    await adoption.adopt_all()
    assert received == [("e1", sorted(jobs)), ("e1", sorted(jobs)), ("e2", sorted(jobs))]
