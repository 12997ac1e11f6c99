"""How the tasks of a job are launched."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from onager.execution_graph import (
    ExecutorSlot,
    HeldTask,
    RunningStage,
    TasksLaunched,
    TasksSpeculated,
    available_tasks,
    find_abandonment,
    find_replan,
    held_tasks,
    is_alone,
    is_streaming,
    lay_out,
    paused_tasks,
    pop_next_tasks,
    revive,
    streams_of,
)
from onager.execution_graph.events import StageLaidOut
from onager.execution_graph.failures import UNCOUNTED_PAUSE_MS
from tests.property.graph_record import EXECUTORS, EXECUTORS_SEEN, LONGEST_PAUSE_MS, RARELY
from tests.property.graph_reports import Reports
from tests.unit.execution_graph.builder import wanted_tasks


class Launches(Reports):
    """Starts stages and launches tasks, and checks which ones."""

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
    def tasks_are_launched_without_pauses(self, executor: str, limit: int) -> None:
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
                self.reported[task] = self.sources_of(event.stage_id)
            is_finished = (stage.spec.stage_id, partition) in self.finished
            has_to_repeat = not self.is_shared or self.has_lost_shared or self.has_given_up
            assert not is_finished or has_to_repeat, f"{task} was finished on shared storage and runs again"
        assert self.feed(event)
        self.reports.append(event)

    def sources_of(self, stage_id: int) -> frozenset[tuple[int, int, HeldTask]]:
        """Return the sources that a task is asked to read if it is launched now."""
        return frozenset(
            (source.stage_id, p, HeldTask(source.stage_id, source.stage_attempt, p, attempt))
            for source in streams_of(self.graph, stage_id)
            for p, (attempt, _) in enumerate(source.tasks)
        )

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
