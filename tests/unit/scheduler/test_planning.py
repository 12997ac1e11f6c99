"""Plans of more than a scheduler keeps account of."""

import pytest

from onager.errors import PlanningError
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_STAGES, MAX_TASKS_OF_JOB, MAX_TASKS_OF_STAGE
from onager.scheduler.engine.planning import explanation, planned

TASK = TaskKey(JobId("j"), StageId(0), 0, Partition(0), 0)


def outcome(*partitions: int, buckets: int = 1) -> pb.TaskSuccess:
    stages = [
        pb.PlannedStage(
            stage_id=n,
            plan_digest="d",
            partitions=width,
            inputs=[pb.StageInput(stage_id=n - 1, read="all")] if n > 1 else [],
            output=pb.OutputLayout(kind="exchange" if n < len(partitions) else "result", buckets=buckets),
        )
        for n, width in enumerate(partitions, start=1)
    ]
    return pb.TaskSuccess(plan=pb.PlanOutcome(stages=stages))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (outcome(MAX_TASKS_OF_STAGE + 1), "a stage of 200,001 partitions, more than 200,000 .*: read in fewer"),
        (outcome(2**32 - 1), "a stage of 4,294,967,295 partitions"),
        (outcome(1, 1, buckets=MAX_TASKS_OF_STAGE + 1), "a stage of 200,001 partitions"),
        (outcome(*(MAX_TASKS_OF_JOB // 3 + 1,) * 3), "a plan of 500,001 tasks, more than 500,000"),
        (outcome(*(1,) * (MAX_STAGES + 1)), "a plan of 2,001 stages, more than 2,000"),
    ],
)
def test_a_plan_that_is_too_large_is_refused(plan: pb.TaskSuccess, why: str) -> None:
    with pytest.raises(PlanningError, match=why):
        planned(TASK, "e", plan, "digest", 1)


def test_a_plan_may_be_as_large_as_the_limits() -> None:
    assert len(planned(TASK, "e", outcome(MAX_TASKS_OF_STAGE, MAX_TASKS_OF_STAGE), "digest", 1).stages) == 2
    assert len(planned(TASK, "e", outcome(*(1,) * MAX_STAGES), "digest", 1).stages) == MAX_STAGES


def test_secrets_in_a_plan_are_not_explained() -> None:
    plan = pb.PlanOutcome(plan="Relation [url=jdbc:x, password=hidden]", stages=[pb.PlannedStage(plan="token: hidden")])
    assert b"hidden" not in explanation(plan)


@pytest.mark.parametrize("work", [pb.QUERY, pb.STEP])
def test_no_secret_is_kept_in_the_names_that_a_plan_gives(work: int) -> None:
    success = outcome(1)
    (stage,) = success.plan.stages
    stage.work, stage.name = work, "load with password=hidden"
    (kept,) = planned(TASK, "e", success, "digest", 1).stages
    assert ("hidden" in kept.name, "load with" in kept.name) == (False, True)
