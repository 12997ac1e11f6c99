"""An executor that fails everything gets no work for a while; one that is merely unlucky, or the last one, does."""

from types import SimpleNamespace

import pytest

from onager.execution_graph import ExecutorSlot, Failure, FailureKind, TaskFailed
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.executors.outcomes import ExecutorHealth, Work
from onager.scheduler.executors.quarantine import Quarantine
from tests.unit.scheduler.executor_managers import ALONE, nothing, request
from tests.unit.scheduler.small_graphs import succeeded

BAD = ("bad", "one")


def work(partition, stage_id=1):
    return Work("job-1", stage_id, partition)


def health(failures=4, window_s=60):
    return ExecutorHealth(failures=failures, window_s=window_s)


def names(health, now_s=0.0, elsewhere=lambda *_: True):
    return [suspect.life for suspect in health.suspects(now_s, elsewhere)]


# ---------------------------------------------------------------- suspected executors


def test_different_tasks_have_to_fail():
    found = health()
    for _ in range(9):
        found.failed(BAD, work(0), 0)
    assert names(found) == []
    for partition in (1, 2, 3):
        found.failed(BAD, work(partition), 0)
    assert names(found) == [BAD]


def test_hardly_any_may_succeed():
    found = health()
    for partition in range(17):
        found.failed(BAD, work(partition), 0)
    found.succeeded(BAD, work(90), 0)
    assert names(found) == [BAD]
    found.succeeded(BAD, work(91), 0)
    assert names(found) == [], "two of nineteen succeeded"
    found.failed(BAD, work(17), 0)
    assert names(found) == [BAD]


def test_what_fails_everywhere_is_not_the_executors_fault():
    found = health()
    for partition in range(9):
        found.failed(BAD, work(partition), 0)
    assert names(found, elsewhere=lambda *_: False) == []
    assert names(found, elsewhere=lambda task, executor: executor == "bad" and task.partition < 3) == []
    assert names(found, elsewhere=lambda task, executor: executor == "bad" and task.partition < 4) == [BAD]


def test_failures_grow_old():
    found = health()
    for partition in range(4):
        found.failed(BAD, work(partition), 20 * partition)
    assert names(found, 60) == [BAD]
    assert names(found, 61) == []


def test_lives_are_distinguished_and_nobody_is_suspected_where_that_is_off():
    found, off = health(), health(failures=0)
    for partition in range(4):
        found.failed(("bad", str(partition % 2)), work(partition), 0)
        off.failed(BAD, work(partition), 0)
    assert names(found) == []
    assert names(off) == []


# ---------------------------------------------------------------- quarantine


async def unseen(lost, *, is_late=False):
    pass


class Ward:
    def __init__(self, backend, clock):
        self.backend, self.clock = backend, clock
        outputs = {0: SimpleNamespace(executor_id="good")}
        stage = SimpleNamespace(ledger=SimpleNamespace(outputs=outputs))
        job = SimpleNamespace(graph=SimpleNamespace(stages=[stage, stage]))
        self.jobs = SimpleNamespace(cached=lambda job_id: job if job_id == "job-1" else None)
        self.managers = []

    async def scheduler(self):
        manager = ExecutorManager(
            self.backend,
            self.clock,
            lease_ttl_s=600,
            connection_grace_s=1,
            lost_retention_s=600,
            precedence=ALONE,
            machine="here",
        )
        manager.serve(on_lost=unseen, on_take_over=nothing)
        await manager.start()
        quarantine = Quarantine(self.backend, manager, self.jobs, self.clock, failures=4, window_s=60, for_s=300)
        return manager, quarantine

    def fails(self, quarantine, executor_id, count=4, kind=FailureKind.IO_ERROR, job_id="job-1"):
        events = [
            TaskFailed(
                stage_id=1,
                stage_attempt=0,
                partition=partition,
                task_attempt=0,
                executor_id=executor_id,
                failure=Failure(kind=kind, message="no space left"),
                at_ms=1,
            )
            for partition in range(count)
        ]
        quarantine.record_events(job_id, ExecutorSlot(executor_id, "one", 0), events)


@pytest.fixture
async def ward(backend, clock):
    made = Ward(backend, clock)
    manager, _ = await made.scheduler()
    await manager.register(request("bad"))
    await manager.register(request("good"))
    return made


async def test_an_executor_that_fails_everything_is_quarantined_and_comes_back(ward, clock):
    manager, quarantine = await ward.scheduler()
    other, _ = await ward.scheduler()
    ward.fails(quarantine, "bad")
    await quarantine.look()

    assert manager.taking_work() == {"good"}
    assert manager.total_slots == 2
    await other.refresh()
    assert other.taking_work() == {"good"}, "all schedulers know"
    (bad, good) = other.infos()
    assert (bad.state, good.state) == ("quarantined", "alive")
    assert bad.quarantined_until_ms == clock.now_ms() + 300_000
    assert bad.reason.startswith("4 different tasks failed there within 60 s, 0 succeeded")
    clock.advance(299_999)
    assert manager.taking_work() == {"good"}
    clock.advance(1)
    assert manager.taking_work() == {"bad", "good"}
    assert manager.infos()[0].state == "alive"
    await quarantine.look()
    assert manager.taking_work() == {"bad", "good"}, "it begins anew"


async def test_failures_that_do_not_count_and_successes_quarantine_nobody(ward):
    manager, quarantine = await ward.scheduler()
    ward.fails(quarantine, "bad", kind=FailureKind.USER_ERROR)
    ward.fails(quarantine, "bad", kind=FailureKind.TASK_KILLED)
    ward.fails(quarantine, "bad", job_id="gone")
    await quarantine.look()
    assert manager.taking_work() == {"bad", "good"}
    ward.fails(quarantine, "bad")
    quarantine.record_events("job-1", ExecutorSlot("bad", "one", 0), [succeeded(1, 9)])
    await quarantine.look()
    assert manager.taking_work() == {"bad", "good"}


async def test_the_last_one_that_takes_work_stays(ward):
    manager, quarantine = await ward.scheduler()
    ward.fails(quarantine, "bad")
    await quarantine.look()
    ward.jobs.cached("job-1").graph.stages[1].ledger.outputs[0].executor_id = "bad"
    ward.fails(quarantine, "good")
    await quarantine.look()
    assert manager.taking_work() == {"good"}


async def test_two_schedulers_do_not_quarantine_the_last_two_at_once(ward):
    (one, first), (two, second) = await ward.scheduler(), await ward.scheduler()
    outputs = ward.jobs.cached("job-1").graph.stages[1].ledger.outputs
    outputs[1] = SimpleNamespace(executor_id="bad")
    ward.fails(first, "bad")
    ward.fails(second, "good")
    await first.look()
    await second.look()  # it still believes that both take work
    await second.look()
    await one.refresh()
    assert one.taking_work() == two.taking_work() == {"good"}


async def test_a_new_life_is_not_quarantined(ward):
    manager, quarantine = await ward.scheduler()
    ward.fails(quarantine, "bad")
    await quarantine.look()
    await manager.register(request("bad", "two"))
    assert manager.taking_work() == {"bad", "good"}


async def test_draining_keeps_its_state(ward, clock):
    manager, quarantine = await ward.scheduler()
    ward.fails(quarantine, "bad")
    await quarantine.look()
    session = await manager.take_over("bad", "one")
    await manager.drain(session)
    assert manager.infos()[0].state == "draining"
    clock.advance(300_000)
    assert manager.taking_work() == {"good"}
