"""The cost of frequent work for one executor, task or watcher does not grow with the number of others.

Each is counted at two sizes, the second four times the first: what grows with the others takes four times as long.
"""

from types import SimpleNamespace

import pytest
from msgspec.structs import asdict, replace

from onager.execution_graph import (
    ExecutorLife,
    ExecutorLost,
    ExecutorSlot,
    OutputLayout,
    RunningStage,
    StageInput,
    TaskSucceeded,
    UnresolvedStage,
    apply_all,
    pop_next_tasks,
    revive,
)
from onager.ids import ExecutorId, Incarnation, JobId, Partition, StageId, TaskKey
from onager.scheduler.app import SchedulerApp
from onager.scheduler.jobs.exchange_sizes import ExchangeSizes
from onager.scheduler.jobs.held_tasks import HeldTasks
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.input_locality import InputLocality
from onager.scheduler.settings import SchedulerSettings
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.executor_managers import request
from tests.unit.scheduler.small_graphs import graph, planned, succeeded
from tests.unit.scheduler.steps import steps
from tests.unit.scheduler.test_job_store import launches

SMALL, LARGE = 30, 120
JOB = JobId("job-1")
LIFE = Incarnation("life")


def hardly_grows(work):
    """Return whether *work*, which returns its steps at a given size, takes about as many at a larger size."""
    small, large = work(SMALL), work(LARGE)
    assert small, "nothing was done"
    return large < 1.6 * small


def executor(number):
    return ExecutorId(f"e{number}")


def at_work(tasks):
    """Return a job whose tasks all run, each on another executor."""
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(tasks)])
    found = apply_all(found, [revive(found, 2)])
    return apply_all(found, [launch(found, number) for number in range(tasks)])


def launch(found, number):
    event = pop_next_tasks(found, ExecutorSlot(executor(number), LIFE, 1), 1, 3)
    return replace(event, tasks=((number, 0),))


def key(partition, job_id=JOB):
    return TaskKey(job_id, StageId(1), 0, Partition(partition), 0)


def test_what_an_executor_holds_is_known_without_a_look_at_the_others():
    def work(size):
        found, held = at_work(size), HeldTasks()
        held.learn(JOB, found, None)
        life = ExecutorLife(executor(1), LIFE)
        assert [len(tasks) for _, tasks in held.of(life, lambda _: found)] == [1]
        return steps(lambda: list(held.of(life, lambda _: found)))

    assert hardly_grows(work)


def test_what_is_launched_and_ends_is_followed_without_a_look_at_all_that_runs():
    def work(size):
        before, held = at_work(size), HeldTasks()
        held.learn(JOB, before, None)
        done = done_by(1)
        after = apply_all(before, [done])
        return steps(lambda: held.learn(JOB, after, [done]))

    assert hardly_grows(work)


def done_by(number):
    event = succeeded(1, number)
    return replace(event, executor_id=executor(number))


def test_what_is_held_stays_right_and_small_whatever_happens():
    found, held = at_work(LARGE), HeldTasks()
    held.learn(JOB, found, None)
    for number in range(LARGE - 1):
        done = done_by(number)
        found = apply_all(found, [done])
        held.learn(JOB, found, [done])
    for number in range(LARGE):
        life = ExecutorLife(executor(number), LIFE)
        tasks = [task.partition for _, tasks in held.of(life, lambda _: found) for task in tasks]
        assert tasks == ([number] if number == LARGE - 1 else [])
    held.forget(JOB)
    assert (held._lives, held._jobs, held._sizes) == ({}, {}, {})


def test_a_launch_is_held_at_once():
    found, held = at_work(2), HeldTasks()
    held.learn(JOB, found, None)
    life = ExecutorLife("e9", "life")
    found = graph()
    found = apply_all(found, launches(found))
    found = apply_all(found, [planned(3)])
    found = apply_all(found, [revive(found, 2)])
    held.learn(JOB, found, None)
    event = pop_next_tasks(found, ExecutorSlot("e9", "life", 1), 2, 3)
    found = apply_all(found, [event])
    held.learn(JOB, found, [event])
    assert [sorted(t.partition for t in tasks) for _, tasks in held.of(life, lambda _: found)] == [[0, 1]]
    assert not list(held.of(life, lambda _: None)), "of a job that is not followed nothing is said"


# ---------------------------------------------------------------- outputs


def reading(tasks):
    """Return a job whose second stage runs, and reads the output of the first."""
    found = graph()
    found = apply_all(found, launches(found))
    plan = planned(tasks)
    first = replace(plan.stages[0], output=OutputLayout("exchange"))
    second = replace(first, stage_id=2, inputs=(StageInput(1, "all"),), output=OutputLayout("result"))
    summary = replace(plan.summary, result_stage_id=2)
    found = apply_all(found, [replace(plan, stages=(first, second), summary=summary)])
    found = apply_all(found, [revive(found, 2)])
    found = apply_all(found, [launch(found, number) for number in range(tasks)])
    assert isinstance(found.stages[2], UnresolvedStage)
    found = apply_all(found, [done_by(number) for number in range(tasks)])
    return apply_all(found, [revive(found, 2)])


def test_where_input_lies_is_added_up_once_for_an_attempt():
    def work(size):
        found, inputs = reading(size), InputLocality()
        assert isinstance(found.stages[2], RunningStage)
        assert inputs.part(found, found.stages[2], executor(1)) == pytest.approx(1 / size)
        return steps(lambda: inputs.part(found, found.stages[2], executor(2)))

    assert hardly_grows(work)


def test_where_input_lies_is_not_settled_before_all_of_it_is_there():
    """A stage that streams runs while its input is still being made."""
    found, inputs = reading(3), InputLocality()
    still_made = replace(
        found, stages=[*found.stages[:1], replace(at_work(3).stages[1], spec=found.stages[1].spec), found.stages[2]]
    )
    assert inputs.part(still_made, found.stages[2], executor(1)) == 0
    assert inputs.part(found, found.stages[2], executor(1)) == pytest.approx(1 / 3)


def test_the_size_of_what_lies_in_the_exchange_grows_with_each_output():
    def work(size):
        before, sizes = at_work(size), ExchangeSizes()
        before = apply_all(before, [done_by(number) for number in range(size - 2)])
        sizes.learn(JOB, None, before, ())
        assert sizes.of(before) == size - 2
        done = done_by(size - 1)
        after = apply_all(before, [done])
        received = []

        def watch():
            sizes.learn(JOB, before, after, [done])
            received.append(sizes.of(after))

        taken = steps(watch)
        assert received == [size - 1]
        return taken

    assert hardly_grows(work)


def test_sizes_are_added_up_anew_where_outputs_were_lost():
    sizes = ExchangeSizes()
    first = done_by(0)
    first = replace(first, output=replace(first.output, is_shared=False))
    before = apply_all(at_work(3), [first, done_by(1)])
    sizes.learn(JOB, None, before, ())
    assert sizes.of(before) == 2
    lost = ExecutorLost(executor_id=executor(0), incarnation=LIFE, reason="gone", at_ms=20)
    after = apply_all(before, [lost])
    sizes.learn(JOB, before, after, [lost])
    assert sizes.of(after) == sum(o.bytes for o in after.stages[1].ledger.outputs.values())
    twice = TaskSucceeded(**asdict(first))
    sizes.learn(JOB, after, after, [twice])
    assert sizes.of(after) == sum(o.bytes for o in after.stages[1].ledger.outputs.values())


def test_nothing_is_kept_of_a_job_that_ended_before_somebody_had_asked():
    sizes = ExchangeSizes()
    before = apply_all(at_work(3), [done_by(0)])
    sizes.learn(JOB, None, before, ())
    sizes.forget(JOB)
    assert sizes.of(before) == 1
    assert not sizes._totals


# ---------------------------------------------------------------- the queue, registrations


def test_a_slot_of_a_session_that_becomes_free_wakes_one_of_its_jobs():
    def work(size):
        queue = FairQueue()
        for number in range(size):
            queue.update(
                JobId(f"j{number:03}"),
                submitted_ms=number,
                weight=1,
                running=0,
                available=2,
                session="s",
                session_max_tasks=1,
            )
        first = queue.take_job()
        assert queue.take_job() is None, "the session is full"

        def go_on():
            queue.give_back_slots(first, 1)
            assert queue.take_job() is not None
            assert queue.take_job() is None

        return steps(go_on)

    assert hardly_grows(work)


async def test_an_executor_that_comes_new_has_no_job_read(clock):
    async def reads(jobs):
        backend = MemoryBackend(MemoryStore(clock))
        scheduler = SchedulerApp(SchedulerSettings(exchange_dir="/x", listen="127.0.0.1:1"), backend, clock)
        await scheduler.start()
        for number in range(jobs):
            await scheduler.jobs.submit(graph(f"job-{number}"))
        count = 0
        read = MemoryBackend._read

        async def counted(*arguments):
            nonlocal count
            count += 1
            return await read(backend, *arguments)

        backend._read = counted
        for number in range(5):
            given = request(executor(number))
            await scheduler.gateway.RegisterExecutor(given, SimpleNamespace(peer=lambda: "elsewhere"))
        new, count = count, 0
        again = request(executor(0), "another-life")
        await scheduler.gateway.RegisterExecutor(again, SimpleNamespace(peer=lambda: "elsewhere"))
        assert count > jobs, "what others may have handed to its life before is to be known"
        return new

    assert await reads(3) == await reads(12)
