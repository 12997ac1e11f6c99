"""Slots of push executors in the hand: none is forgotten there."""

import asyncio
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from onager.clock import ManualClock
from onager.errors import InvalidRequestError, StateUnavailableError
from onager.ids import ExecutorId, Incarnation, JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientAccess, ClientSecurity
from onager.protocol.task_keys import task_key
from onager.scheduler.engine.push_scheduler import PushScheduler
from onager.scheduler.policy.distribution import Place
from onager.scheduler.policy.reservations import ExecutorReservation, Filled, Launch, Updated
from onager.scheduler.policy.slot_books import SlotBooks

JOB = JobId("job-1")
E1, LIFE = ExecutorId("e1"), Incarnation("life")


async def test_slots_that_were_taken_count_though_those_of_another_executor_could_not_be():
    async def reserve(executor_id, jobs):
        if executor_id == "e1":
            raise StateUnavailableError("the store does not answer")
        return [ExecutorReservation(executor_id, Incarnation("life"), 0, job_id) for job_id in jobs]

    places = [Place(ExecutorId(executor_id), JOB) for executor_id in ("e1", "e2", "e2")]
    found = await PushScheduler.reserve_slots(SimpleNamespace(_reserve=reserve), places)
    assert [r.executor_id for r in found] == ["e2", "e2"]


async def test_what_is_committed_is_delivered_though_the_executor_has_given_the_call_up():
    push = PushScheduler.__new__(PushScheduler)
    push._working = set()
    gate, delivered = asyncio.Event(), []

    async def work(session, request):
        await gate.wait()
        delivered.append((session, request))

    push._report = work
    call = asyncio.create_task(push.report("session", "request"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    await asyncio.gather(*push._working)
    assert delivered == [("session", "request")]


def test_an_executor_that_would_be_sent_plaintext_from_elsewhere_is_refused():
    push = PushScheduler.__new__(PushScheduler)
    push.launcher = SimpleNamespace(check=ClientAccess(ClientSecurity(), ()).check)
    request = pb.RegisterExecutorRequest(executor_id="e1", mode="push", address="executor.example:1")
    with pytest.raises(InvalidRequestError, match="ONAGER_SCHEDULER_PEER_TLS_CA"):
        push.check_reachable(request)
    request.address = "127.0.0.1:1"
    push.check_reachable(request)
    push.check_reachable(pb.RegisterExecutorRequest(executor_id="e1"))


class Reported:
    """A scheduler that is told of a task which another one has launched."""

    def __init__(self):
        self.push = push = PushScheduler.__new__(PushScheduler)
        self.given_up = []
        self.outcome = None
        push.ledger = SlotBooks()
        push.pool = SimpleNamespace(holder="me", settle=lambda e, given_up: self.given_up.append((e, dict(given_up))))
        push._executors = SimpleNamespace(takes_work=lambda session: not session.is_draining)
        push._tasks = SimpleNamespace(update_task_statuses=self.update)
        push._claimed, push._working, push.confirmed = OrderedDict(), set(), {}
        push._clock = ManualClock()
        self.held = []

    async def update(self, slot, reports, freed):
        del slot
        self.held.append((self.push.ledger.held("e1", "life"), freed))
        if self.outcome is not None:
            raise self.outcome
        return Updated([task_key(report.task) for report in reports], [], [])

    async def report(self, holder="another"):
        task = pb.TaskId(job_id=JOB, stage_id=1)
        session = SimpleNamespace(executor_id="e1", incarnation="life", is_draining=False, slot=None)
        reports = [pb.TaskReport(task=task, holder=holder)]
        return await self.push.report(session, pb.ReportTasksRequest(reports=reports, freed_slots=1))


async def test_the_slot_of_a_task_that_another_scheduler_launched_is_taken_over_once():
    told = Reported()
    await told.report()
    assert told.held == [(1, 1)]
    assert told.given_up == [("e1", {"another": 1})]
    assert told.push.ledger.held("e1", "life") == 0  # nothing was ready for it
    await told.report()
    assert told.held[1] == (0, 0)
    assert len(told.given_up) == 1


async def test_a_report_that_could_not_be_stored_takes_nothing_over_until_it_is():
    told = Reported()
    told.outcome = StateUnavailableError("the store does not answer")
    with pytest.raises(StateUnavailableError):
        await told.report()
    assert (told.push.ledger.held("e1", "life"), told.given_up) == (0, [])
    told.outcome = None
    await told.report()
    assert told.held[1] == (1, 1)
    assert told.given_up == [("e1", {"another": 1})]


async def test_a_slot_that_is_not_in_the_books_is_not_ours_whoever_says_so():
    told = Reported()
    await told.report(holder="me")
    await told.report(holder="")
    assert told.held == [(0, 0), (0, 0)]
    assert told.given_up == []


@pytest.mark.parametrize("record", [None, SimpleNamespace(executor_id="e1", incarnation="life", state="lost")])
async def test_slots_are_given_back_whose_tasks_are_not_sent_because_the_executor_seems_to_be_lost(record):
    push = PushScheduler.__new__(PushScheduler)
    push.ledger, push._clock = SlotBooks(), ManualClock()
    push._executors = SimpleNamespace(find=lambda _: record, is_alive=lambda *_: False)
    given_back = []
    push.cancel_reservations = given_back.extend

    async def fill(reservations):
        tasks = [pb.TaskAttempt(partition=p) for p in range(2)]
        launch = Launch("e1", pb.TaskSet(job_id=JOB, stage_id=1, tasks=tasks))
        return Filled([launch], list(reservations[2:]))

    push._tasks = SimpleNamespace(fill_reservations=fill)
    reserved = [ExecutorReservation(E1, LIFE, 0, JOB) for _ in range(3)]
    push.ledger.take_in_hand(E1, LIFE, 3)
    changed = []
    push.ledger.listen(changed.append)
    await push._fill(reserved)
    assert (push.ledger.held(E1, LIFE), given_back) == (1, reserved[2:])
    assert changed == ["e1"]  # so it is written down


async def test_tasks_that_are_sent_no_more_are_in_nobodys_books():
    push = PushScheduler.__new__(PushScheduler)
    push.ledger = SlotBooks()
    keys = [TaskKey(JOB, StageId(1), 0, Partition(p), 0) for p in range(3)]
    push.ledger.adopt(E1, LIFE, keys, 0.0)
    push.given_up(SimpleNamespace(executor_id="e1"), keys[:1])
    push.withdrawn(SimpleNamespace(executor_id="e1"), keys[1:2])
    assert [push.ledger.has(E1, key) for key in keys] == [False, False, True]
