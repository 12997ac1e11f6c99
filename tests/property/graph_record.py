"""The graph of a job, and a plain record of what was launched and written, by which each event is checked."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from immutables import Map
from msgspec.structs import replace

from onager.execution_graph import (
    Event,
    ExecutionGraph,
    ExecutorLost,
    Failed,
    FailedStage,
    FailureKind,
    FetchFailure,
    HeldTask,
    RunningStage,
    StageSpec,
    StagesStarted,
    StageWork,
    SuccessfulStage,
    TaskFailed,
    TaskSucceeded,
    apply,
    running_count,
    violations,
)

EXECUTORS_SEEN = ("a", "b", "c")
EXECUTORS = st.sampled_from(EXECUTORS_SEEN)
RARELY = st.sampled_from([False] * 29 + [True])
LONGEST_PAUSE_MS = 200


class GraphRecord(RuleBasedStateMachine):
    """The graph, and a plain record of what was launched, what was reported, and which attempts won."""

    def __init__(self) -> None:
        super().__init__()
        self.start: ExecutionGraph
        self.plain: ExecutionGraph
        """The same job, had it no pauses before retries and no causes of failures: events do the same to it."""
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
        self.reported: dict[HeldTask, frozenset[tuple[int, int, HeldTask]]] = {}
        """Which attempts each task of a streaming job reads, as (stage, partition, attempt)."""
        self.streamed: set[str] = set()
        """Nonces of outputs written while stages streamed."""
        self.finished: set[tuple[int, int]] = set()
        """Each (stage, partition) that was successful at some time."""
        self.portions = 1
        """How many tasks of a feed find more, before the one that finds the end."""
        self.is_prompt, self.slots = True, 1
        """Whether a layout is applied when it is decided; else it arrives late, or never."""

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
        assert without_pauses(self.plain) == without_pauses(self.graph), "a pause or a cause changed what an event does"
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
        if before.streaming != self.graph.streaming:
            return  # everything is made again
        had, has = (g.stages[fetch.stage_id].ledger.outputs for g in (before, self.graph))
        if fetch.partition in had and had[fetch.partition].nonce == fetch.nonce:
            writer = self.writers.get(fetch.nonce)
            if has != had and not had[fetch.partition].is_durable:
                assert all(o.is_durable or self.writers.get(o.nonce) != writer for o in has.values())
        else:
            assert has == had, "an output was lost that nobody had missed"

    def streaming_is_given_up_once_and_whole(self, before: ExecutionGraph) -> None:
        if before.streaming == self.graph.streaming:
            return
        assert before.is_streaming, "it was given up before, or there was nothing to give up"
        assert not self.graph.is_streaming
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

    def outputs_are_what_was_written(self) -> None:
        for stage in self.graph.stages[1:]:
            for partition, found in stage.ledger.outputs.items():
                if found.nonce in self.written:
                    written = self.written[found.nonce]
                    assert (written.stage_id, written.partition) == (stage.spec.stage_id, partition)
                    assert (written.task_attempt, written.executor_id) == (found.task_attempt, found.executor_id)

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

    def send(self, event: Event, *, arrives: bool) -> None:
        self.reports.append(event)
        if arrives:
            self.feed(event)

    @property
    def has_given_up(self) -> bool:
        return self.graph.streaming is not None and not self.graph.may_stream


def without_pauses(graph: ExecutionGraph) -> ExecutionGraph:
    """Return *graph* without pauses, causes of failures, ends of JVMs, and what layouts are decided from."""
    stages = [replace(s, ledger=replace(s.ledger, failed_on=Map(), suspicions=Map())) for s in graph.stages]
    stages = [replace(s, paused=Map()) if isinstance(s, RunningStage) else s for s in stages]
    stages = [replace(s, failure=replace(s.failure, cause=None)) if isinstance(s, FailedStage) else s for s in stages]
    outcome, streaming = graph.outcome, graph.streaming
    if isinstance(outcome, Failed):
        outcome = replace(outcome, failure=replace(outcome.failure, cause=None))
    if streaming is not None and streaming.reason:
        streaming = replace(streaming, reason="given up")
    stages = [replace(s, spec=replace(s.spec, may_fuse=False, may_merge=False, leaf_bytes=0)) for s in stages]
    limits = replace(graph.limits, retry_pauses_ms=())
    return replace(graph, stages=tuple(stages), limits=limits, outcome=outcome, streaming=streaming, adaptive=None)


def without_cause(event: Event) -> Event:
    if isinstance(event, ExecutorLost):
        return replace(event, death=None)
    if not isinstance(event, TaskFailed):
        return event
    return replace(event, failure=replace(event.failure, cause=None))


def is_publishing(graph: ExecutionGraph) -> bool:
    last = graph.last_stage
    return last.spec.work is StageWork.PUBLISH and isinstance(last, RunningStage)
