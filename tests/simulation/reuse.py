"""Jobs in the simulation that take outputs of others: which worlds have them, and what must hold.

Some jobs there are submitted once more when others have ended. Their values follow from their plan alone, so what one
computes another one may take, though a layout may give it other values: nothing may be made of both.
"""

import random  # noqa: TID251 seeded
from dataclasses import replace
from typing import TYPE_CHECKING

from onager.execution_graph import ExecutionGraph, OutputsTaken, TakenOutput
from onager.protocol import onager_pb2 as pb
from onager.scheduler.app import SchedulerApp
from onager.scheduler.executors.manager import ExecutorManager
from tests.simulation.data import JobPlan, digest

if TYPE_CHECKING:
    from tests.simulation.executions import SeenJob
    from tests.simulation.observer import Observer

WORLDS = 15
_SHORT = 0.3
"""How many of the sweeps find no space left."""
CONF = {"onager.reuse": "cluster", "onager.exchange": "durable"}


def is_reusing(seed: int) -> bool:
    """Return whether jobs of this world take outputs of each other."""
    return seed % WORLDS == 12


def reusable(plan: JobPlan, rng: random.Random) -> JobPlan:
    """Return *plan* as one whose outputs other jobs may take, if it has any."""
    if plan.is_fused or plan.growth:
        return plan
    is_shared = rng.random() < 0.9
    # A result in a file has to outlive its executor.
    return replace(plan, is_reusable=True, is_shared=is_shared, is_inline=plan.is_inline or not is_shared)


def add_fingerprints(outcome: pb.PlanOutcome, plan: JobPlan | None) -> None:
    """Give each stage a fingerprint whose values follow from the plan, but for the last one; with None, give none."""
    if plan is None or not plan.is_reusable:
        return
    repeats: set[int] = set()
    for number, stage in enumerate(plan.stages[:-1], start=1):
        if stage.is_deterministic and repeats.issuperset(stage.inputs):
            repeats.add(number)
            outcome.stages[number - 1].fingerprint = digest(f"{plan.text()} fingerprint {number}".encode())


def let_space_run_short(scheduler: SchedulerApp, rng: random.Random) -> None:
    """Have outputs withdrawn now and then while others run."""

    class ShortOfSpace(ExecutorManager):
        is_space_short = property(lambda _: rng.random() < _SHORT)  # type: ignore[assignment]

    scheduler.executors.__class__ = ShortOfSpace


def on_taken(observer: "Observer", job: "SeenJob", event: OutputsTaken, after: ExecutionGraph) -> None:
    """Outputs are taken while they are offered and are there."""
    for each in event.taken:
        if each.stage_id >= len(after.stages) or after.stages[each.stage_id].spec.taken is None:
            continue
        observer.counts["stages reused"] += 1
        job.taken |= {output.nonce for output in each.outputs}
        _check(observer, job, each)


def _check(observer: "Observer", job: "SeenJob", each: TakenOutput) -> None:
    for partition, output in enumerate(each.outputs):
        found = observer.exchange.written[output.nonce]
        if (found.job_id, found.stage_id, found.partition) != (each.job_id, each.of_stage_id, partition):
            observer.fail(f"{job.job_id} takes {output.nonce} for an output of {each.job_id}/{each.of_stage_id}")
        if output.nonce in observer.exchange.cleaned:
            observer.fail(f"{job.job_id} takes {output.nonce}, which was removed before")
