"""What fails at a scheduler each time ends its job, with a message; what passes, and other reports, do not."""

from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from onager.errors import DiskError, LimitExceededError, OnagerError, StateUnavailableError
from onager.execution_graph import ExecutorLost, FailureKind, JobState
from onager.protocol.task_keys import by_key
from onager.scheduler import timing
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.engine import reports
from onager.scheduler.engine.lasting_errors import TRIES
from onager.scheduler.policy.reservations import ExecutorReservation
from tests.unit.scheduler.pair import HERE, SLOT, THERE, job_of, report


@pytest.fixture(autouse=True)
def logs():
    with capture_logs() as logs:  # else each traceback is written with all that it holds
        yield logs


@pytest.fixture
def poisoned(monkeypatch):
    """Make the report of partition 1 fail, with the error that is put there."""
    errors = {}
    read = reports._succeeded

    def taken(graph, key, *args):
        if key.partition == 1 and key.job_id in errors:
            raise errors[key.job_id]
        return read(graph, key, *args)

    monkeypatch.setattr(reports, "_succeeded", taken)
    return errors


WHILE_MS = int(1000 * timing.GIVE_UP_S)


async def send(scheduler, keys):
    updated = await scheduler.tasks.update_task_statuses(SLOT, by_key(map(report, keys)), 0)
    return sorted(key.partition for key in updated.acknowledged)


async def outcome(pair, job_id):
    return (await pair.here.jobs.load(job_id)).graph


@pytest.mark.parametrize(
    "error", [KeyError("a defect"), LimitExceededError("a value of 9 MB")], ids=["defect", "limit"]
)
@pytest.mark.parametrize("driver", [HERE, THERE])
async def test_a_report_that_fails_each_time_ends_its_job_and_no_other(pair, poisoned, logs, error, driver):
    job_id, other = job_of(driver), job_of(driver, 1)
    for each in (job_id, other):
        await pair.run_job(each, 4)
    keys = await pair.fill(6)
    poisoned[job_id] = error
    mine = [key for key in keys if key.job_id == job_id]
    assert len(mine) == 3
    first = await send(pair.here, keys)
    assert first.count(1) == 1, "the other job's"
    assert len(first) == len(keys) - 1, "those beside it"
    (poison,) = (key for key in mine if key.partition == 1)
    for _ in range(TRIES - 1):
        assert await send(pair.here, [poison]) == []
    pair.clock.advance(WHILE_MS)
    assert await send(pair.here, [poison]) == [1]
    assert "job_given_up" in {entry["event"] for entry in logs}
    graph = await outcome(pair, job_id)
    assert graph.state is JobState.FAILED
    assert graph.outcome.failure.kind is FailureKind.USER_ERROR
    assert type(error).__name__ in graph.outcome.failure.message
    assert str(poison) in graph.outcome.failure.message
    assert (await outcome(pair, other)).is_active
    assert not any(scheduler.local._errors._tries for scheduler in pair.schedulers.values())


@pytest.mark.parametrize(
    "error", [StateUnavailableError("down"), DiskError("it hangs")], ids=lambda e: type(e).__name__
)
async def test_what_passes_is_tried_again_for_as_long_as_it_takes(pair, poisoned, error):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(2)
    poisoned[job_id] = error
    for _ in range(3 * TRIES):
        assert await send(pair.here, keys) == []
        pair.clock.advance(WHILE_MS)
    poisoned.clear()
    assert await send(pair.here, keys) == [0, 1]


async def test_a_success_in_between_begins_the_count_anew(pair, poisoned):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 2)
    keys = await pair.fill(2)
    poisoned[job_id] = KeyError("once")
    assert await send(pair.here, keys) == [0]
    poisoned.clear()
    assert await send(pair.here, keys[1:]) == [1]
    assert not pair.here.local._errors._tries.get(job_id)


async def test_a_job_whose_tasks_cannot_be_launched_ends(pair, monkeypatch):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 2)
    coordinator = pair.here.local.coordinator(job_id)

    async def broken(*_, **__):
        raise KeyError("a defect")

    monkeypatch.setattr(coordinator, "launch_tasks", broken)
    for _ in range(TRIES):
        with pytest.raises(NotDrivingError):
            await pair.here.local.fill_reservations(job_id, [ExecutorReservation.of(SLOT)])
        pair.clock.advance(WHILE_MS)
    graph = await outcome(pair, job_id)
    assert graph.state is JobState.FAILED
    assert "failed 5 times within 120 s at the launch of tasks with KeyError" in graph.outcome.failure.message


@pytest.mark.parametrize("work", ["loss", "comparison", "adoption"])
async def test_a_job_at_which_other_work_fails_each_time_ends_and_others_have_it_done(pair, monkeypatch, work):
    job_id, other = job_of(HERE), job_of(HERE, 1)
    for each in (job_id, other):
        await pair.run_job(each, 2)
    await pair.fill(4)
    local = pair.here.local
    lost = ExecutorLost(executor_id=SLOT.executor_id, incarnation="life", reason="gone", at_ms=1)

    async def loss():
        with suppress(OnagerError):
            await local.lose_executor(lost)

    async def comparison():
        await local.compare_tasks(SLOT, [], disproves=True)

    async def adoption():
        for each in (job_id, other):
            await local.adopt(each)

    async def broken(*_, **__):
        raise KeyError("a defect")

    names = {"loss": "lose_executor", "comparison": "reconcile_tasks", "adoption": "revive"}
    monkeypatch.setattr(local.coordinator(job_id), names[work], broken)
    act = {"loss": loss, "comparison": comparison, "adoption": adoption}[work]
    for _ in range(TRIES):
        await act()
        pair.clock.advance(WHILE_MS)
    graph = await outcome(pair, job_id)
    assert graph.state is JobState.FAILED
    assert "with KeyError" in graph.outcome.failure.message
    if work == "loss":
        assert not (await outcome(pair, other)).stages[1].running
    assert (await outcome(pair, other)).is_active


async def test_a_loss_that_the_store_does_not_take_reaches_the_caller_as_it_was(pair, monkeypatch):
    job_id = job_of(HERE)
    await pair.run_job(job_id, 2)
    await pair.fill(2)

    async def down(*_, **__):
        raise StateUnavailableError("down")

    monkeypatch.setattr(pair.here.local.coordinator(job_id), "lose_executor", down)
    lost = ExecutorLost(executor_id=SLOT.executor_id, incarnation="life", reason="gone", at_ms=1)
    with pytest.raises(StateUnavailableError):
        await pair.here.local.lose_executor(lost)
