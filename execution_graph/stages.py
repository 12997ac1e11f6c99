"""Stages: what each computes (`StageSpec`), what its tasks have achieved (`TaskLedger`), and one class per state.

    Unresolved ──► Resolved ──► Running ──► Successful
        ▲             │            │  ▲          │
        └─────────────┴────────────┘  └──────────┘        Running ──► Failed

A stage is resolved once every producer is successful (in a streaming job: once all tasks of every producer are
launched, see `streaming`). Back edges: a lost input takes Resolved (same attempt) and Running (attempt + 1) back to
Unresolved; lost outputs that are still needed take Successful back to Running, or to Unresolved when its own inputs are
gone, too (attempt + 1, surviving outputs kept). A stage without partitions goes from Resolved to Successful at once.
A growing stage gets partitions in each state, and is not successful before its feed has ended (`feed_records`).
Unresolved and Resolved, of a stage that never launched a task, also lead to Fused: another stage's task computes it.
Every state but Successful and Failed leads to Superseded: a new plan does without the stage (`replan_changes`).
Unresolved and Resolved lead to Successful when another job's output is taken, and what only such stages read becomes
Superseded; both become Unresolved again when that output is lost (`reuse`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from onager.execution_graph.failures import Failure
from onager.execution_graph.feed_records import Feed
from onager.execution_graph.operators import OperatorReport, OperatorTotals, with_reports
from onager.execution_graph.record import Record, without
from onager.execution_graph.task_latencies import NO_LATENCIES, Latencies, TaskTimes
from onager.execution_graph.task_metrics import NO_METRICS, TaskMetrics


class StageWork(StrEnum):
    """The kind of work of a stage's tasks."""

    PLAN = "plan"
    """Turn the job's spec into stages; stage 0 of every job, one task."""
    QUERY = "query"
    """Run one stage of the physical plan."""
    FEED = "feed"
    """Find partitions for a growing stage: each task goes on where the one before it stopped."""
    PUBLISH_PLAN = "publish_plan"
    """Write down every move that makes the staged files a dataset; one task."""
    PUBLISH = "publish"
    """Carry those moves out; one task."""
    REPLAN = "replan"
    """Plan the rest of a query again, by what was measured; one task, which is never tried again."""
    STEP = "step"
    """Of a script: done by a job of its own, never by an executor (`scripts`)."""
    PROGRAM = "program"
    """Run a program of PySpark, in a process of its own; one task, the only one of its job."""


class StageInput(Record, frozen=True):
    """A producer, and how its output is read."""

    stage_id: int
    read: Literal["bucket", "all"]
    """Whether a task reads one bucket of it or everything; the stage's plan says which bucket (a union, for one, has as
    many tasks as its inputs have buckets together)."""
    may_split: bool = False
    """Whether several tasks may read a bucket of it, each what some of its tasks gave."""
    side: Literal["", "shuffled", "broadcast", "joined"] = ""
    """How it becomes a side of a join that may be planned otherwise by what was measured: shuffled, and could be
    broadcast; broadcast; in another way. Empty: it does not."""


class OutputLayout(Record, frozen=True, omit_defaults=False):
    """How a stage lays out its output: kept apart from what it computes, because a consumer may still change it."""

    kind: Literal["exchange", "result", "sink", "control"]
    buckets: int = 1
    """Output partitions; only an exchange has more than one."""


class TaskRead(Record, frozen=True, kw_only=True):
    """The buckets that a task reads of each input of which it was planned to read one."""

    first_bucket: int
    end_bucket: int
    """Exclusive."""
    split_stage_id: int = 0
    """The input of whose bucket it reads no more than what some tasks gave; 0: none."""
    first_producer: int = 0
    """The first of those tasks, by partition."""
    end_producer: int = 0
    """Exclusive."""


class StageLayout(Record, frozen=True, kw_only=True):
    """How a stage runs otherwise than it was planned, since its inputs were measured (`layout_rules`)."""

    planned_partitions: int
    fused: tuple[int, ...] = ()
    """The stages that its one task computes, too, ascending; that task reads all of every input."""
    reads: tuple[TaskRead, ...] = ()
    """What each task reads, by partition."""


class TakenFrom(Record, frozen=True, kw_only=True):
    """The stage of another job whose output a stage has taken instead of computing it (`reuse`)."""

    job_id: str
    stage_id: int
    inputs: tuple[StageInput, ...]
    """What it reads if it is computed after all."""
    partitions: int
    """In how many tasks it is then computed: the other stage may have had fewer."""


class StageSpec(Record, frozen=True, kw_only=True):
    """What a stage computes.

    It changes once at most, when the stage is laid out, before any of its tasks is launched. Only a growing stage, and
    the one that feeds it, get more partitions as they run.
    """

    stage_id: int
    name: str
    work: StageWork
    plan_digest: str | None
    """The encoded stage plan (QUERY), the encoded source (FEED), or the specification (STEP), by content."""
    partitions: int
    """Tasks of the stage, 0 or more; of a growing stage those that are known."""
    inputs: tuple[StageInput, ...]
    output: OutputLayout
    is_deterministic: bool = True
    """Whether running a partition again gives the same rows in the same order."""
    leaf_bytes: int = 0
    """What its leaves read, without the output of other stages."""
    may_fuse: bool = False
    """Whether it gives the same rows when one task does all of it, within the stage that reads it."""
    may_merge: bool = False
    """Whether it gives the same rows when a task reads neighbouring buckets."""
    expected_rows: int = 0
    """How many rows Spark expected of it; 0 where it had no idea."""
    layout: StageLayout | None = None
    """Set once it is laid out; then `partitions` and `inputs` are those of the layout."""
    feed: Feed | None = None
    """Set for a growing stage: where its partitions come from."""
    fingerprint: str = ""
    """The digest of what it computes, from which inputs and under which settings: stages of equal ones give the same
    rows. Empty: it is not to be reused."""
    taken: TakenFrom | None = None
    """Set once it has taken another job's output; then it has no inputs, and the partitions of the other stage."""

    @property
    def is_growing(self) -> bool:
        """Return whether it may get more partitions."""
        return self.feed is not None and not self.feed.has_ended

    @property
    def sources(self) -> frozenset[int]:
        """Return the stages that it does not do without: those that it reads, and the one that feeds it."""
        return frozenset({i.stage_id for i in self.inputs} | ({self.feed.stage_id} if self.feed else set()))


class TaskOutput(Record, frozen=True, kw_only=True):
    """The output of the winning execution of a partition."""

    nonce: str
    task_attempt: int = 0
    """Set by `apply`, like `executor_id`: a report need not carry it."""
    executor_id: str = ""
    is_shared: bool
    """Whether it outlives its executor."""
    rows: int
    bytes: int
    is_inline: bool = False
    """Whether it lies in the store itself (a small result)."""
    files: tuple[str, ...] = ()
    """Names below a sink's staging directory; an exchange derives its file's name from the nonce."""
    payload_digest: str | None = None
    """PUBLISH_PLAN: the manifest, by content."""
    incarnation: str = ""
    """The executor's life with which the output dies; set by `apply`, empty if it outlives every executor."""
    checksum: str = ""
    """The checksum of a result's index, to recognise what was reported; empty if an older executor wrote none."""
    bucket_sizes: str = ""
    """About how large each bucket is (`bucket_sizes`), as Base64; empty: not reported."""

    @property
    def is_durable(self) -> bool:
        """Return whether the output outlives every executor: it is shared, or lies in the store itself."""
        return self.is_shared or self.is_inline or self.payload_digest is not None

    @property
    def life(self) -> "ExecutorLife":
        """Return the life of the executor that wrote it."""
        return ExecutorLife(self.executor_id, self.incarnation)


def reachable(stage_id: int, sources_of: Callable[[int], Iterable[int]]) -> set[int]:
    """Return *stage_id*, and the stages that it leads to by *sources_of*."""
    found, below = {stage_id}, [stage_id]
    while below:
        more = set(sources_of(below.pop())) - found
        found |= more
        below += more
    return found


class ExecutorLife(NamedTuple):
    """One life of an executor: what it held in memory or on its disks is gone at its end; the next begins empty."""

    executor_id: str
    incarnation: str


class ExecutorSlot(Struct, frozen=True):
    """The executor that would run the tasks, and the number of the last running list seen from it."""

    executor_id: str
    incarnation: str
    list_number: int
    can_stream: bool = False
    """Whether its tasks can stream to other executors while they run, and read streams from them."""
    is_empty: bool = False
    """Whether the executor holds no task, as far as the scheduler knows."""


class RunningTask(Record, frozen=True, kw_only=True):
    """A task attempt that an executor holds, as far as the graph knows."""

    attempt: int
    executor_id: str
    incarnation: str
    launched_ms: int
    list_number: int
    """The last running list seen from the executor before the launch: only a later one can disprove the launch."""
    lost_launches: int = 0


class RetryPause(Record, frozen=True, kw_only=True):
    """Why, and for how long, a failed partition is not launched again."""

    failed_ms: int
    pause_ms: int
    message: str
    """What failed, shortened."""

    @property
    def until_ms(self) -> int:
        """Return when the pause is over."""
        return self.failed_ms + self.pause_ms

    def holds(self, at_ms: int) -> bool:
        """Return whether the pause goes on.

        It does not if the clock is behind that of the failure by more than the pause: otherwise the partition would
        wait for that clock.
        """
        return abs(at_ms - self.failed_ms) < self.pause_ms


class Suspicion(Record, frozen=True, kw_only=True):
    """That a task may have ended the JVM in which it was running (`losses`)."""

    deaths: int = 0
    """How many JVMs ended, without evidence of memory, while it was their only task; once it runs alone, since then."""
    runs_alone: bool = False
    """Whether the next executor that runs it runs nothing else meanwhile."""


class TaskLedger(Record, frozen=True, kw_only=True):
    """What a stage's tasks have achieved and suffered; kept over changes of the stage's state.

    The maps hold only partitions with something to say, so a stage in which nothing failed costs one entry per task.
    """

    outputs: Map[int, TaskOutput] = Map()
    attempts: Map[int, int] = Map()
    """The next attempt number of partitions that were launched before; 0 for all others."""
    failures: Map[int, int] = Map()
    """Counted failures since the last success."""
    failed_on: Map[int, tuple[str, ...]] = Map()
    """The executors of those failures, and those that could not read the plan; each once, in order of first
    occurrence."""
    suspicions: Map[int, Suspicion] = Map()
    """Of partitions that have no output. It advises the scheduler that launches tasks or loses executors."""
    successes: Map[int, int] = Map()
    """How often a partition succeeded, if its output was lost and it had to run again (or it has no output now)."""
    speculated: Map[int, int] = Map()
    """The latest number of an attempt that was launched beside a running one."""
    durations_ms: Map[int, int] = Map()
    """Milliseconds from launch to success of winning attempts; kept only for jobs that want speculation."""
    failed_fetch_attempts: frozenset[int] = frozenset()
    """The stage attempts in which a fetch failed."""
    tasks_failed: int = 0
    tasks_lost: int = 0
    metrics: TaskMetrics = NO_METRICS
    """Of the first success of each partition. Of an output taken from another job: that job's rows and bytes."""
    wasted: TaskMetrics = NO_METRICS
    """Of failed attempts, and of successes of partitions that had succeeded before. Of an attempt that was stopped
    because another one won there is only `run_ms`: the time since its launch."""
    operators: tuple[OperatorTotals, ...] = ()
    """By bound plan, in order of first occurrence; like `metrics`, of the first success of each partition."""
    latencies: Latencies = NO_LATENCIES
    """Of the tasks of `metrics`, where the stage has more than one."""

    def next_attempt(self, partition: int) -> int:
        """Return the number of the next attempt of *partition*."""
        return self.attempts.get(partition, 0)

    def success_count(self, partition: int) -> int:
        """Return how often *partition* has succeeded over the job's life."""
        return self.successes.get(partition, 0) + (1 if partition in self.outputs else 0)

    def runs_alone(self, partition: int) -> bool:
        """Return whether an executor that runs *partition* shall run nothing else meanwhile."""
        suspicion = self.suspicions.get(partition)
        return suspicion is not None and suspicion.runs_alone

    def last_known_attempt(self, partition: int, attempt: int) -> int:
        """Return the latest attempt number that was launched, if the ordinary one is *attempt*."""
        return max(attempt, self.speculated.get(partition, 0))

    def with_outputs(
        self,
        outputs: Mapping[int, TaskOutput],
        metrics: Mapping[int, TaskMetrics],
        durations_ms: Mapping[int, int] | None = None,
        operators: Sequence[OperatorReport] = (),
        times: Mapping[int, TaskTimes] | None = None,
    ) -> "TaskLedger":
        """Return the ledger after the partitions in *outputs* succeeded; earlier failures of them are forgiven."""
        again = [metrics[p] for p in metrics if p in self.successes] if self.successes else []
        first = [metrics[p] for p in metrics if p not in self.successes] if again else metrics.values()
        return replace(
            self,
            outputs=self.outputs.update(outputs),
            durations_ms=self.durations_ms.update(durations_ms) if durations_ms else self.durations_ms,
            failures=without(self.failures, outputs),
            failed_on=without(self.failed_on, outputs),
            suspicions=without(self.suspicions, outputs),
            metrics=self.metrics.merge(*first),
            wasted=self.wasted.merge(*again) if again else self.wasted,
            operators=with_reports(self.operators, operators) if operators else self.operators,
            latencies=self._with_times(times) if times else self.latencies,
        )

    def _with_times(self, times: Mapping[int, TaskTimes]) -> Latencies:
        first = [times[p] for p in times if p not in self.successes] if self.successes else times.values()
        return self.latencies.with_times(first) if first else self.latencies

    def after_waste(self, *metrics: TaskMetrics) -> "TaskLedger":
        """Return the ledger after attempts ended whose work did not count."""
        return replace(self, wasted=self.wasted.merge(*metrics))

    def without_outputs(self, partitions: frozenset[int]) -> "TaskLedger":
        """Return the ledger after the outputs of *partitions*, all present, were lost."""
        lost = sorted(partitions)
        return replace(
            self,
            outputs=without(self.outputs, lost),
            attempts=self.attempts.update(
                {p: self.last_known_attempt(p, self.outputs[p].task_attempt) + 1 for p in lost}
            ),
            successes=self.successes.update({p: self.successes.get(p, 0) + 1 for p in lost}),
            tasks_lost=self.tasks_lost + len(lost),
        )

    def after_attempts(self, attempts: Mapping[int, int]) -> "TaskLedger":
        """Return the ledger after an attempt of each partition, given by its number, ended without success."""
        following = {p: self.last_known_attempt(p, n) + 1 for p, n in attempts.items()}
        return replace(self, attempts=self.attempts.update(following))

    def after_failure(self, partition: int, executor_id: str | None) -> "TaskLedger":
        """Return the ledger after a counted failure of *partition* there; None: of which no executor is the reason."""
        return replace(
            self if executor_id is None else self.after_failure_there(partition, executor_id),
            failures=self.failures.set(partition, self.failures.get(partition, 0) + 1),
            tasks_failed=self.tasks_failed + 1,
        )

    def after_failure_there(self, partition: int, executor_id: str) -> "TaskLedger":
        """Return the ledger after noting that this executor should leave *partition* to others."""
        executors = self.failed_on.get(partition, ())
        return replace(self, failed_on=self.failed_on.set(partition, tuple(dict.fromkeys((*executors, executor_id)))))


class _Stage(Record, frozen=True, kw_only=True, tag_field="state"):
    """What stages have in every state."""

    spec: StageSpec
    attempt: int = 0
    ledger: TaskLedger = TaskLedger()

    @property
    def state(self) -> str:
        """Return the name of the state."""
        return self.type


class UnresolvedStage(_Stage, frozen=True, kw_only=True, tag="unresolved"):
    """Some producer is not successful, or, in a streaming job, has tasks that were not launched."""


class ResolvedStage(_Stage, frozen=True, kw_only=True, tag="resolved"):
    """Its inputs are there or, in a streaming job, on their way; it waits to be started (`revive`)."""


class RunningStage(_Stage, frozen=True, kw_only=True, tag="running"):
    """Its tasks are being launched; a partition is successful (has an output), running, or pending."""

    started_ms: int
    running: Map[int, RunningTask] = Map()
    next_fresh: int = 0
    """Partitions from here on were not launched in this attempt, so they need no list of pending ones."""
    returned: tuple[int, ...] = ()
    """Pending partitions below `next_fresh`, ascending; launched before the fresh ones."""
    paused: Map[int, RetryPause] = Map()
    """Those of `returned` that failed or found no space, and may not be launched yet. This only advises the scheduler
    that launches: no event's effect on anything else depends on it, so a scheduler that does not know the field
    computes the same graph."""
    speculatable: tuple[int, ...] = ()
    """Running partitions that take so long that they shall get a second attempt beside the first, ascending."""
    speculative: Map[int, RunningTask] = Map()
    """Those second attempts, each on another executor than the first and numbered one higher."""

    @property
    def pending_count(self) -> int:
        """Return the number of pending partitions; a step has none, since no executor gets it."""
        if self.spec.work is StageWork.STEP:
            return 0
        return self.spec.partitions - len(self.ledger.outputs) - len(self.running)

    @property
    def running_count(self) -> int:
        """Return the number of task attempts that executors hold."""
        return len(self.running) + len(self.speculative)

    def in_hand(self) -> Iterator[tuple[int, RunningTask]]:
        """Yield the task attempts that executors hold, with their partitions, second attempts last."""
        yield from self.running.items()
        yield from self.speculative.items()


class SuccessfulStage(_Stage, frozen=True, kw_only=True, tag="successful"):
    """Every partition has an output."""

    started_ms: int
    ended_ms: int


class FailedStage(_Stage, frozen=True, kw_only=True, tag="failed"):
    """A task failed for good; terminal, and so is the job."""

    started_ms: int
    ended_ms: int
    failure: Failure


class FusedStage(_Stage, frozen=True, kw_only=True, tag="fused"):
    """Another stage's task computes it; terminal. It has no tasks and no inputs any more, and nobody waits for it."""

    into: int
    """That stage."""


class SupersededStage(_Stage, frozen=True, kw_only=True, tag="superseded"):
    """A new plan does without it, or it was a new plan that was not taken; terminal, unless it has a *planned* spec.

    It has no tasks and no inputs any more, and nobody reads it. Of its ledger only what was wasted is kept.
    """

    ended_ms: int
    planned: StageSpec | None = None
    """Set if only stages read it that took another job's output: what it computes should that be lost."""


Stage = UnresolvedStage | ResolvedStage | RunningStage | SuccessfulStage | FailedStage | FusedStage | SupersededStage
