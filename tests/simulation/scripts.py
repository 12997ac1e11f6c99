"""Scripts in the simulation: drawn steps, a user who submits and retries them, and what must hold.

The job of a step is a job like any other. What is checked besides is that there is one for each step, that none begins
before those that it waits for are successful, and that no step that was done is done again.
"""

import asyncio
import json
import random  # noqa: TID251 seeded
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onager.errors import FetchFailedError, JobNotEndedError
from onager.execution_graph import (
    ExecutionGraph,
    JobState,
    RunningStage,
    Stage,
    StageWork,
    Succeeded,
    SuccessfulStage,
    child_of,
)
from onager.ids import script_of
from onager.protocol import onager_pb2 as pb
from tests.simulation.data import JobPlan, digest

if TYPE_CHECKING:
    from tests.simulation.client import SimulatedClient
    from tests.simulation.executions import SeenJob
    from tests.simulation.observer import Observer
    from tests.simulation.world import World

WORLDS = 7
"""Of so many worlds one has scripts."""
FALSE_IDS = 1_000
"""What ids that are drawn, where a bug is planted, are off by, or a multiple of it."""
_SCRIPT = "SCRIPT "
_ENDS = {pb.SUCCESSFUL: JobState.SUCCESSFUL, pb.FAILED: JobState.FAILED, pb.CANCELLED: JobState.CANCELLED}


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """What a script does: the plan of each step, and the numbers of those that it waits for."""

    steps: tuple[tuple[JobPlan, tuple[int, ...]], ...]
    is_script: bool
    """Whether it is submitted as a script, of which an executor makes the steps."""

    def spec(self, name: str) -> pb.JobSpec:
        if self.is_script:
            text = _SCRIPT + json.dumps([plan.text() for plan, _ in self.steps])
            return pb.JobSpec(name=name, sql=pb.SqlScript(text=text))
        steps = [pb.ScriptStep(sql=pb.SqlScript(text=plan.text()), after=after) for plan, after in self.steps]
        return pb.JobSpec(name=name, script=pb.ScriptSpec(steps=steps))


def draw_script(rng: random.Random, shapes: Sequence[JobPlan]) -> ScriptPlan:
    """Draw a script of three to six steps."""
    is_script = rng.random() < 0.5
    steps = []
    for number in range(1, rng.randint(3, 6) + 1):
        before = range(1, number)
        after = before[-1:] if is_script else sorted({n for n in before if rng.random() < 0.5})
        steps.append((rng.choice(shapes), tuple(after)))
    return ScriptPlan(tuple(steps), is_script)


# ---------------------------------------------------------------- for executors


def is_script(text: str) -> bool:
    return text.startswith(_SCRIPT)


def statement_of(text: str, numbers: Sequence[int]) -> str:
    """Return the statement of a script that the job of a step is about; any other text as it is."""
    if not is_script(text):
        return text
    found: str = json.loads(text.removeprefix(_SCRIPT))[numbers[-1] - 1]
    return found


def steps_of(text: str) -> pb.PlanOutcome:
    """Return what planning makes of a script."""
    outcome = pb.PlanOutcome(plan="steps")
    for number, _ in enumerate(json.loads(text.removeprefix(_SCRIPT)), start=1):
        content = json.dumps({"sql": {"statements": [number]}}).encode()
        outcome.blobs.add(digest=digest(content), content=content)
        outcome.stages.add(
            stage_id=number,
            name=f"statement {number}, line {number}",
            work=pb.STEP,
            plan_digest=digest(content),
            partitions=1,
            inputs=[pb.StageInput(stage_id=number - 1, read="all")] if number > 1 else [],
        )
    return outcome


# ---------------------------------------------------------------- a user of scripts


def begin(client: "SimulatedClient", script_id: str, script: ScriptPlan, rng: random.Random, at_s: float) -> None:
    client.scripts[script_id] = script
    client.tasks.append(client.world.loop.spawn(client.process, _use(client, script_id, script, rng, at_s)))


async def _use(client: "SimulatedClient", script_id: str, script: ScriptPlan, rng: random.Random, at_s: float) -> None:
    await asyncio.sleep(at_s)
    request = pb.SubmitJobRequest(job_id=script_id, spec=script.spec(script_id), client_id=client.name)
    await client._until_answered(lambda stub: stub.SubmitJob(request, timeout=20.0))
    if rng.random() < 0.4:
        await _some_are_done(client, script_id, rng.randint(0, 3))
        await asyncio.sleep(rng.random())
        await client._cancel(script_id)
    state = await _follow(client, script_id, script)
    if state != pb.SUCCESSFUL and rng.random() < 0.8:
        again = f"{script_id}-again"
        client.scripts[again] = script
        client.retried[again] = script_id
        retry = pb.RetryJobRequest(job_id=script_id, new_job_id=again, client_id=client.name)
        await client._until_answered(lambda stub: stub.RetryJob(retry, timeout=20.0), (JobNotEndedError,))
        await _follow(client, again, script)


async def _some_are_done(client: "SimulatedClient", script_id: str, steps: int) -> None:
    """Wait until so many steps of the script are done, or it has ended."""
    job = client.world.observer.jobs[script_id]
    while job.final is None and job.graph is not None:
        if sum(isinstance(stage, SuccessfulStage) for stage in job.graph.stages[1:]) >= steps:
            return
        await asyncio.sleep(0.1)


async def _follow(client: "SimulatedClient", script_id: str, script: ScriptPlan) -> int:
    state = client.reported[script_id] = await client._watch(script_id)
    client.world.trace(f"{client.name} learns that {script_id} is {pb.JobState.Name(state)}")
    for number, (plan, _) in enumerate(script.steps, start=1):
        child = client.world.observer.jobs.get(f"{script_id}.{number}")
        if child is not None and child.final is not None and isinstance(child.final.outcome, Succeeded):
            client.jobs_of_steps[child.job_id] = plan
            if not plan.has_sink:
                client.fetched[child.job_id] = await client._fetch(child.job_id)
    if state == pb.SUCCESSFUL and not script.steps[-1][0].has_sink:
        with suppress(FetchFailedError):
            rows = await client._fetch(script_id)
            of_step = client.fetched.get(f"{script_id}.{len(script.steps)}", rows)
            if [r for r in rows if r] != [r for r in of_step if r]:
                client.world.observer.fail(f"{script_id} has the result {rows}, and its last step {of_step}")
    return state


# ---------------------------------------------------------------- what must hold, commit by commit


def submitted(observer: "Observer", job_id: str) -> None:
    """Check that the job of a step comes once, and in its turn."""
    script_id = script_of(job_id)
    if script_id is None:
        return
    observer.counts["steps submitted"] += 1
    stage_id = int(job_id.rpartition(".")[2]) % FALSE_IDS
    graph = observer.jobs[script_id].graph if script_id in observer.jobs else None
    if graph is None or stage_id >= len(graph.stages):
        observer.fail(f"{job_id} is submitted, and there is no such step")
        return
    first = observer.steps.setdefault((script_id, stage_id), job_id)
    if first != job_id:
        observer.fail(f"step {stage_id} of {script_id} is done by {first}, and by {job_id}")
    if graph.is_active and not isinstance(graph.stages[stage_id], RunningStage):
        observer.fail(f"{job_id} is submitted while its step is {graph.stages[stage_id].state}")


def done(observer: "Observer", script_id: str, stage_id: int, child_id: str) -> None:
    """Check that a step counts as done only when its job is."""
    child = observer.jobs.get(child_id)
    if child is None or child.final is None or not isinstance(child.final.outcome, Succeeded):
        observer.fail(f"step {stage_id} of {script_id} counts as done, and {child_id} is not")
    observer.counts["steps done before"] += script_of(child_id) != script_id


# ---------------------------------------------------------------- what must hold at the end


def check(world: "World", client: "SimulatedClient") -> str | None:
    """Return what is wrong with a client's scripts, or None."""
    for script_id in client.scripts:
        job = world.observer.jobs.get(script_id)
        if job is None or job.final is None:
            return f"{script_id} has not ended"
        if job.final.state is not _ENDS[client.reported[script_id]]:
            return f"{script_id} ended {job.final.state}, and its client got {client.reported[script_id]}"
        if job.final.state is JobState.CANCELLED and script_id not in client.cancelled:
            return f"{script_id} was cancelled by nobody"
        world.observer.counts[f"scripts {job.final.state}"] += 1
        why = _of_steps(world, job, job.final) or _of_retry(world, client, script_id, job.final)
        if why is not None:
            return why
    return None


def _of_steps(world: "World", job: "SeenJob", graph: ExecutionGraph) -> str | None:
    for stage in graph.stages[1:]:
        assert stage.spec.work is StageWork.STEP
        child = world.observer.jobs.get(f"{job.job_id}.{stage.spec.stage_id}")
        if child is not None and child.final is None:
            return f"{child.job_id} goes on, and its script has ended"
        if not isinstance(stage, SuccessfulStage):
            continue
        for source in stage.spec.inputs:
            before = world.observer.jobs[child_of(graph.stages[source.stage_id])].final
            mine = world.observer.jobs[child_of(stage)].submitted
            if before is None or mine is None or not isinstance(before.outcome, Succeeded):
                return f"{child_of(stage)} was done without {source.stage_id}"
    return None


def _rows_done(world: "World", script_id: str, stage: Stage) -> int | None:
    """Return the rows of a step that was done, whether or not its script has learned of it before it ended; or None."""
    if isinstance(stage, SuccessfulStage):
        return stage.ledger.outputs[0].rows
    child = world.observer.jobs.get(f"{script_id}.{stage.spec.stage_id}")
    if child is None or child.final is None or not isinstance(child.final.outcome, Succeeded):
        return None
    result = child.final.result_stage
    return 0 if result is None else sum(output.rows for output in result.ledger.outputs.values())


def _of_retry(world: "World", client: "SimulatedClient", script_id: str, graph: ExecutionGraph) -> str | None:
    """Nothing that the script before has done is done again, but for a result, and what comes after what was not."""
    before_id = client.retried.get(script_id)
    if before_id is None:
        return None
    before = world.observer.jobs[before_id].final
    assert before is not None
    if len(before.stages) < len(graph.stages):
        return None  # it was never planned
    taken: set[int] = set()
    for stage in before.stages[1:]:
        stage_id = stage.spec.stage_id
        rows = _rows_done(world, before_id, stage)
        if rows is None or not {i.stage_id for i in stage.spec.inputs} <= taken:
            continue
        is_result = stage_id == len(before.stages) - 1
        if is_result and rows:
            continue
        taken.add(stage_id)
        if f"{script_id}.{stage_id}" in world.observer.jobs:
            return f"step {stage_id} of {before_id} was done, and {script_id} does it again"
    return None
