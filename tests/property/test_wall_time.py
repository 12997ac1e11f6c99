"""The shares of a job's wall time, whatever happened to it: they add up to it, and say what cannot be doubted."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onager.execution_graph import (
    Event,
    EventBatch,
    ExecutorLost,
    ExecutorSlot,
    FailureKind,
    FetchFailure,
    RetryLimits,
    RunningStage,
    StageSpec,
    TaskMetrics,
    TasksLost,
    apply,
    pop_next_tasks,
    revive,
)
from onager.execution_graph.intervals import IntervalReader
from onager.execution_graph.wall_time import TimeUse, WallTime
from tests.property.graphs import plans
from tests.unit.execution_graph.builder import SINK, Job, new_graph, output

LIMITS = RetryLimits(task_max_failures=99, stage_max_failures=99, retry_pauses_ms=(50, 400))
costs = st.builds(
    TaskMetrics,
    run_ms=st.integers(0, 900),
    queued_ms=st.integers(0, 300),
    fetch_ms=st.integers(0, 900),
    commit_ms=st.integers(0, 200),
    bind_ms=st.integers(0, 300),
    codegen_ms=st.integers(0, 300),
    plan_ms=st.integers(0, 300),
    function_ms=st.integers(0, 300),
)


class Teller(Job):
    """A job to which things happen as they are drawn; clocks of schedulers differ."""

    def __init__(self, specs: tuple[StageSpec, ...], draw: st.DataObject) -> None:
        super().__init__(graph=new_graph(LIMITS))
        self.specs = specs
        self.draw = draw
        self.known: list[Event] = []

    def tick(self) -> int:
        self.now_ms = max(1_000, self.now_ms + self.draw.draw(st.integers(-50, 700)))
        return self.now_ms

    def happen(self) -> None:
        what = self.draw.draw(st.sampled_from(["start", "launch", "launch", "end", "end", "end", "lose", "take back"]))
        event = {
            "start": lambda: revive(self.graph, self.tick()),
            "launch": lambda: pop_next_tasks(
                self.graph,
                ExecutorSlot(executor := self.draw.draw(st.sampled_from("ab")), executor + "1", 0),
                self.draw.draw(st.integers(1, 4)),
                self.tick(),
            ),
            "end": self.an_end,
            "lose": self.a_loss,
            "take back": self.one_taken_back,
        }[what]()
        if event is None:
            return
        after = apply(self.graph, event)
        if after is not self.graph:
            self.graph = after
            self.known.append(event)

    def held_now(self) -> list[tuple[int, int]]:
        return [
            (stage.spec.stage_id, p)
            for stage in self.graph.stages
            if isinstance(stage, RunningStage)
            for p in stage.running
        ]

    def in_hand(self) -> set[tuple[int, int, int, int]]:
        return {
            (stage.spec.stage_id, stage.attempt, partition, task.attempt)
            for stage in self.graph.stages
            if isinstance(stage, RunningStage)
            for partition, task in stage.in_hand()
        }

    def an_end(self) -> Event | None:
        held = self.held_now()
        if not held:
            return None
        stage_id, partition = self.draw.draw(st.sampled_from(held))
        cost = self.draw.draw(costs)
        if self.draw.draw(st.integers(0, 5)) == 0:
            spec = self.stage(stage_id).spec
            kind = self.draw.draw(st.sampled_from([FailureKind.IO_ERROR, FailureKind.FETCH_FAILED]))
            if kind is FailureKind.FETCH_FAILED and spec.inputs:
                made = self.stage(spec.inputs[0].stage_id).ledger.outputs
                if made:
                    fetch = FetchFailure(spec.inputs[0].stage_id, min(made), made[min(made)].nonce)
                    return replace(self.failed(stage_id, partition, kind, fetch=fetch), metrics=cost)
            return replace(self.failed(stage_id, partition, FailureKind.IO_ERROR), metrics=cost)
        if stage_id:
            return replace(self.success(stage_id, partition), metrics=cost)
        is_fused = len(self.specs) == 1 and self.specs[0].plan_digest is None
        has_sink = any(s.plan_digest is None and s.inputs for s in self.specs)
        planned = self.plan(*self.specs, sink=SINK if has_sink else None, fused=output("f") if is_fused else None)
        return replace(planned, metrics=cost)

    def a_loss(self) -> Event | None:
        if self.draw.draw(st.integers(0, 6)):
            return None
        executor = self.draw.draw(st.sampled_from("ab"))
        return ExecutorLost(executor_id=executor, incarnation=executor + "1", reason="gone", at_ms=self.tick())

    def one_taken_back(self) -> Event | None:
        held = self.held_now()
        if not held:
            return None
        stage_id, partition = self.draw.draw(st.sampled_from(held))
        task = self.held(stage_id, partition)
        return TasksLost(
            stage_id=stage_id,
            stage_attempt=self.stage(stage_id).attempt,
            executor_id=task.executor_id,
            tasks=((partition, task.attempt),),
            reason=FailureKind.LAUNCH_LOST,
            at_ms=self.tick(),
        )


@settings(deadline=None, max_examples=60)
@given(plans(), st.data())
def test_shares_add_up_to_the_wall_time_whatever_happens(specs, data) -> None:
    job = Teller(specs, data)
    log = IntervalReader(job.graph)
    time = WallTime(log)
    for number in range(data.draw(st.integers(0, 60))):
        before = len(job.known)
        job.happen()
        for event in job.known[before:]:
            log.read(log.position + 1, EventBatch(batch_id="b", events=(event,)))
        if not log.is_partial and job.graph.is_active:
            assert {attempt.key for attempt in log.in_hand()} == job.in_hand()
        if number % 20 == 19 and data.draw(st.integers(0, 9)) == 0:
            log.read(log.position + 1, None)
        until_ms = job.now_ms + data.draw(st.sampled_from([0, 0, 37, 900]))
        shares = time.shares(until_ms)
        assert sum(share.ms for share in shares) == until_ms - 1_000
        assert all(share.ms > 0 for share in shares)
        assert [share.use for share in shares] == [use for use in TimeUse if use in {share.use for share in shares}]
    at_once = IntervalReader(job.graph)
    at_once.read(1, EventBatch(batch_id="all", events=tuple(job.known)))
    shares = WallTime(at_once).shares(job.now_ms)
    assert sum(share.ms for share in shares) == job.now_ms - 1_000
    if not log.is_partial:
        assert shares == time.shares(job.now_ms), "it does not matter how events come in batches"
