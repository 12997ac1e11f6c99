"""A job under any sequence of events: reordered, repeated and delayed."""

from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from immutables import Map
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    Event,
    EventBatch,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    Failed,
    FailedStage,
    FailureCause,
    FailureKind,
    FeedEnded,
    FeedEvent,
    FetchFailure,
    HeldTask,
    JobCancelled,
    JobPlanned,
    JobState,
    JvmDeath,
    OutputsTaken,
    PartitionsAdded,
    Pipeline,
    RetryLimits,
    RunningStage,
    SpeculationPolicy,
    StageReplanned,
    StageSpec,
    StagesStarted,
    StageWork,
    Succeeded,
    SuccessfulStage,
    SuspectTask,
    TakenOutput,
    TaskFailed,
    TaskOutput,
    TasksLaunched,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
    apply,
    apply_all,
    available_tasks,
    decode_batch,
    decode_graph,
    encode_batch,
    find_abandonment,
    find_culprit,
    find_replan,
    find_stragglers,
    has_runnable_work,
    held_tasks,
    is_alone,
    is_streaming,
    lay_out,
    lost_launches,
    paused_tasks,
    pop_next_tasks,
    revive,
    running_count,
    sizes_text,
    streams_of,
    violations,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp, StageLaidOut, StragglersFound
from onager.execution_graph.failures import UNCOUNTED_PAUSE_MS
from onager.execution_graph.intervals import IntervalReader
from onager.execution_graph.replan_changes import has_begun
from onager.execution_graph.stages import RunningTask
from tests.property.graphs import plans
from tests.unit.execution_graph.builder import METRICS, SINK, failure, new_graph, output, summary, wanted_tasks

EXECUTORS = st.sampled_from(["a", "b", "c"])
STAGE_IDS = st.sets(st.integers(1, 6), max_size=3)
RETRYABLE = st.sampled_from([k for k in FailureKind if k.is_retryable])
CAUSES = {
    FailureKind.IO_ERROR: (FailureCause.INTERNAL_ERROR,),
    FailureKind.TASK_KILLED: (FailureCause.NO_SPACE, FailureCause.OTHER_VERSION),
}
RARELY = st.sampled_from([False] * 29 + [True])
LONGEST_PAUSE_MS = 200
PAUSES = st.sampled_from([(), (20,), (50, 90, LONGEST_PAUSE_MS)])
PATIENT = RetryLimits(task_max_failures=50, stage_max_failures=50)


class World(RuleBasedStateMachine):
    """The graph, and a plain record of what was launched, what was reported, and which attempts won."""

    def __init__(self) -> None:
        super().__init__()
        self.start: ExecutionGraph
        self.plain: ExecutionGraph
        """The same job as a replica sees it that knows no pauses before retries, and no causes of failures."""
        self.graph: ExecutionGraph
        self.specs: tuple[StageSpec, ...] = ()
        self.log: list[Event] = []
        self.applied: list[Event] = []
        """Those of the log that changed something."""
        self.reports: list[Event] = []
        """Every event ever sent to a scheduler, which may arrive at any time, any number of times."""
        self.written: dict[str, TaskSucceeded] = {}
        """The report of each execution, by its nonce."""
        self.writers: dict[str, tuple[str, str]] = {}
        """The life that wrote each, by its nonce."""
        self.rows: dict[str, int] = {}
        """A stand-in for the rows that each execution wrote, by its nonce."""
        self.dead: set[tuple[str, str]] = set()
        self.lives = {"a": 1, "b": 1, "c": 1}
        self.lists = {"a": 0, "b": 0, "c": 0}
        self.now_ms = 1_000
        self.nonces = 0
        self.is_shared = True
        self.has_lost_shared = False
        """Whether some output on shared storage was found missing."""
        self.is_fused = False
        self.handed_out: set[HeldTask] = set()
        self.told: dict[HeldTask, frozenset[tuple[int, int, HeldTask]]] = {}
        """Which attempts each task of a pipelined job reads, as (stage, partition, attempt)."""
        self.streamed: set[str] = set()
        """Nonces of outputs written while stages streamed."""
        self.finished: set[tuple[int, int]] = set()
        """Each (stage, partition) that was successful at some time."""
        self.portions = 1
        """How many tasks of a feed find more, before the one that finds the end."""
        self.is_prompt, self.slots = True, 1
        """Whether a layout is applied when it is decided; else it arrives late, or never."""

    # ------------------------------------------------------------ machinery

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def incarnation(self, executor: str) -> str:
        return f"{executor}{self.lives[executor]}"

    def feed(self, event: Event) -> bool:
        before = self.graph
        self.graph = apply(before, event)
        self.log.append(event)
        broken = violations(self.graph)
        assert not broken, broken
        self.outputs_are_what_was_written()
        self.what_was_found_is_there_once()
        self.nothing_needed_lies_on_a_dead_executor()
        self.what_is_being_published_stands(before)
        self.streaming_is_given_up_once_and_whole(before)
        if isinstance(event, TaskFailed) and event.failure.fetch is not None:
            self.only_what_was_missing_is_made_again(before, event.failure.fetch)
        assert apply(before, event) == self.graph, "apply is not deterministic"
        self.plain = apply(self.plain, without_cause(event))
        assert as_before(self.plain) == as_before(self.graph), "a pause or a cause changed what an event does"
        if self.graph is not before:
            self.applied.append(event)
        for earlier in (event, *self.applied[-8:]):
            if earlier is event or not self.may_be_news_again(earlier):
                assert apply(self.graph, earlier) is self.graph, f"a repeated {earlier.type} changed something"
        if not before.is_active:
            assert self.graph is before
        return self.graph is not before

    def nothing_needed_lies_on_a_dead_executor(self) -> None:
        unfinished = {
            i.stage_id for s in self.graph.stages if not isinstance(s, SuccessfulStage) for i in s.spec.inputs
        }
        if not self.graph.is_active or is_publishing(self.graph):
            return
        for stage in self.graph.stages[1:]:
            if not isinstance(stage, SuccessfulStage) or stage.spec.stage_id in unfinished:
                for found in stage.ledger.outputs.values():
                    assert found.is_durable or self.writers.get(found.nonce) not in self.dead

    def what_is_being_published_stands(self, before: ExecutionGraph) -> None:
        if is_publishing(before):
            assert [s.ledger.outputs for s in before.stages if s is not before.last_stage] == [
                s.ledger.outputs for s in self.graph.stages if s is not self.graph.last_stage
            ]

    def only_what_was_missing_is_made_again(self, before: ExecutionGraph, fetch: FetchFailure) -> None:
        if not self.graph.is_active or not 0 < fetch.stage_id < min(len(before.stages), len(self.graph.stages)):
            return
        if before.pipeline != self.graph.pipeline:
            return  # everything is made again
        had, has = (g.stages[fetch.stage_id].ledger.outputs for g in (before, self.graph))
        if fetch.partition in had and had[fetch.partition].nonce == fetch.nonce:
            writer = self.writers.get(fetch.nonce)
            if has != had and not had[fetch.partition].is_durable:
                assert all(o.is_durable or self.writers.get(o.nonce) != writer for o in has.values())
        else:
            assert has == had, "an output was lost that nobody had missed"

    def streaming_is_given_up_once_and_whole(self, before: ExecutionGraph) -> None:
        if before.pipeline == self.graph.pipeline:
            return
        assert before.is_pipelined, "it was given up before, or there was nothing to give up"
        assert not self.graph.is_pipelined
        assert not is_publishing(before)
        assert not running_count(self.graph)
        for old, stage in zip(before.stages[1:], self.graph.stages[1:], strict=True):
            assert not stage.ledger.outputs, "something streamed is kept"
            assert stage.ledger.failures == old.ledger.failures, "it counts against a task"
            assert stage.attempt == old.attempt + isinstance(old, RunningStage | SuccessfulStage)

    @staticmethod
    def may_be_news_again(event: Event) -> bool:
        """Return whether a stale event may apply later: after a stage is resolved or an input read again."""
        is_fetch_failure = isinstance(event, TaskFailed) and event.failure.kind is FailureKind.FETCH_FAILED
        return is_fetch_failure or isinstance(event, StagesStarted)

    def draw_running(self, data: st.DataObject, *, is_reader: bool = False) -> tuple[RunningStage, int] | None:
        """Draw a running task, if requested one with inputs; work continues until there is one."""
        for _ in range(20):
            tasks = [
                (s, p)
                for s in self.graph.stages
                if isinstance(s, RunningStage) and (s.spec.inputs or not is_reader)
                for p in sorted(s.running)
            ]
            if not self.graph.is_active:
                return None
            if tasks:
                return data.draw(st.sampled_from(tasks))
            if is_reader:
                self.finish_running()
            self.tasks_are_launched(data.draw(EXECUTORS), 3)
        return None

    def finish_running(self, count: int = 1_000) -> None:
        for stage in self.graph.stages:
            for partition in sorted(stage.running) if isinstance(stage, RunningStage) else ():
                held = self.graph.stages[stage.spec.stage_id] if stage.spec.stage_id < len(self.graph.stages) else None
                if count > 0 and isinstance(held, RunningStage) and partition in held.running:
                    count -= 1
                    self.send(self.success_of(held, partition), arrives=True)
                    self.finished.add((stage.spec.stage_id, partition))

    def new_output(self) -> TaskOutput:
        self.nonces += 1
        return replace(output(f"n{self.nonces}", is_shared=self.is_shared), is_inline=self.nonces % 7 == 0)

    def outputs_are_what_was_written(self) -> None:
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                if found.nonce in self.written:
                    written = self.written[found.nonce]
                    assert (written.stage_id, written.partition) == (stage.spec.stage_id, partition)
                    assert (written.task_attempt, written.executor_id) == (found.task_attempt, found.executor_id)

    def draw_attempt(self, data: st.DataObject, stage: RunningStage, partition: int) -> RunningTask:
        """Draw one of the attempts of a running partition."""
        return data.draw(st.sampled_from([t for p, t in stage.in_hand() if p == partition]))

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
        if self.graph.is_pipelined and stage.spec.work is StageWork.QUERY:
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

    def what_was_found_is_there_once(self) -> None:
        """Every portion up to the feed's last one is in the stage that it feeds, in order, once."""
        for stage in self.graph.stages[1:]:
            feed = stage.spec.feed
            if feed is None:
                continue
            found = feed.portions[feed.planned :]
            assert [each.digest for each in found] == [f"{feed.stage_id}: {n}" for n in range(len(found))]
            assert [each.partitions for each in found] == [(n * 7 + feed.stage_id) % 3 for n in range(len(found))]
            if isinstance(stage, SuccessfulStage):
                assert len(found) == self.portions + 1, "the stage is done before its feed is"

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

    def send(self, event: Event, *, arrives: bool) -> None:
        self.reports.append(event)
        if arrives:
            self.feed(event)

    # ------------------------------------------------------------ what happens

    @initialize(
        specs=plans(),
        is_shared=st.booleans(),
        is_patient=st.booleans(),
        is_planned=st.sampled_from([True, True, False]),
        speculates=st.booleans(),
        streams=st.sampled_from([False, True, True]),
        pauses_ms=PAUSES,
        fuse_bytes=st.sampled_from([None, 0, 350, 10_000]),
        replans=st.sampled_from(["", "on", "force", "force"]),
        is_prompt=st.sampled_from([True, True, True, False]),
        slots=st.integers(1, 4),
        portions=st.integers(0, 3),
        taken=STAGE_IDS,
    )
    def submitted(
        self,
        specs: tuple[StageSpec, ...],
        *,
        is_shared: bool,
        is_patient: bool,
        is_planned: bool,
        speculates: bool,
        streams: bool,
        pauses_ms: tuple[int, ...],
        fuse_bytes: int | None,
        replans: Literal["", "on", "force"],
        is_prompt: bool,
        slots: int,
        portions: int,
        taken: set[int],
    ) -> None:
        policy = SpeculationPolicy(multiplier=1.0, quantile=0.3, min_task_runtime_ms=0) if speculates else None
        limits = replace(PATIENT if is_patient else RetryLimits(), retry_pauses_ms=pauses_ms)
        self.start = self.graph = new_graph(
            limits,
            policy,
            Pipeline() if streams and not any(spec.feed for spec in specs) else None,
            None if fuse_bytes is None else AdaptivePolicy(fuse_bytes=fuse_bytes, replan=replans),
        )
        self.is_prompt, self.slots, self.portions = is_prompt, slots, portions
        self.plain = as_before(self.graph)
        self.specs, self.is_shared = specs, is_shared
        self.is_fused = specs[0].plan_digest is None
        if is_planned:
            self.tasks_are_launched("a", 1)
            planning = self.graph.stages[0]
            assert isinstance(planning, RunningStage)
            self.send(self.success_of(planning, 0), arrives=True)
            self.outputs_are_taken(taken, arrives=True)

    @rule()
    def stages_start(self) -> None:
        found = find_replan(self.graph, self.tick())
        if found is not None:
            assert self.feed(found)
            self.reports.append(found)
        for laid_out in lay_out(self.graph, self.slots, self.tick()):
            self.nothing_of_it_was_launched(laid_out)
            if self.is_prompt:
                assert self.feed(laid_out)
            self.reports.append(laid_out)
        event = revive(self.graph, self.tick())
        if event is not None:
            assert self.feed(event)
            self.reports.append(event)

    def nothing_of_it_was_launched(self, event: StageLaidOut) -> None:
        concerned = {event.stage_id, *event.fused}
        assert not any(task.stage_id in concerned for task in self.handed_out)

    @rule(executor=EXECUTORS, limit=st.integers(1, 3))
    def tasks_are_launched_where_they_have_not_failed(self, executor: str, limit: int) -> None:
        self.stages_start()
        slot = ExecutorSlot(executor, self.incarnation(executor), self.lists[executor], can_stream=True)
        event = pop_next_tasks(self.graph, slot, limit, self.tick(), EXECUTORS_SEEN)
        self.nothing_paused_is_handed_out(event)
        if event is None:
            return
        stage = self.graph.stages[event.stage_id]
        for partition, _ in event.tasks:
            failed_on = stage.ledger.failed_on.get(partition, ())
            assert executor not in failed_on or set(failed_on) == set(EXECUTORS_SEEN)
        self.note_launch(event)

    @rule(executor=EXECUTORS, limit=st.integers(1, 3))
    def tasks_are_launched(self, executor: str, limit: int) -> None:
        self.stages_start()
        is_empty = not wanted_tasks(self.graph, executor, self.incarnation(executor))
        slot = ExecutorSlot(
            executor, self.incarnation(executor), self.lists[executor], can_stream=True, is_empty=is_empty
        )
        event = pop_next_tasks(self.graph, slot, limit, self.tick())
        self.nothing_paused_is_handed_out(event)
        paused = len(paused_tasks(self.graph, self.now_ms))
        assert event is None or available_tasks(self.graph) > paused
        held, _ = held_tasks(self.graph, self.now_ms)
        pending = sum(s.pending_count for s in self.graph.stages if isinstance(s, RunningStage))
        pending += sum(s.spec.partitions - len(s.ledger.outputs) for s in self.graph.stages if s.state == "resolved")
        if event is None:
            assert pending == paused + held or not self.graph.is_active
            for stage in self.graph.stages:
                if isinstance(stage, RunningStage) and self.graph.is_active:
                    for p in stage.speculatable:
                        failed_on = stage.ledger.failed_on.get(p, ())
                        assert executor in (stage.running[p].executor_id, *failed_on), "it could have run it"
            return
        if isinstance(event, TasksSpeculated):
            assert pending == paused + held
        self.note_launch(event)

    @rule(executor=EXECUTORS, limit=st.integers(1, 3))
    def a_replica_that_knows_no_pauses_launches(self, executor: str, limit: int) -> None:
        slot = ExecutorSlot(executor, self.incarnation(executor), self.lists[executor], can_stream=True)
        event = pop_next_tasks(self.plain, slot, limit, self.tick())
        if event is not None:
            self.note_launch(event, knows_ends=False)

    def nothing_paused_is_handed_out(self, event: TasksLaunched | TasksSpeculated | None) -> None:
        if isinstance(event, TasksLaunched):
            waiting = {(t.stage_id, t.partition) for t in paused_tasks(self.graph, self.now_ms)}
            assert not waiting & {(event.stage_id, p) for p, _ in event.tasks}

    @rule(after_ms=st.integers(1, 50))
    def time_passes(self, after_ms: int) -> None:
        self.now_ms += after_ms
        for paused in paused_tasks(self.graph, self.now_ms):
            longest_ms = LONGEST_PAUSE_MS if paused.failures else UNCOUNTED_PAUSE_MS
            assert self.now_ms < paused.until_ms <= self.now_ms + max(LONGEST_PAUSE_MS, longest_ms)

    def note_launch(self, event: TasksLaunched | TasksSpeculated, *, knows_ends: bool = True) -> None:
        stage = self.graph.stages[event.stage_id]
        if knows_ends and isinstance(event, TasksLaunched) and is_alone(self.graph, event):
            assert len(event.tasks) == 1, "it does not run alone"
        for partition, attempt in event.tasks:
            task = HeldTask(stage.spec.stage_id, stage.attempt, partition, attempt)
            assert task not in self.handed_out, f"{task} is handed out twice"
            self.handed_out.add(task)
            if is_streaming(self.graph, stage):
                self.told[task] = self.sources_of(event.stage_id)
            is_finished = (stage.spec.stage_id, partition) in self.finished
            has_to_repeat = not self.is_shared or self.has_lost_shared or self.has_given_up
            assert not is_finished or has_to_repeat, f"{task} was finished on shared storage and runs again"
        assert self.feed(event)
        self.reports.append(event)

    def sources_of(self, stage_id: int) -> frozenset[tuple[int, int, HeldTask]]:
        """Return the sources that a task is told to read if it is launched now."""
        return frozenset(
            (source.stage_id, p, HeldTask(source.stage_id, source.stage_attempt, p, attempt))
            for source in streams_of(self.graph, stage_id)
            for p, (attempt, _) in enumerate(source.tasks)
        )

    @property
    def has_given_up(self) -> bool:
        return self.graph.pipeline is not None and not self.graph.may_stream

    @rule(executor=EXECUTORS)
    def executor_without_streams_asks(self, executor: str) -> None:
        slot = ExecutorSlot(executor, self.incarnation(executor), self.lists[executor])
        event = pop_next_tasks(self.graph, slot, 1, self.tick())
        if event is not None and not is_streaming(self.graph, self.graph.stages[event.stage_id]):
            self.note_launch(event)
        else:
            assert event is None, "it could not read its inputs"

    @rule(data=st.data())
    def nobody_has_streams(self, data: st.DataObject) -> None:
        event = find_abandonment(self.graph, EXECUTORS_SEEN, (), self.tick())
        if event is not None and data.draw(RARELY):
            assert self.feed(event)
            self.reports.append(event)

    @rule(data=st.data(), arrives=st.sampled_from([True, True, True, False]))
    def task_succeeds(self, data: st.DataObject, *, arrives: bool) -> None:
        found = self.draw_running(data)
        if found is not None:
            stage, partition = found
            event = self.success_of(stage, partition, self.draw_attempt(data, stage, partition))
            self.send(event, arrives=arrives)
            if arrives and isinstance(event, TaskSucceeded):
                self.finished.add((event.stage_id, event.partition))

    @rule(executors=st.lists(EXECUTORS, min_size=1, max_size=4), limit=st.integers(1, 4), count=st.integers(1, 6))
    def work_goes_on(self, executors: list[str], limit: int, count: int) -> None:
        """Launch some tasks, and let some running ones succeed."""
        for executor in executors:
            self.tasks_are_launched(executor, limit)
            self.finish_running(count)

    @rule(data=st.data(), kind=RETRYABLE, arrives=st.booleans())
    def task_fails(self, data: st.DataObject, kind: FailureKind, *, arrives: bool) -> None:
        found = self.draw_running(data)
        if found is not None:
            stage, partition = found
            task = self.draw_attempt(data, stage, partition)
            event = self.failure_of(stage, partition, kind, None, task)
            cause = data.draw(st.sampled_from([None, *CAUSES.get(kind, ())]))
            self.send(replace(event, failure=replace(event.failure, cause=cause)), arrives=arrives)
            now = self.graph.stages[stage.spec.stage_id] if stage.spec.stage_id < len(self.graph.stages) else stage
            if arrives and partition in stage.speculative and isinstance(now, RunningStage):
                assert now.ledger.failures == stage.ledger.failures, "a failure counts while another attempt goes on"
                assert partition in now.running

    @rule(after_ms=st.integers(1, 50))
    def stragglers_are_found(self, after_ms: int) -> None:
        self.now_ms += after_ms
        for event in find_stragglers(self.graph, EXECUTORS_SEEN, self.tick()):
            assert self.feed(event)
            self.reports.append(event)

    @rule(data=st.data(), executor=EXECUTORS)
    def two_attempts_run(self, data: st.DataObject, executor: str) -> None:
        """A stage is nearly done, and its remaining tasks run twice."""
        if self.draw_running(data) is not None and self.graph.speculation is not None:
            self.tasks_are_launched("a", 3)
            self.finish_running(data.draw(st.integers(1, 2)))
            self.stragglers_are_found(50)
            self.tasks_are_launched(executor, 3)

    @rule(data=st.data(), arrives=st.booleans())
    def user_error(self, data: st.DataObject, *, arrives: bool) -> None:
        found = self.draw_running(data)
        if found is not None and data.draw(RARELY):
            self.send(self.failure_of(*found, FailureKind.USER_ERROR, None), arrives=arrives)

    @rule(
        data=st.data(),
        arrives=st.sampled_from([True, True, False]),
        is_nonsense=st.sampled_from([False, False, False, True]),
    )
    def fetch_fails(self, data: st.DataObject, *, arrives: bool, is_nonsense: bool) -> None:
        if self.draw_running(data, is_reader=True) is not None:
            self.finish_running(data.draw(st.integers(0, 2)))  # so that some readers are done already
        found = self.draw_running(data, is_reader=True)
        if found is None:
            return
        stage, partition = found
        sources = [
            FetchFailure(i.stage_id, p, o.nonce)
            for i in stage.spec.inputs
            for p, o in sorted(self.graph.stages[i.stage_id].ledger.outputs.items())
        ]
        if is_nonsense or not sources:
            fetch = data.draw(
                st.sampled_from([None, FetchFailure(1, 0, "?"), FetchFailure(-3, -1, ""), FetchFailure(99, 9, "")])
            )
        else:
            fetch = data.draw(st.sampled_from(sources))
            self.has_lost_shared = True
        task = self.draw_attempt(data, stage, partition)
        self.send(self.failure_of(stage, partition, FailureKind.FETCH_FAILED, fetch, task), arrives=arrives)

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

    @rule(data=st.data())
    def something_sent_before_arrives(self, data: st.DataObject) -> None:
        """Late, again, or out of order: reports, launches and losses alike."""
        if self.reports:
            event = data.draw(st.sampled_from(self.reports))
            before = self.graph
            has_changed = self.feed(event)
            if has_changed and isinstance(event, StageLaidOut):
                self.nothing_of_it_was_launched(event)
            if has_changed and isinstance(event, TaskSucceeded | FeedEvent):
                assert event.partition not in before.stages[event.stage_id].ledger.outputs
                self.finished.add((event.stage_id, event.partition))

    @rule(stage_ids=STAGE_IDS, arrives=st.booleans())
    def outputs_are_taken(self, stage_ids: set[int], *, arrives: bool) -> None:
        """Stages of a plan of which nothing has begun take what other jobs gave, and leave out what only they read."""
        specs = [s.spec for s in self.graph.stages if s.spec.stage_id in stage_ids and s.spec.output.kind == "exchange"]
        specs = [spec for spec in specs if spec.is_deterministic and not spec.feed]
        if not specs:
            return
        event = OutputsTaken(taken=tuple(map(self.taken, specs)), at_ms=self.tick())
        before = self.graph
        self.send(event, arrives=arrives)
        if self.graph is not before:
            assert not any(s.ledger.attempts or s.ledger.outputs for s in before.stages[1:])
            states = {self.graph.stages[spec.stage_id].state for spec in specs}
            assert "successful" in states
            assert states <= {"successful", "superseded"}, "what another taken output makes needless is left out"

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

    @rule(executor=EXECUTORS)
    def executor_is_lost(self, executor: str) -> None:
        before = self.graph
        event = ExecutorLost(
            executor_id=executor,
            incarnation=self.incarnation(executor),
            reason="gone",
            at_ms=self.tick(),
        )
        self.dead.add((event.executor_id, event.incarnation))
        self.lives[executor] += 1
        self.send(event, arrives=True)
        if self.is_shared and self.graph.is_active and not before.is_pipelined:
            for old, new in zip(before.stages, self.graph.stages, strict=True):
                assert old.ledger.outputs == new.ledger.outputs, "an executor took shared outputs with it"
                assert old.attempt == new.attempt

    @rule(
        executor=EXECUTORS, is_memory=st.booleans(), was_alone=st.booleans(), others=st.integers(0, 1), data=st.data()
    )
    def jvm_ends_by_itself(
        self, executor: str, *, is_memory: bool, was_alone: bool, others: int, data: st.DataObject
    ) -> None:
        """Some of the executor's tasks were running: none fails the job that had company, and none is forgotten."""
        wanted = sorted(wanted_tasks(self.graph, executor, self.incarnation(executor)))
        running = data.draw(st.sets(st.sampled_from(wanted))) if wanted else set()
        was_alone = was_alone and len(running) == 1 and not others
        lost = ExecutorLost(
            executor_id=executor,
            incarnation=self.incarnation(executor),
            reason="its JVM ended",
            at_ms=self.tick(),
            death=JvmDeath(
                is_memory=is_memory,
                was_alone=was_alone,
                tasks=len(running) + others,
                suspects=tuple(SuspectTask("job-1", *task) for task in sorted(running)),
            ),
        )
        before = self.graph
        culprit = find_culprit(before, lost)
        assert culprit is None or was_alone, "it had company"
        self.dead.add((lost.executor_id, lost.incarnation))
        self.lives[executor] += 1
        if culprit is not None:
            self.send(culprit, arrives=True)
            assert isinstance(self.graph.outcome, Failed)
        self.send(lost, arrives=True)
        if self.graph.is_active and not before.is_pipelined and (is_memory or len(running) + others > 1):
            for task in running:
                self.it_runs_alone_next(before, task)

    def it_runs_alone_next(self, before: ExecutionGraph, task: HeldTask) -> None:
        stage, now = before.stages[task.stage_id], self.graph.stages[task.stage_id]
        assert isinstance(stage, RunningStage)
        has_another = task.partition in stage.speculative
        if not has_another and stage.spec.work is not StageWork.REPLAN:
            assert now.ledger.runs_alone(task.partition)

    @rule(executor=EXECUTORS, data=st.data())
    def executor_lists_its_work(self, executor: str, data: st.DataObject) -> None:
        wanted = wanted_tasks(self.graph, executor, self.incarnation(executor))
        held = frozenset(data.draw(st.sets(st.sampled_from(sorted(wanted)))) if wanted else ())
        self.lists[executor] += 1
        slot = ExecutorSlot(executor, self.incarnation(executor), self.lists[executor])
        for event in lost_launches(self.graph, slot, held, self.tick()):
            assert self.feed(event) or self.has_given_up, "one loss may end the streaming of all"
            self.reports.append(event)
        assert lost_launches(self.graph, slot, held, self.tick()) == (), "the same list says it all at once"

    @rule(data=st.data())
    def nonsense_arrives(self, data: st.DataObject) -> None:
        """Arbitrary numbers never raise, and never break an invariant (`feed`)."""
        number = st.integers(-2, 9)
        some: dict[str, Any] = {
            "stage_id": data.draw(number),
            "stage_attempt": data.draw(number),
            "executor_id": data.draw(EXECUTORS),
            "at_ms": self.tick(),
        }
        partition, attempt = data.draw(number), data.draw(number)
        tasks = tuple(data.draw(st.lists(st.tuples(number, number), max_size=3)))
        fetch = FetchFailure(partition, attempt, f"n{data.draw(number)}")
        events: list[Event] = [
            StageLaidOut(
                stage_id=some["stage_id"],
                basis=tuple((i, 0) for i in sorted({n for pair in tasks for n in pair})),
                fused=tuple(n for n, _ in tasks),
                at_ms=some["at_ms"],
            ),
            ReplanBegun(
                replan_id=len(self.graph.stages) if partition % 2 else partition,
                basis=tasks,
                finished=(partition,),
                held=(attempt,),
                why="nonsense",
                at_ms=some["at_ms"],
            ),
            ReplanGivenUp(replan_id=partition, reason="nonsense", at_ms=some["at_ms"]),
            StageReplanned(
                replan_id=some["stage_id"],
                task_attempt=attempt,
                executor_id=some["executor_id"],
                basis=tasks,
                dropped=tuple(n for n, _ in tasks),
                stages=tuple(replace(spec, stage_id=partition) for spec in self.specs[:1]),
                result_stage_id=partition,
                at_ms=some["at_ms"],
            ),
            PartitionsAdded(
                **(some | {"executor_id": "nobody"}),
                partition=partition,
                task_attempt=attempt,
                output=replace(output("?"), payload_digest="?"),
                added=partition,
                metrics=METRICS,
            ),
            TasksLost(**some, tasks=tasks, reason=FailureKind.TASK_KILLED),
            TasksSpeculated(**some, incarnation="?", list_number=1, tasks=tasks),
            StragglersFound(**{k: v for k, v in some.items() if k != "executor_id"}, tasks=tasks),
            TaskFailed(**some, partition=partition, task_attempt=attempt, failure=failure(FailureKind.IO_ERROR)),
            TaskFailed(
                **some,
                partition=partition,
                task_attempt=attempt,
                failure=failure(FailureKind.FETCH_FAILED, fetch=fetch),
            ),
        ]
        self.has_lost_shared = True  # it may, by chance, name an output that is there
        self.feed(data.draw(st.sampled_from(events)))

    @rule(data=st.data())
    def job_is_cancelled(self, data: st.DataObject) -> None:
        if data.draw(RARELY):
            last = self.graph.last_stage
            is_published = last.spec.work is StageWork.PUBLISH
            has_begun = is_published and bool(
                running_count(self.graph) and isinstance(last, RunningStage) and last.running
            )
            was_active = self.graph.is_active
            changed = self.feed(JobCancelled(reason="enough", at_ms=self.tick()))
            assert not (changed and has_begun)
            assert changed or has_begun or not was_active or is_published

    # ------------------------------------------------------------ what always holds

    @invariant()
    def the_record_survives_the_store(self) -> None:
        if hasattr(self, "graph") and self.now_ms % 5 == 0:
            data = encode_graph(self.graph)
            found = decode_graph(data)
            assert found == self.graph
            assert encode_graph(found) == data

    @invariant()
    def views_agree(self) -> None:
        if not hasattr(self, "graph") or not self.graph.is_active:
            return
        in_hand = [
            (task.executor_id, task.incarnation, HeldTask(stage.spec.stage_id, stage.attempt, partition, task.attempt))
            for stage in self.graph.stages
            if isinstance(stage, RunningStage)
            for partition, task in stage.in_hand()
        ]
        assert len(in_hand) == running_count(self.graph)
        for executor in EXECUTORS_SEEN:
            life = self.incarnation(executor)
            assert wanted_tasks(self.graph, executor, life) == {
                task for executor_id, incarnation, task in in_hand if (executor_id, incarnation) == (executor, life)
            }
        assert has_runnable_work(self.graph) or running_count(self.graph) > 0, "an active job has nothing to do"

    def teardown(self) -> None:
        if not hasattr(self, "graph"):
            return
        self.drive_fairly()
        self.job_has_one_output_a_partition()
        self.the_log_gives_the_graph()
        self.the_log_gives_the_attempts_in_hand()

    def drive_fairly(self) -> None:
        """Without further trouble every job ends, within a pass over its stages for each that may be rolled back."""
        for _ in range(500):
            if not self.graph.is_active:
                return
            self.finish_running()
            self.tasks_are_launched("a", 3)
            if not running_count(self.graph):
                self.now_ms += LONGEST_PAUSE_MS  # nothing to do but to wait for the end of a pause
        raise AssertionError(f"the job does not end: {[s.state for s in self.graph.stages]}")

    def job_has_one_output_a_partition(self) -> None:
        if not isinstance(self.graph.outcome, Succeeded):
            assert self.graph.state in (JobState.FAILED, JobState.CANCELLED)
            return
        result = self.graph.result_stage
        assert isinstance(result, SuccessfulStage)
        assert sorted(result.ledger.outputs) == list(range(result.spec.partitions))
        if self.graph.is_pipelined:
            self.all_have_read_the_same_attempts()
            return
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                assert not self.has_given_up or found.nonce not in self.streamed, "rows of two attempts are mixed"
                if found.nonce in self.rows and stage.spec.taken is None:
                    derived = self.rows_of(stage.spec, partition, found.nonce)
                    assert self.rows[found.nonce] == derived, "rows were taken from a run that does not count"
        nonces = [o.nonce for s in self.graph.stages for o in s.ledger.outputs.values()]
        assert len(set(nonces)) == len(nonces), "an execution counts twice"

    def all_have_read_the_same_attempts(self) -> None:
        """Whatever counts was made of rows of one attempt of each task, which is the one that counts, if any does."""
        read: dict[tuple[int, int], HeldTask] = {}
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                winner = HeldTask(stage.spec.stage_id, stage.attempt, partition, found.task_attempt)
                assert read.setdefault((stage.spec.stage_id, partition), winner) == winner
                for stage_id, p, source in self.told.get(winner, ()):
                    assert read.setdefault((stage_id, p), source) == source, "two attempts of a task were read"

    def the_log_gives_the_graph(self) -> None:
        again = self.start
        for event in self.log:
            again = apply(again, event)
        assert again == self.graph
        assert apply_all(self.start, self.log) == self.graph
        stored = decode_batch(encode_batch(EventBatch(batch_id="all", events=tuple(self.log))))
        assert apply_all(self.start, stored.events) == self.graph

    def the_log_gives_the_attempts_in_hand(self) -> None:
        reader, graph = IntervalReader(self.graph), self.start
        for position, event in enumerate(self.log, 1):
            reader.read(position, EventBatch(batch_id="b", events=(event,)))
            graph = apply(graph, event)
            in_hand = {
                (stage.spec.stage_id, stage.attempt, partition, task.attempt)
                for stage in graph.stages
                if isinstance(stage, RunningStage) and graph.is_active
                for partition, task in stage.in_hand()
            }
            assert {attempt.key for attempt in reader.in_hand()} == in_hand


def as_before(graph: ExecutionGraph) -> ExecutionGraph:
    """Return *graph* as a reader has it that ignores pauses, causes, ends of JVMs, and what layouts are decided from.

    Without what people alone read of them.
    """
    stages = [replace(s, ledger=replace(s.ledger, failed_on=Map(), suspicions=Map())) for s in graph.stages]
    stages = [replace(s, paused=Map()) if isinstance(s, RunningStage) else s for s in stages]
    stages = [replace(s, failure=replace(s.failure, cause=None)) if isinstance(s, FailedStage) else s for s in stages]
    outcome, pipeline = graph.outcome, graph.pipeline
    if isinstance(outcome, Failed):
        outcome = replace(outcome, failure=replace(outcome.failure, cause=None))
    if pipeline is not None and pipeline.reason:
        pipeline = replace(pipeline, reason="given up")
    stages = [replace(s, spec=replace(s.spec, may_fuse=False, may_merge=False, leaf_bytes=0)) for s in stages]
    limits = replace(graph.limits, retry_pauses_ms=())
    return replace(graph, stages=tuple(stages), limits=limits, outcome=outcome, pipeline=pipeline, adaptive=None)


def without_cause(event: Event) -> Event:
    if isinstance(event, ExecutorLost):
        return replace(event, death=None)
    if not isinstance(event, TaskFailed):
        return event
    return replace(event, failure=replace(event.failure, cause=None))


def is_publishing(graph: ExecutionGraph) -> bool:
    last = graph.last_stage
    return last.spec.work is StageWork.PUBLISH and isinstance(last, RunningStage)


EXECUTORS_SEEN = ("a", "b", "c")


class TestWorld(World.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(
        max_examples=100,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
