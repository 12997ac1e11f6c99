"""What is left of a job, planned again without Spark: stages that have not begun come anew, some without an input.

The stages of a plan stand where their ids say, so those that a new plan does without, and those of publishing and of
re-plans, keep their places in it.
"""

import random  # noqa: TID251 seeded
from dataclasses import replace

from onager.protocol import onager_pb2 as pb
from tests.simulation.data import JobPlan, StagePlan, add_stages, digest

WORLDS = 4
"""Of so many worlds one has jobs that are planned again whenever a stage is done."""
LIMIT_MS = 6_000
"""How long such a re-plan may take here: longer than a slow task, and no more, since some never end."""
KEPT = 0.15
"""How many re-plans find nothing better."""
_NOTHING = StagePlan(0, ())


def replanned(plan: JobPlan, task: pb.ReplanTask, rng: random.Random) -> tuple[pb.PlanOutcome, JobPlan]:
    """Return what a re-plan of *plan* reports, and the new plan."""
    begun = {each.stage_id for each in task.begun}
    if len(plan.stages) in begun or rng.random() < KEPT:
        return pb.PlanOutcome(decisions=["nothing better was found"]), plan
    left: list[int] = []
    inputs: dict[int, tuple[int, ...]] = {}
    below = [len(plan.stages)]
    while below:
        stage_id = below.pop()
        if stage_id in begun or stage_id in inputs:
            continue
        inputs[stage_id] = _fewer(plan.stages[stage_id - 1].inputs, rng)
        left.append(stage_id)
        below += inputs[stage_id]
    number = {stage_id: task.first_stage_id + n for n, stage_id in enumerate(sorted(left))}
    stages = [*plan.stages, *[_NOTHING] * (task.first_stage_id - 1 - len(plan.stages))]
    for stage_id in sorted(left):
        read = tuple(sorted(number.get(i, i) for i in inputs[stage_id]))
        stages.append(replace(plan.stages[stage_id - 1], inputs=read))
    new = replace(plan, stages=tuple(stages))
    outcome = pb.PlanOutcome(decisions=[f"{len(left)} stages come again"])
    add_stages(outcome, new, first=task.first_stage_id)
    frame(outcome, new)
    return outcome, new


def _fewer(inputs: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    if len(inputs) < 2 or rng.random() < 0.6:
        return inputs
    gone = rng.choice(inputs)
    return tuple(i for i in inputs if i != gone)


def frame(outcome: pb.PlanOutcome, plan: JobPlan) -> None:
    """Add to *outcome* what *plan* can be planned again from."""
    content = f"frame of {plan.text()}".encode()
    outcome.frame_digest, outcome.broadcast_bytes = digest(content), 25
    outcome.blobs.add(digest=outcome.frame_digest, content=content)


def plan_of(content: bytes) -> JobPlan:
    """Return the plan of a frame."""
    return JobPlan.parse(content.decode().removeprefix("frame of "))


def has_frame(plan: JobPlan, *, is_forced: bool) -> bool:
    """Return whether the job may be planned again; each may where that is forced."""
    is_drawn = is_forced or random.Random(f"frame {plan.family} {len(plan.stages)}").random() < 0.5
    return is_drawn and not plan.is_fused
