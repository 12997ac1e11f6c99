"""A job under any sequence of events: reordered, repeated and delayed."""

from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from onager.execution_graph import (
    AdaptivePolicy,
    Event,
    ExecutionGraph,
    ExecutorLost,
    ExecutorSlot,
    Failed,
    FailureCause,
    FailureKind,
    FeedEvent,
    FetchFailure,
    HeldTask,
    JobCancelled,
    JvmDeath,
    OutputsTaken,
    PartitionsAdded,
    RetryLimits,
    RunningStage,
    SpeculationPolicy,
    StageReplanned,
    StageSpec,
    StageWork,
    Streaming,
    SuspectTask,
    TaskFailed,
    TasksLost,
    TasksSpeculated,
    TaskSucceeded,
    decode_graph,
    find_culprit,
    find_stragglers,
    has_runnable_work,
    lost_launches,
    running_count,
)
from onager.execution_graph.codec import encode_graph
from onager.execution_graph.events import ReplanBegun, ReplanGivenUp, StageLaidOut, StragglersFound
from onager.execution_graph.stages import RunningTask
from tests.property.graph_end import EndOfJob
from tests.property.graph_record import EXECUTORS, EXECUTORS_SEEN, LONGEST_PAUSE_MS, RARELY, without_pauses
from tests.property.graphs import plans
from tests.unit.execution_graph.builder import METRICS, failure, new_graph, output, wanted_tasks

STAGE_IDS = st.sets(st.integers(1, 6), max_size=3)
RETRYABLE = st.sampled_from([k for k in FailureKind if k.is_retryable])
CAUSES = {
    FailureKind.IO_ERROR: (FailureCause.INTERNAL_ERROR,),
    FailureKind.TASK_KILLED: (FailureCause.NO_SPACE, FailureCause.OTHER_VERSION),
}
PAUSES = st.sampled_from([(), (20,), (50, 90, LONGEST_PAUSE_MS)])
PATIENT = RetryLimits(task_max_failures=50, stage_max_failures=50)


class World(EndOfJob):
    """A job to which all happens that can, in any order."""

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

    def draw_attempt(self, data: st.DataObject, stage: RunningStage, partition: int) -> RunningTask:
        """Draw one of the attempts of a running partition."""
        return data.draw(st.sampled_from([t for p, t in stage.in_hand() if p == partition]))

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
            Streaming() if streams and not any(spec.feed for spec in specs) else None,
            None if fuse_bytes is None else AdaptivePolicy(fuse_bytes=fuse_bytes, replan=replans),
        )
        self.is_prompt, self.slots, self.portions = is_prompt, slots, portions
        self.plain = without_pauses(self.graph)
        self.specs, self.is_shared = specs, is_shared
        self.is_fused = specs[0].plan_digest is None
        if is_planned:
            self.tasks_are_launched("a", 1)
            planning = self.graph.stages[0]
            assert isinstance(planning, RunningStage)
            self.send(self.success_of(planning, 0), arrives=True)
            self.outputs_are_taken(taken, arrives=True)

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
        if self.is_shared and self.graph.is_active and not before.is_streaming:
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
        if self.graph.is_active and not before.is_streaming and (is_memory or len(running) + others > 1):
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


class TestWorld(World.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(
        max_examples=100,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
