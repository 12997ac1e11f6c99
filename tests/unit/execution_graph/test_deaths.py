"""JVMs that ended by themselves: which task is the cause, and which are not."""

import pytest

from onager.execution_graph import (
    Event,
    ExecutorLost,
    ExecutorSlot,
    Failed,
    FailureKind,
    JvmDeath,
    SpeculationPolicy,
    SuspectTask,
    TasksLaunched,
    find_culprit,
    find_stragglers,
    is_alone,
    pop_next_tasks,
)
from tests.unit.execution_graph.builder import Job, planned, stage


def died(
    job: Job,
    executor: str = "a",
    *,
    life: str = "1",
    is_memory: bool = False,
    was_alone: bool = False,
    tasks: int | None = None,
    running: list[int] | None = None,
    stage_id: int = 1,
) -> ExecutorLost:
    """Return the end of a JVM in which the tasks *running* of a stage, all in hand by default, were running."""
    held = {p: t.attempt for p, t in job.running(stage_id).in_hand() if t.executor_id == executor}
    suspects = [
        SuspectTask(job.graph.job_id, stage_id, job.stage(stage_id).attempt, p, a)
        for p, a in sorted(held.items())
        if running is None or p in running
    ]
    return ExecutorLost(
        executor_id=executor,
        incarnation=executor + life,
        reason="its JVM ended with exit code 3",
        at_ms=job.tick(),
        death=JvmDeath(
            is_memory=is_memory,
            was_alone=was_alone,
            tasks=len(suspects) if tasks is None else tasks,
            suspects=tuple(suspects),
        ),
    )


def lose(job: Job, lost: ExecutorLost) -> None:
    """Apply the loss, and the end of the job if it follows, as a scheduler commits both."""
    culprit = find_culprit(job.graph, lost)
    events: list[Event] = [lost] if culprit is None else [culprit, lost]
    for event in events:
        job.feed(event)


def popped(job: Job, executor: str = "b", *, is_empty: bool, limit: int = 9) -> list[int]:
    slot = ExecutorSlot(executor, executor + "1", 0, is_empty=is_empty)
    event = pop_next_tasks(job.graph, slot, limit, job.now_ms)
    if event is None:
        return []
    partitions = [partition for partition, _ in event.tasks]
    assert is_alone(job.graph, event) == any(job.stage(1).ledger.runs_alone(p) for p in partitions)
    return partitions


def launch_alone(job: Job, life: str) -> None:
    slot = ExecutorSlot("a", "a" + life, 0, is_empty=True)
    event = pop_next_tasks(job.graph, slot, 9, job.tick())
    assert isinstance(event, TasksLaunched)
    assert len(event.tasks) == 1
    assert is_alone(job.graph, event)
    job.feed(event)


def test_a_loss_of_which_nobody_knows_the_cause_counts_against_no_task() -> None:
    job = planned(stage(1, 1))
    for i in range(30):
        job.launch("a", life=str(i))
        job.lose("a", life=str(i))
    assert job.graph.is_active
    assert not job.stage(1).ledger.suspicions


@pytest.mark.parametrize("is_memory", [False, True])
def test_each_of_several_tasks_runs_alone_the_next_time_and_none_is_counted(*, is_memory: bool) -> None:
    job = planned(stage(1, 4))
    job.launch("a", 3)
    lose(job, died(job, is_memory=is_memory))

    assert sorted(job.stage(1).ledger.suspicions) == [0, 1, 2]
    assert popped(job, is_empty=True) == [0], "one, and nothing else"
    assert popped(job, is_empty=False) == [3], "an executor that has work gets what need not run alone"
    job.launch("b", 1)
    job.succeed(1, 3)
    assert popped(job, is_empty=False) == [0], "nothing else is left, and no executor may ever be empty"
    for life in ("2", "3", "4"):
        launch_alone(job, life)
        job.succeed(1, *job.running(1).running)
    assert job.graph.state.value == "successful"


def test_tasks_of_other_jobs_in_that_jvm_are_several_too() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    lose(job, died(job, tasks=2))
    assert job.stage(1).ledger.runs_alone(0)


def test_what_waited_at_the_executor_is_not_suspected() -> None:
    job = planned(stage(1, 3))
    job.launch("a", 3)
    lose(job, died(job, running=[1], tasks=1, is_memory=True))
    assert sorted(job.stage(1).ledger.suspicions) == [1]
    assert popped(job, is_empty=False) == [0, 2]


def test_an_only_task_runs_alone_after_the_second_end_without_evidence() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    lose(job, died(job))
    assert not job.stage(1).ledger.runs_alone(0)
    job.launch("a", life="2")
    lose(job, died(job, life="2"))
    assert job.stage(1).ledger.runs_alone(0)


def test_an_only_task_runs_alone_at_once_if_memory_ran_out() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    lose(job, died(job, is_memory=True))
    assert job.stage(1).ledger.runs_alone(0)
    assert job.graph.is_active


def test_a_task_that_runs_out_of_memory_alone_fails_the_job_at_once() -> None:
    job = planned(stage(1, 2))
    job.launch("a")
    lose(job, died(job, is_memory=True))
    launch_alone(job, "2")
    lose(job, died(job, life="2", is_memory=True, was_alone=True))

    outcome = job.graph.outcome
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureKind.USER_ERROR
    assert outcome.failure.error_class == "java.lang.OutOfMemoryError"
    assert "ran out of memory" in outcome.failure.message
    assert "exit code 3" in outcome.failure.message
    assert outcome.stage_id == 1


def test_a_task_that_ends_four_jvms_alone_without_evidence_fails_the_job() -> None:
    job = planned(stage(1, 1))
    for i in range(2):
        job.launch("a", life=str(i))
        lose(job, died(job, life=str(i)))
    for i in range(2, 6):
        assert job.graph.is_active
        launch_alone(job, str(i))
        lose(job, died(job, life=str(i), was_alone=True))

    outcome = job.graph.outcome
    assert isinstance(outcome, Failed)
    assert "memory" not in outcome.failure.message
    assert "4 executors" in outcome.failure.message


def test_three_kills_from_outside_fail_no_job() -> None:
    job = planned(stage(1, 1))
    for i in range(2):
        job.launch("a", life=str(i))
        lose(job, died(job, life=str(i)))
    launch_alone(job, "2")
    lose(job, died(job, life="2", was_alone=True))
    launch_alone(job, "3")
    job.succeed(1, 0)
    assert job.graph.state.value == "successful"


def test_a_success_ends_the_suspicion() -> None:
    job = planned(stage(1, 2))
    job.launch("a", 1)
    lose(job, died(job, is_memory=True))
    launch_alone(job, "2")
    job.succeed(1, 0)
    assert not job.stage(1).ledger.suspicions


def test_a_late_report_of_an_end_suspects_nobody() -> None:
    job = planned(stage(1, 1))
    job.launch("a")
    late = died(job, is_memory=True, was_alone=True)
    job.lose("a")
    job.launch("b")
    lose(job, late)
    assert job.graph.is_active
    assert not job.stage(1).ledger.suspicions


def test_a_task_that_runs_alone_gets_no_second_attempt() -> None:
    job = planned(stage(1, 4), speculation=SpeculationPolicy())
    job.launch("a", 1)
    lose(job, died(job, is_memory=True))
    job.launch("b", 3)
    job.succeed(1, 1, 2, 3)
    launch_alone(job, "2")
    assert find_stragglers(job.graph, ["a", "b", "c"], job.now_ms + 60_000) == ()
