"""Tasks without Spark: they take virtual time, succeed, fail and lose outputs as the seed says."""

import asyncio
import json
import math
import random  # noqa: TID251 seeded
import secrets
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from onager import result_files
from onager.exchange_layout import staging_directory
from onager.execution_graph import TaskRead
from onager.executor.work import Assignment, OnReport, WorkerEnd, failure_report
from onager.ids import JobId, TaskKey
from onager.job_settings import ADAPTIVE
from onager.manifests import Manifest, Move
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys
from onager.scheduler.jobs.job_specs import decode_spec
from tests.simulation.catalogs import Catalog, Seen
from tests.simulation.data import (
    Exchange,
    JobPlan,
    Read,
    Stream,
    arrow_stream,
    digest,
    outcome_of,
    portion_of,
    rows_of,
    sizes_of,
    value_in,
)
from tests.simulation.loop import VirtualClock
from tests.simulation.replans import frame, has_frame, plan_of, replanned
from tests.simulation.reuse import add_fingerprints
from tests.simulation.scripts import is_script, statement_of, steps_of

if TYPE_CHECKING:
    from tests.simulation.programs.spark import SimulatedSpark


@dataclass(slots=True)
class TaskRates:
    """The rates of tasks' outcomes, each from 0 to 1."""

    io_error: float = 0.0
    user_error: float = 0.0
    output_lost: float = 0.0
    """A file on shared storage that vanishes after it was written."""
    slow: float = 0.1


_LOOK_AGAIN_S = 0.05
"""How soon a reader asks again for rows that are not there yet."""
_EARLY = 0.15
"""How many readers need not all rows of those that they read from."""
_BEAT_S = 0.5
"""Where jobs change the catalog, tasks end at multiples of this, so that jobs that change one table end at once."""
_STUCK = 0.1
"""How many re-plans do not end by themselves."""
_LONG = 0.9
"""How many take so long, where tasks may be slow, that what they are based on may change meanwhile."""
_FOR_EVER_S = 1e6
_TELLING = 0.9
"""How many stages' tasks tell how large their buckets are."""


class SimulatedWorker:
    """What `onager.executor.agent.agent.Agent` hands work to, in one life of an executor."""

    def __init__(
        self,
        life: str,
        exchange: Exchange,
        rng: random.Random,
        rates: Callable[[], TaskRates],
        clock: VirtualClock,
        ledger: "RunLedger",
        stream_address: str = "",
        *,
        seed: int = 0,
        spark: "SimulatedSpark | None" = None,
    ) -> None:
        """Make it; *seed*: of what does not depend on who runs a task; *spark*: answers requests of sessions."""
        self._seed = seed
        self._spark = spark
        self.stream_address = stream_address
        self._life = life
        self._exchange = exchange
        self._rng = rng
        self._rates = rates
        self._clock = clock
        self._ledger = ledger
        self._running: dict[TaskKey, tuple[asyncio.TimerHandle, OnReport]] = {}
        self._seen: dict[TaskKey, Seen] = {}
        """The catalog when tasks began to plan."""
        self._lone: TaskKey | None = None
        """The latest task that was to run alone."""
        self._is_alive = True
        self._end: WorkerEnd | None = None
        self._stuck = ""
        self._kept: set[JobId] = set()
        self._streamed: set[JobId] = set()

    # ---------------------------------------------------------------- what the agent asks

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        loop = asyncio.get_running_loop()
        self._ledger.given(self._life, assignment.task_set)
        self._kept.add(JobId(assignment.task_set.job_id))
        lone = {task.partition for task in assignment.task_set.tasks if task.alone}
        for key in task_keys(assignment.task_set):
            self._ledger.began(self._life, key)
            if self._running and (self._lone in self._running or key.partition in lone):
                self._ledger.fail(f"{self._life} runs {key} beside others, of {sorted(self._running)}")
            self._lone = key if key.partition in lone else self._lone
            if assignment.task_set.work == pb.PLAN:
                self._seen[key] = dict(self._ledger.catalog.records)
            takes_s = self._rng.uniform(0.01, 0.3)
            if self._rng.random() < self._rates().slow:
                takes_s += self._rng.uniform(0, 5)
            if assignment.task_set.work == pb.REPLAN:
                takes_s += self._replan_takes_s(key)
            if self._ledger.catalog.is_on:
                now_s = loop.time()
                takes_s = math.ceil((now_s + takes_s) / _BEAT_S) * _BEAT_S - now_s
            if assignment.task_set.streaming:
                nonce = secrets.token_hex(8)
                self._exchange.streams[key] = Stream(self._life, self.stream_address, nonce)
                is_early = self._rng.random() < _EARLY
                timer = loop.call_later(takes_s, self._stream, key, assignment, on_report, is_early)
            else:
                read = self._read(key, assignment)
                timer = loop.call_later(takes_s, self._finish, key, assignment, read, on_report)
            self._running[key] = (timer, on_report)

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        for key in sorted(tasks):
            found = self._running.pop(key, None)
            if found is not None:
                found[0].cancel()
                self._end_stream(key, is_well=False)
                found[1](self._failed(key, pb.Failure(kind="task_killed", message="stopped")))

    def kept_jobs(self) -> set[JobId]:
        return self._kept

    def streamed_jobs(self) -> set[JobId]:
        return self._streamed

    def clean_up(self, request: pb.CleanUp) -> None:
        if not request.dead_writers:
            self._kept.discard(JobId(request.job_id))
            self._streamed.discard(JobId(request.job_id))
        if request.memory_only:
            self._ledger.trace(f"{self._life} forgets {request.job_id}")
            return
        kept = {name.rpartition("-")[2].removesuffix(".arrow"): None for name in request.keep_files}
        stages = {int(name.removesuffix("/")) for name in request.keep_files if name.endswith("/")}
        self._ledger.trace(f"{self._life} cleans up {request.job_id}, keeping {len(kept)}")
        self._exchange.clean(request.job_id, kept, stages, f"{self._life} at {asyncio.get_running_loop().time():.3f}")

    def connect(self, call, _catalog):
        if self._spark is not None:
            return self._spark.connect(call)
        return pb.ConnectReply(failure=pb.ConnectFailure(message="there is no Spark here"))

    def exchange_contents(self) -> None:
        return None

    def check_exchange(self) -> None:
        """There is always space here."""

    def sample_load(self) -> pb.ExecutorLoad | None:
        return pb.ExecutorLoad(heap_used_bytes=len(self._kept) << 20, rss_bytes=1 << 30) if self._is_alive else None

    def progress(self) -> list[pb.AttemptProgress]:
        """Tell half of the tasks, as if they were half done."""
        return [pb.AttemptProgress(task=task_id(key), rows_read=1, permille=500) for key in sorted(self._running)[::2]]

    def is_alive(self) -> bool:
        return self._is_alive

    def end(self) -> WorkerEnd | None:
        return self._end

    def enforce_deadlines(self) -> str:
        return self._stuck

    def kill(self) -> None:
        self.die()

    def get_stuck(self) -> None:
        """Do not stop something that was cancelled: the JVM has to be ended."""
        self._stuck = "something did not stop"

    def die(self, end: WorkerEnd | None = None) -> None:
        """Lose the JVM, as *end* says."""
        self._is_alive, self._end = False, end
        if end is not None:
            self._ledger.died(list(self._running), is_memory=end.is_memory)
        for timer, _ in self._running.values():
            timer.cancel()
        self._exchange.lose_streams(self._life)

    def close(self) -> None:
        pass

    # ---------------------------------------------------------------- running

    def _stream(self, key: TaskKey, assignment: Assignment, on_report: OnReport, is_early: bool) -> None:  # noqa: FBT001
        """Go on with a task that reads what others are still writing: it ends after them, or needs only some rows."""
        read, are_over = self._read_streams(key, assignment)
        if isinstance(read, dict):
            stream = self._exchange.streams[key]
            stream.value = value_in(self._plan_of(assignment), _task(key), read, stream.nonce)
        if read is None or (isinstance(read, dict) and not (are_over or is_early)):
            loop = asyncio.get_running_loop()
            timer = loop.call_later(_LOOK_AGAIN_S, self._stream, key, assignment, on_report, is_early)
            self._running[key] = (timer, on_report)
        else:
            self._finish(key, assignment, read, on_report)

    def _read_streams(
        self, key: TaskKey, assignment: Assignment
    ) -> "tuple[dict[int, list[Any]] | pb.Failure | None, bool]":
        """Return the values of the inputs, what went wrong, or None for not yet; and whether their tasks are over."""
        read: dict[int, list[Any]] = {}
        are_over = True
        for source in assignment.task_set.streams:
            values = []
            for partition, task in enumerate(source.tasks):
                name = TaskKey(key.job_id, source.stage_id, source.stage_attempt, partition, task.task_attempt)
                found = self._exchange.streams.get(name)
                if found is None or (found.value is None and not found.is_broken):
                    return None, False
                if found.is_broken or found.address != task.address:
                    kind = self._rng.choice(("fetch_failed", "io_error"))
                    return pb.Failure(kind=kind, message=f"the stream of {name} broke off"), False
                are_over = are_over and found.is_over
                values.append(found.value)
            read[source.stage_id] = values
        return read, are_over

    def _end_stream(self, key: TaskKey, *, is_well: bool) -> None:
        stream = self._exchange.streams.get(key)
        if stream is not None and stream.life == self._life:
            stream.is_over, stream.is_broken = is_well, not is_well

    def _finish(
        self, key: TaskKey, assignment: Assignment, read: "dict[int, list[Any]] | pb.Failure", on_report: OnReport
    ) -> None:
        self._running.pop(key, None)
        rates, number = self._rates(), self._rng.random()
        if isinstance(read, pb.Failure):
            report = self._failed(key, read)
        elif number < rates.io_error:
            report = self._failed(key, pb.Failure(kind="io_error", message="the disk did not feel like it"))
        elif number < rates.io_error + rates.user_error:
            report = self._failed(key, pb.Failure(kind="user_error", message="division by zero"))
        else:
            report = self._succeeded(key, assignment, read)
        self._end_stream(key, is_well=report.HasField("success"))
        self._ledger.ended(self._life, key, report)
        on_report(report)

    def _failed(self, key: TaskKey, failure: pb.Failure) -> pb.TaskReport:
        now_ms = self._clock.now_ms()
        return failure_report(key, failure, started_ms=now_ms, ended_ms=now_ms)

    def _read(self, key: TaskKey, assignment: Assignment) -> "dict[int, list[Any]] | pb.Failure":
        """Return the values of the inputs, or the failure to fetch one."""
        read: dict[int, list[Any]] = {}
        if assignment.task_set.work == pb.PUBLISH:
            return read  # the manifest is among its blobs
        for location in assignment.task_set.inputs:
            values = []
            for partition, output in enumerate(location.outputs):
                found = self._exchange.written.get(output.nonce)
                if found is None or not found.is_there or found.is_streamed:
                    self._ledger.missed(self._life, key, output.nonce)
                    fetch = pb.FetchFailure(
                        input_stage_id=location.stage_id, input_partition=partition, nonce=output.nonce
                    )
                    return pb.Failure(kind="fetch_failed", message=f"{output.nonce} is missing", fetch=fetch)
                values.append(found.value)
            read[location.stage_id] = values
        return read

    def _succeeded(self, key: TaskKey, assignment: Assignment, read: Mapping[int, Sequence[Any]]) -> pb.TaskReport:
        task_set = assignment.task_set
        report = pb.TaskReport(task=task_id(key), started_ms=self._clock.now_ms(), ended_ms=self._clock.now_ms())
        success = report.success
        success.metrics.run_ms = 1
        match task_set.work:
            case pb.PLAN:
                spec = decode_spec(assignment.blobs[task_set.spec_digest])
                script = spec.sql
                if self._is_planned_otherwise(key.job_id, spec, task_set, success):
                    return report
                plan = JobPlan.parse(statement_of(script.text, script.statements))
                plan = plan.growing() if task_set.may_grow else plan
                success.plan.CopyFrom(outcome_of(plan))
                add_fingerprints(success.plan, plan if task_set.may_reuse else None)
                if has_frame(plan, is_forced=spec.conf.get(ADAPTIVE) == "force"):
                    frame(success.plan, plan)
                if self._ledger.catalog.is_on:
                    self._ledger.catalog.change(
                        success.plan.catalog, key.job_id, self._seen[key], writes_rows=plan.has_sink
                    )
                success.output.nonce, success.output.shared = "plan", True
                if plan.is_fused:
                    inline = self._write(key._replace(stage_id=1), plan, {}, success.plan.fused_output)
                    success.plan.fused_inline_result = inline
            case pb.REPLAN:
                plan = plan_of(assignment.blobs[task_set.replan.frame_digest])
                outcome, new = replanned(plan, task_set.replan, self._rng_of(key))
                success.plan.CopyFrom(outcome)
                if outcome.stages:
                    self._ledger.replanned(outcome.stages[-1].plan_digest, new)
            case pb.QUERY:
                plan = self._plan_of(assignment)
                place = _place(key, assignment) if task_set.portion.digest else None
                success.inline_result = self._write(key, plan, read, success.output, task_set, place)
                buckets = task_set.output.buckets
                if task_set.output.kind == "exchange" and buckets > 1 and self._rng_of_sizes(key).random() < _TELLING:
                    success.bucket_sizes = sizes_of(key.job_id, key.stage_id, key.partition, buckets)
            case pb.FEED:
                self._feed(key, assignment, success)
            case pb.PUBLISH_PLAN:
                content = self._manifest(key.job_id, task_set).to_bytes()
                blob = success.blobs.add(digest=digest(content), content=content)
                success.output.nonce, success.output.shared = secrets.token_hex(8), True
                success.output.payload_digest = blob.digest
            case pb.PUBLISH:
                (content,) = assignment.blobs.values()
                success.output.nonce, success.output.shared = secrets.token_hex(8), True
                self._ledger.publishes(self._life, key, [move.source for move in Manifest.from_bytes(content).moves])
        return report

    def _is_planned_otherwise(
        self, job_id: str, spec: pb.JobSpec, task_set: pb.TaskSet, success: pb.TaskSuccess
    ) -> bool:
        """Plan the call of a program, or a script; return whether the job is one."""
        if spec.HasField("connect"):
            assert self._spark is not None
            self._spark.plan(job_id, spec.connect, success.plan)
        elif is_script(spec.sql.text) and not spec.sql.statements:
            assert task_set.may_step, "a script is to be planned as one job"
            success.plan.CopyFrom(steps_of(spec.sql.text))
        else:
            return False
        success.output.nonce, success.output.shared = "plan", True
        return True

    def _manifest(self, job_id: str, task_set: pb.TaskSet) -> Manifest:
        changes = pb.CatalogChanges()
        if self._ledger.catalog.is_on:
            self._ledger.catalog.change(changes, job_id, self._ledger.catalog.records, writes_rows=True)
        names = [output.nonce for location in task_set.inputs for output in location.outputs]
        return Manifest(
            job_id=job_id,
            nonce=digest(job_id.encode())[:16],
            target=task_set.sink.path,
            mode=task_set.sink.mode,
            staging=staging_directory(task_set.sink.path, job_id),
            moves=tuple(Move(name, name) for name in names),
            table=Catalog.written(changes, job_id),
        )

    def _feed(self, key: TaskKey, assignment: Assignment, success: pb.TaskSuccess) -> None:
        """Find what comes after the last portion that is known."""
        fed = key.stage_id + 1
        adds = self._plan_of(assignment).stages[fed - 1].adds
        _, stage_id, before, _ = json.loads(assignment.blobs[assignment.task_set.portion.digest])
        assert (stage_id, before) == (fed, key.partition), "the feed goes on elsewhere than where it stopped"
        content = portion_of(fed, before + 1, adds[before])
        success.output.nonce, success.output.shared = secrets.token_hex(8), True
        success.output.payload_digest = digest(content)
        success.blobs.add(digest=digest(content), content=content)
        success.feed.added, success.feed.ended = adds[before], before + 1 == len(adds)

    def _plan_of(self, assignment: Assignment) -> JobPlan:
        content = assignment.blobs[assignment.task_set.plan_digest]
        return JobPlan.parse(content.decode().rpartition(" stage ")[0])

    def _replan_takes_s(self, key: TaskKey) -> float:
        """Return how much longer than other tasks a re-plan takes."""
        rng = random.Random(f"time of re-plan {key.job_id} {key.stage_id} {self._seed}")
        if rng.random() < _STUCK:
            return _FOR_EVER_S
        return rng.uniform(1, 4) if self._rates().slow and rng.random() < _LONG else 0.0

    def _rng_of(self, key: TaskKey) -> random.Random:
        return random.Random(f"replan {key.job_id} {key.stage_id} {self._seed}")

    @staticmethod
    def _rng_of_sizes(key: TaskKey) -> random.Random:
        return random.Random(f"told {key.job_id} {key.stage_id}")

    def _write(
        self,
        key: TaskKey,
        plan: JobPlan,
        read: Mapping[int, Sequence[Any]],
        output: pb.TaskOutput,
        task_set: pb.TaskSet | None = None,
        place: Sequence[int] | None = None,
    ) -> bytes:
        """Leave an output behind; return its inline result."""
        is_streaming = task_set is not None and task_set.streaming
        fused = [] if task_set is None else [each.stage_id for each in task_set.fused]
        part = None if task_set is None or not task_set.reads else part_of(task_set.reads[key.partition])
        nonce = self._exchange.streams[key].nonce if is_streaming else secrets.token_hex(8)
        value = value_in(plan, _task(key), read, nonce, fused, part, place)
        is_result = key.stage_id == len(plan.stages) and not plan.has_sink
        is_staged = key.stage_id == len(plan.stages) and plan.has_sink
        is_streamed = is_streaming and not (is_result or is_staged)
        output.nonce, output.shared, output.bytes = nonce, (plan.is_shared or is_staged) and not is_streamed, 10
        output.executor_id = self._life.partition("_")[0]
        output.inline = is_result and plan.is_inline
        output.rows = len(rows_of(value)) if is_result else 1
        self._ledger.wrote(self._life, key, nonce, value, is_shared=output.shared or output.inline)
        self._exchange.written[nonce].is_streamed = is_streamed
        if is_streamed:
            self._streamed.add(key.job_id)
        if not is_result and output.shared and self._rng.random() < self._rates().output_lost:
            self._exchange.lose(nonce, "a disk lost it")
            self._ledger.trace(f"the file {nonce} is lost")
        return arrow_stream(rows_of(value)) if output.inline else b""


def _place(key: TaskKey, assignment: Assignment) -> list[int]:
    """Return the portion that a task reads, and its place there, as its task set says."""
    named = assignment.task_set.portion
    _, stage_id, portion, partitions = json.loads(assignment.blobs[named.digest])
    assert stage_id == key.stage_id, "a portion of another stage is read"
    assert named.partitions == partitions > key.partition - named.first_partition >= 0, "another portion is read"
    return [portion, key.partition - named.first_partition]


def part_of(read: "pb.TaskRead | TaskRead") -> Read:
    """Return what a task reads, as `value_in` takes it."""
    return (read.first_bucket, read.end_bucket, read.split_stage_id, read.first_producer, read.end_producer)


def _task(key: TaskKey) -> tuple[str, int, int]:
    return key.job_id, key.stage_id, key.partition


class RunLedger(Protocol):
    """What really happened on executors, for the oracles; implemented by `observer.Observer` and its base."""

    def trace(self, text: str) -> None: ...
    def fail(self, text: str) -> None: ...
    def died(self, running: list[TaskKey], *, is_memory: bool) -> None: ...
    def replanned(self, result_digest: str, plan: JobPlan) -> None: ...
    def given(self, life: str, task_set: pb.TaskSet) -> None: ...
    def began(self, life: str, key: TaskKey) -> None: ...
    def ended(self, life: str, key: TaskKey, report: pb.TaskReport) -> None: ...

    catalog: Catalog

    def missed(self, life: str, key: TaskKey, nonce: str) -> None: ...
    def publishes(self, life: str, key: TaskKey, nonces: list[str]) -> None: ...
    def wrote(self, life: str, key: TaskKey, nonce: str, value: int, *, is_shared: bool) -> None: ...


def read_result(exchange: Exchange, path: str, first: int) -> Generator[bytes, None, None]:
    """Yield what `result_files.read_result` would from the file at *path*."""
    nonce = path.rpartition("-")[2].removesuffix(".arrow")
    found = exchange.written.get(nonce)
    if found is None or not found.is_there:
        from onager.errors import FetchFailedError

        raise FetchFailedError(f"result file {path} is missing")
    yield from list(result_files.read_inline(arrow_stream(rows_of(found.value)), path, ""))[first:]
