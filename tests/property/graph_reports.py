"""What the tasks of a job report."""

from msgspec.structs import replace

from onager.execution_graph import (
    Event,
    FailureKind,
    FeedEnded,
    FeedEvent,
    FetchFailure,
    JobPlanned,
    PartitionsAdded,
    RunningStage,
    StageReplanned,
    StageSpec,
    StageWork,
    TakenOutput,
    TaskFailed,
    TaskOutput,
    TaskSucceeded,
    sizes_text,
)
from onager.execution_graph.replan_changes import has_begun
from onager.execution_graph.stages import RunningTask
from tests.property.graph_record import GraphRecord
from tests.unit.execution_graph.builder import METRICS, SINK, failure, output, summary


class Reports(GraphRecord):
    """Makes reports, of outputs whose rows are known."""

    def new_output(self) -> TaskOutput:
        self.nonces += 1
        return replace(output(f"n{self.nonces}", is_shared=self.is_shared), is_inline=self.nonces % 7 == 0)

    def success_of(self, stage: RunningStage, partition: int, task: RunningTask | None = None) -> Event:
        task = task or stage.running[partition]
        if stage.spec.work is StageWork.PLAN:
            plan = self.planned_by(task.executor_id, task.attempt)
            if plan.fused_output is not None:
                self.writers[plan.fused_output.nonce] = (task.executor_id, task.incarnation)
            return plan
        if stage.spec.work is StageWork.REPLAN:
            return self.replanned_by(task)
        if stage.spec.work is StageWork.FEED:
            return self.found_by(stage, partition, task)
        success = TaskSucceeded(
            stage_id=stage.spec.stage_id,
            stage_attempt=stage.attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            output=replace(self.new_output(), bucket_sizes=self.sizes_of(stage, partition)),
            metrics=METRICS,
            at_ms=self.tick(),
        )
        if self.graph.is_streaming and stage.spec.work is StageWork.QUERY:
            self.streamed.add(success.output.nonce)
        self.written[success.output.nonce] = success
        self.writers[success.output.nonce] = (task.executor_id, task.incarnation)
        self.rows[success.output.nonce] = self.rows_of(stage.spec, partition, success.output.nonce)
        return success

    def found_by(self, stage: RunningStage, partition: int, task: RunningTask) -> FeedEvent:
        """Return what a task of a feed finds: the same in each attempt, as a source that goes on at a place does."""
        added, is_last = (partition * 7 + stage.spec.stage_id) % 3, partition >= self.portions
        output = replace(self.new_output(), payload_digest=f"{stage.spec.stage_id}: {partition}", is_inline=False)
        self.writers[output.nonce] = (task.executor_id, task.incarnation)
        return (FeedEnded if is_last else PartitionsAdded)(
            stage_id=stage.spec.stage_id,
            stage_attempt=stage.attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            output=output,
            added=added,
            metrics=METRICS,
            at_ms=self.tick(),
        )

    @staticmethod
    def sizes_of(stage: RunningStage, partition: int) -> str:
        spec = stage.spec
        if spec.output.kind != "exchange":
            return ""
        return sizes_text(bytes([1 + partition, 20 * spec.stage_id % 256]), spec.output.buckets, spec.partitions)

    def rows_of(self, spec: StageSpec, partition: int, nonce: str) -> int:
        """Return what an execution writes, given what it reads now: the same again, unless it is not deterministic."""
        read = tuple(
            (i.stage_id, p, self.rows.get(o.nonce))
            for i in spec.inputs
            for p, o in sorted(self.graph.stages[i.stage_id].ledger.outputs.items())
        )
        return hash((spec.stage_id, partition, read, None if spec.is_deterministic else nonce))

    def planned_by(self, executor: str, attempt: int) -> JobPlanned:
        result = max(s.stage_id for s in self.specs if s.work is StageWork.QUERY)
        return JobPlanned(
            task_attempt=attempt,
            executor_id=executor,
            stages=self.specs,
            summary=replace(
                summary(result, sink=SINK if len(self.specs) > result else None, is_fused=self.is_fused),
                frame_digest="" if self.is_fused else "frame",
                broadcast_bytes=250,
            ),
            fused_output=self.new_output() if self.is_fused else None,
            metrics=METRICS,
            at_ms=self.tick(),
        )

    def replanned_by(self, task: RunningTask) -> StageReplanned:
        """Return the report of a re-plan: the stages that have not begun come again, in other numbers of tasks."""
        replan = self.graph.replan
        assert replan is not None
        event = StageReplanned(
            replan_id=replan.replan_id,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            basis=replan.basis,
            metrics=METRICS,
            at_ms=self.tick(),
        )
        stays = (StageWork.REPLAN, StageWork.FEED)
        below = self.below_growing_stages()
        gone = [s.spec for s in self.graph.stages[1:] if not has_begun(s) and s.spec.work not in stays]
        gone = [
            spec
            for spec in gone
            if self.graph.stages[spec.stage_id].state in ("unresolved", "resolved", "running")
            and spec.stage_id not in below
        ]
        is_gone = {spec.stage_id for spec in gone}
        if not gone or self.graph.last_stage.spec.stage_id not in is_gone or not set(replan.held) <= is_gone | below:
            return event
        first = len(self.graph.stages)
        number = {spec.stage_id: first + n for n, spec in enumerate(gone)}
        stages = tuple(
            replace(
                spec,
                stage_id=number[spec.stage_id],
                partitions=spec.partitions + (spec.work is StageWork.QUERY),
                inputs=tuple(replace(i, stage_id=number.get(i.stage_id, i.stage_id)) for i in spec.inputs),
            )
            for spec in gone
        )
        assert self.graph.plan is not None
        result = number.get(self.graph.plan.result_stage_id)
        if result is None:
            return event
        return replace(
            event, dropped=tuple(sorted(is_gone)), stages=stages, result_stage_id=result, frame_digest="frame"
        )

    def below_growing_stages(self) -> set[int]:
        """Return what growing stages read, at any distance."""
        found: set[int] = set()
        for stage in reversed(self.graph.stages):
            if stage.spec.feed is not None or stage.spec.stage_id in found:
                found |= {source.stage_id for source in stage.spec.inputs}
        return found

    def failure_of(
        self,
        stage: RunningStage,
        partition: int,
        kind: FailureKind,
        fetch: FetchFailure | None,
        task: RunningTask | None = None,
    ) -> TaskFailed:
        task = task or stage.running[partition]
        return TaskFailed(
            stage_id=stage.spec.stage_id,
            stage_attempt=stage.attempt,
            partition=partition,
            task_attempt=task.attempt,
            executor_id=task.executor_id,
            failure=failure(kind, fetch=fetch),
            at_ms=self.tick(),
        )

    def taken(self, spec: StageSpec) -> TakenOutput:
        """Return what another job gives, whose tasks had other rows."""
        self.nonces += 1
        nonces = [f"taken{self.nonces}-{partition}" for partition in range(1 + self.nonces % 3)]
        self.rows |= {nonce: hash(nonce) for nonce in nonces}
        outputs = tuple(replace(output(nonce), executor_id="elsewhere") for nonce in nonces)
        return TakenOutput(
            stage_id=spec.stage_id,
            job_id=f"other-{self.nonces % 2}",
            of_stage_id=7,
            fingerprint=spec.fingerprint,
            outputs=outputs,
        )
