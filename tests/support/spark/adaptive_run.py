"""A job that adapts or grows, run in one process: the graph decides, one executor works, nothing is in between."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    ExecutionGraph,
    ExecutorSlot,
    LaunchEvent,
    StageWork,
    TaskSucceeded,
    apply,
    find_replan,
    pop_next_tasks,
    revive,
    submit,
    violations,
)
from onager.executor.spark import plan_codec
from onager.executor.spark.planning import replan
from onager.ids import BlobDigest, JobId, StageId
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_keys
from onager.scheduler.engine.reports import _BoundPlans, _succeeded
from onager.scheduler.engine.stage_coordinator import StageCoordinator
from onager.scheduler.engine.streams import Streams
from onager.testing.job import result_table
from onager.testing.run import rows_of
from tests.support.spark.one_executor import OneExecutor
from tests.support.waiting import HANGS_S

SLOT = ExecutorSlot("executor-1", "1", 0)
STEPS = 1_000


@dataclass
class AdaptiveRun:
    """One job from its plan to its rows, a task at a time, in the order in which stages are ready."""

    executor: OneExecutor
    policy: AdaptivePolicy
    slots: int = 1
    falsify: str = ""
    """How sizes are made false, in place of what the scheduler draws by the job's id."""
    reads_first: bool = False
    """Whether a feed's task, once it is handed out, runs only after everything else that is ready has run."""
    graph: ExecutionGraph = field(init=False)
    blobs: dict[str, bytes] = field(default_factory=dict)
    outcomes: list[pb.PlanOutcome] = field(default_factory=list)
    """What re-plans gave."""
    asked: list[pb.ReplanTask] = field(default_factory=list)
    """What re-plans were given."""
    now_ms: int = 1
    late: LaunchEvent | None = None
    """What the feed was handed out."""

    def run(self, planned: pb.PlanOutcome) -> list[tuple[Any, ...]]:
        """Run what was planned, with all re-plans that are due, and return the rows in order."""
        self.executor.jobs += 1
        job_id = self.executor.job_id
        self.graph = submit(
            job_id=job_id, name="", client_id="", spec_digest="", at_ms=self.tick(), adaptive=self.policy
        )
        try:
            self._step(planned)
            for _ in range(STEPS):
                if not self.graph.is_active:
                    break
                self._step(planned)
            assert self.graph.state == "successful", self.graph.outcome
            return self._rows(job_id)
        finally:
            self.executor.runner.close_job(job_id)

    def states(self) -> dict[int, str]:
        return {stage.spec.stage_id: stage.state for stage in self.graph.stages}

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def _step(self, planned: pb.PlanOutcome) -> None:
        for event in (find_replan(self.graph, self.tick()), revive(self.graph, self.tick())):
            if event is not None:
                self._feed(event)
        event = pop_next_tasks(self.graph, SLOT, self.slots, self.tick())
        if event is not None:
            self._feed(event)
            if self.reads_first and self.graph.stages[event.stage_id].spec.work is StageWork.FEED:
                self.late = event
                return
        elif self.late is not None:
            event, self.late = self.late, None
        assert event is not None, self.states()
        for task_set in StageCoordinator(self.graph, event.stage_id, Streams()).task_sets(self.graph, event):
            for success, key in self._run(task_set, planned):
                came, blobs, _ = _succeeded(self.graph, key, SLOT, success, self.tick(), _BoundPlans())
                self.blobs |= {plan_codec.digest(content): content for content in blobs}
                self._feed(came)
                if isinstance(came, TaskSucceeded):
                    self.blobs[f"{came.stage_id}/{came.partition}"] = success.SerializeToString()

    def _feed(self, event: Any) -> None:
        self.graph = apply(self.graph, event)
        assert violations(self.graph) == ()

    def _run(self, task_set: pb.TaskSet, planned: pb.PlanOutcome) -> list[tuple[pb.TaskSuccess, Any]]:
        keys = list(task_keys(task_set))
        match task_set.work:
            case pb.PLAN:
                return [(pb.TaskSuccess(plan=planned), keys[0])]
            case pb.REPLAN:
                frame = BlobDigest(task_set.replan.frame_digest)
                if self.falsify:
                    task_set.replan.falsify = f"{self.falsify} {keys[0].stage_id}"
                self.asked.append(task_set.replan)
                outcome = replan(task_set.replan, self.executor.spark, {frame: self.blobs[frame]})
                self.outcomes.append(outcome)
                return [(pb.TaskSuccess(plan=outcome), keys[0])]
            case pb.FEED:
                return [(self.executor.find_more(task_set, self.blobs), keys[0])]
        came: SimpleQueue[pb.TaskReport] = SimpleQueue()
        plan = plan_codec.decode(self.blobs[task_set.plan_digest])
        fused = {StageId(each.stage_id): plan_codec.decode(self.blobs[each.plan_digest]) for each in task_set.fused}
        portion = self.blobs[task_set.portion.digest] if task_set.portion.digest else b""
        self.executor.runner.run(task_set, plan, came.put, fused, portion)
        reports = [came.get(timeout=HANGS_S) for _ in keys]
        for report in reports:
            assert report.HasField("success"), report.failure
        by_partition = {report.task.partition: report.success for report in reports}
        return [(by_partition[key.partition], key) for key in keys]

    def _rows(self, job_id: JobId) -> list[tuple[Any, ...]]:
        result = self.graph.result_stage
        assert result is not None
        rows: list[tuple[Any, ...]] = []
        for partition in range(result.spec.partitions):
            success = pb.TaskSuccess.FromString(self.blobs[f"{result.spec.stage_id}/{partition}"])
            table = result_table(str(self.executor.directory), job_id, result.spec.stage_id, partition, success)
            rows += rows_of(table)
        return rows


def run_adaptively(
    executor: OneExecutor,
    planned: pb.PlanOutcome,
    *,
    mode: str = "on",
    slots: int = 1,
    fuse_bytes: int = 0,
    falsify: str = "",
    reads_first: bool = False,
) -> tuple[list[tuple[Any, ...]], AdaptiveRun]:
    """Run what was *planned* with re-plans, and return the rows, and how it ran."""
    policy = replace(AdaptivePolicy(fuse_bytes=fuse_bytes), replan=mode)  # type: ignore[arg-type]
    job = AdaptiveRun(executor, policy, slots, falsify, reads_first)
    return job.run(planned), job


def replans_of(job: AdaptiveRun) -> Mapping[int, str]:
    """Return what came of each re-plan."""
    return {each.replan_id: "; ".join([each.why, *each.decisions]) for each in job.graph.replans}
