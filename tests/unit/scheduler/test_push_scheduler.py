"""Slots of push executors in the hand: none is forgotten there."""

from types import SimpleNamespace

from onager.errors import StateUnavailableError
from onager.ids import ExecutorId, Incarnation, JobId
from scheduler.tasks.distribution import Place
from scheduler.tasks.push_scheduler import PushScheduler
from scheduler.tasks.reservations import ExecutorReservation

JOB = JobId("job-1")


async def test_slots_that_were_taken_count_though_those_of_another_executor_could_not_be():
    async def reserve(executor_id, jobs):
        if executor_id == "e1":
            raise StateUnavailableError("the store does not answer")
        return [ExecutorReservation(executor_id, Incarnation("life"), 0, job_id) for job_id in jobs]

    places = [Place(ExecutorId(executor_id), JOB) for executor_id in ("e1", "e2", "e2")]
    found = await PushScheduler.reserve_slots(SimpleNamespace(_reserve=reserve), places)
    assert [r.executor_id for r in found] == ["e2", "e2"]
