"""Binds stage plans to their inputs, once per stage attempt, which makes them executable."""

import base64
import hashlib
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from onager.exchange_layout import stage_directory
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.spark.jvm import Jvm
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.kernel.leaves import LeafTools
from onager.executor.spark.place_checks import check_places
from onager.executor.spark.stage_plan import ExchangeInput, LeafInput, ResultOutput, StagePlan, StageSource
from onager.ids import JobId, StageId, is_life
from onager.protocol import onager_pb2 as pb
from onager.redaction import shown_text

_MAX_SESSIONS = 16
_MAX_PORTIONS = 2
"""How many portions of a growing stage stay bound."""
_SPARING_FROM = 2
"""From this attempt on a task uses few hash tables: others may have run out of memory, on other executors."""
_TEXT_BYTES = 1024
"""How much is kept of an operator's text."""


FusedPlans = Mapping[StageId, StagePlan]
"""The plans of the stages that a task set names as fused: its only task computes them, too."""
NOTHING_FUSED: FusedPlans = {}


@dataclass(frozen=True, slots=True)
class StageKey:
    """Identifies one attempt of a stage over certain input files or streams."""

    job_id: JobId
    stage_id: StageId
    stage_attempt: int
    inputs_digest: str
    portion: int = 0
    """The first partition of the portion that it reads, in a growing stage."""

    def __str__(self) -> str:
        """Return a short form."""
        return f"{self.job_id}/{self.stage_id}.{self.stage_attempt}/{self.inputs_digest[:8]}"


def stage_key(task_set: pb.TaskSet) -> StageKey:
    """Return the key of the bound stage of *task_set*."""
    digest = hashlib.sha256(task_set.plan_digest.encode())
    digest.update(task_set.inputs_digest.encode())
    for location in () if task_set.inputs_digest else task_set.inputs:
        nonces = ",".join(output.nonce for output in location.outputs)
        digest.update(f"{location.stage_id}:{nonces};".encode())
    for stream in task_set.streams:
        tasks = ",".join(f"{task.task_attempt}@{task.address}" for task in stream.tasks)
        digest.update(f"{stream.stage_id}.{stream.stage_attempt}:{tasks};".encode())
    for stage in task_set.fused:
        digest.update(f"fused {stage.stage_id}:{stage.plan_digest};".encode())
    if task_set.portion.digest:
        digest.update(f"portion {task_set.portion.first_partition}:{task_set.portion.digest};".encode())
    for read in task_set.reads:
        digest.update(read.SerializeToString(deterministic=True) + b";")
    portion = task_set.portion.first_partition
    return StageKey(
        JobId(task_set.job_id), StageId(task_set.stage_id), task_set.stage_attempt, digest.hexdigest(), portion
    )


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """The operators of a stage as it was bound, and the metrics of them that its tasks report."""

    content: bytes
    """JSON: ``{"nodes": […]}``, as `onager.scheduler.api.operators` reads it."""
    digest: str


@dataclass(frozen=True, slots=True)
class BoundStage:
    """A stage whose tasks can be started."""

    java: Any
    """The kernel's ``Bound``."""
    plan: BoundPlan | None
    """None: its tasks report no metrics of operators."""
    codegen_ms: int = 0
    """How long Spark generated and compiled code meanwhile."""
    places: frozenset[str] = frozenset()
    """The shared directories in which it reads files."""


@dataclass(slots=True)
class _Binding:
    """A stage that is bound or being bound."""

    group: str
    """The Spark job group of the stage's broadcasts and subqueries; unique to this binding."""
    made: Future[BoundStage] = field(default_factory=Future)
    waiting: list[Callable[[], bool]] = field(default_factory=list)
    """A function of each caller that returns whether it still wants the stage."""


class Binder:
    """Binds stages, and keeps them until their job is closed; also keeps Spark sessions. Thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        kernel: Kernel,
        name: str,
        check_address: Callable[[str], None],
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        """Bind in *kernel*; *check_address* raises if streams must not be read from an address.

        *name* is unique among the binders of this Spark; its job groups contain it. What reads files in one of *places*
        is bound only while that is seen.
        """
        self._places = places
        self._name = name
        self._check_address = check_address
        self._spark = spark
        self._kernel = kernel
        self._leaves = LeafTools(Jvm.of(spark))
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Future[Any]] = OrderedDict()
        """By conf, in order of last use; made or being made."""
        self._bound: dict[StageKey, _Binding] = {}
        self._sparing: set[StageKey] = set()
        """Stages that ran out of memory."""
        self._count = itertools.count(1)

    def bound(
        self,
        task_set: pb.TaskSet,
        plan: StagePlan,
        is_wanted: Callable[[], bool] = lambda: True,
        fused: FusedPlans = NOTHING_FUSED,
        portion: bytes = b"",
    ) -> BoundStage:
        """Return the stage of *task_set*, bound; concurrent callers share one binding.

        A growing stage is bound anew for each *portion*.

        Binding runs the stage's broadcasts and subqueries. Their errors are raised as py4j raises them, and the next
        call binds again. `cancel` ends it early if no caller's *is_wanted* returns true.
        """
        key = stage_key(task_set)
        # A task that is alone may have run out of memory in company, a late one on other executors.
        is_sparing = any(task.alone or task.task_attempt >= _SPARING_FROM for task in task_set.tasks)
        with self._lock:
            if is_sparing and is_wanted() and key not in self._sparing:
                self._sparing.add(key)
                self._bound.pop(key, None)
            known = self._bound.get(key)
            if known is None and not is_wanted():
                raise CancelledError  # an earlier cancel found no binding to stop
            mine = known or _Binding(f"bind/{self._name}/{key}/{next(self._count)}")
            self._bound[key] = mine
            if not mine.made.done():
                mine.waiting.append(is_wanted)
        if known is not None:
            return known.made.result()
        try:
            made = self._bind(key, mine.group, task_set, plan, fused, portion)
        except BaseException as e:
            with self._lock:
                if self._bound.get(key) is mine:
                    del self._bound[key]
            mine.made.set_exception(e)
            raise
        with self._lock:
            mine.made.set_result(made)
            mine.waiting.clear()
        self._drop_before(key)
        return made

    def session(self, conf: Mapping[str, str]) -> Any:
        """Return a JVM session under *conf*, shared by all stages, of any job, that were planned under it.

        A stage needs nothing else of a session, and making one takes as long as a short task.
        """
        text = json.dumps(dict(sorted(conf.items())))
        with self._lock:
            known = self._sessions.pop(text, None)
            mine = known or Future[Any]()
            self._sessions[text] = mine
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        if known is None:
            self._make_session(text, conf, mine)
        return mine.result()

    def _make_session(self, text: str, conf: Mapping[str, str], made: Future[Any]) -> None:
        try:
            made.set_result(self._kernel.session(self._spark, conf))
        except BaseException as e:
            with self._lock:
                if self._sessions.get(text) is made:
                    del self._sessions[text]  # the next caller tries again
            made.set_exception(e)
            raise

    def jobs(self) -> set[JobId]:
        """Return the jobs with bound stages or broadcasts."""
        with self._lock:
            return {key.job_id for key in (*self._bound, *self._sparing)}

    def spare(self, key: StageKey) -> None:
        """Make tasks of a stage that start from now on use as few hash tables as possible: what sorts can spill."""
        with self._lock:
            if key in self._bound and key not in self._sparing:
                self._sparing.add(key)
                del self._bound[key]

    def cancel(self, key: StageKey) -> None:
        """Cancel the binding of a stage, with its broadcasts and subqueries, if no caller wants it any more."""
        with self._lock:
            found = self._bound.get(key)
            if found is None or found.made.done() or any(is_wanted() for is_wanted in found.waiting):
                return
            del self._bound[key]  # later callers bind it again
        self._kernel.cancel_group(found.group)

    def close_job(self, job_id: JobId) -> None:
        """Forget all stages of a job, and cancel those that are being bound."""
        with self._lock:
            gone = {key: binding for key, binding in self._bound.items() if key.job_id == job_id}
            for key in gone:
                del self._bound[key]
            self._sparing = {key for key in self._sparing if key.job_id != job_id}
        for binding in gone.values():
            if not binding.made.done():
                self._kernel.cancel_group(binding.group)
        self._kernel.close_job(job_id)

    def _drop_before(self, key: StageKey) -> None:
        """Forget the bound stages of earlier attempts, and of portions before the last two: others hardly come back."""
        with self._lock:
            mine = {
                old: binding
                for old, binding in self._bound.items()
                if (old.job_id, old.stage_id) == (key.job_id, key.stage_id) and binding.made.done()
            }
            portions = sorted({old.portion for old in mine})[-_MAX_PORTIONS:]
            for old in mine:
                if old.stage_attempt < key.stage_attempt or old.portion < portions[0]:
                    del self._bound[old]

    def _bind(
        self,
        key: StageKey,
        group: str,
        task_set: pb.TaskSet,
        plan: StagePlan,
        fused: FusedPlans,
        portion: bytes,
    ) -> BoundStage:
        session = self.session(plan.conf)
        parts = [plan, *(fused[StageId(stage.stage_id)] for stage in task_set.fused)]
        sources = [source for part in parts for source in part.inputs]
        spec = {
            "job": key.job_id,
            "group": group,
            "partitions": task_set.partitions,
            "ordered": isinstance(plan.output, ResultOutput),
            "sparing": key in self._sparing,
            "inputs": self._inputs(key.job_id, task_set, sources),
            "metrics": plan.metrics,
            **_layout(task_set, parts),
        }
        first = task_set.portion.first_partition
        rebuilt = [
            self._leaf(session, source, portion, first) if isinstance(source, LeafInput) else None for source in sources
        ]
        places = self._places_of(rebuilt)
        bound = self._kernel.bind(session, plan.fragment, spec, rebuilt, [part.fragment for part in parts[1:]])
        nodes = self._kernel.operators(bound)
        made = None if nodes is None else bound_plan(nodes)
        return BoundStage(bound, made, self._kernel.codegen_ms(bound), places)

    def _places_of(self, rebuilt: Sequence[Any]) -> frozenset[str]:
        """Return the places in which leaves read files; `PlaceNotSeenError` if one of them is not seen."""
        if not self._places.names:
            return frozenset()
        places = frozenset(
            self._places.of(root for leaf in rebuilt if leaf is not None for root in self._leaves.roots(leaf))
        )
        check_places(self._places, places)  # binding may compute a broadcast of their rows
        return places

    def _leaf(self, session: Any, source: LeafInput, portion: bytes, first: int) -> Any:
        if source.grows:
            return self._leaves.rebuild_growing(session, source.description, portion, first)
        return self._leaves.rebuild(session, source.description)

    def _inputs(
        self, job_id: JobId, task_set: pb.TaskSet, sources: Sequence[StageSource]
    ) -> list[dict[str, Any] | None]:
        """Return how each of *sources* is read; None for leaves."""
        locations = {location.stage_id: location for location in task_set.inputs}
        streams = {stream.stage_id: stream for stream in task_set.streams}
        fused = {stage.stage_id: index for index, stage in enumerate(task_set.fused)}
        inputs: list[dict[str, Any] | None] = []
        for source in sources:
            match source:
                case LeafInput():
                    inputs.append(None)
                case ExchangeInput(stage_id=stage_id) if stage_id in fused:
                    inputs.append({"stage": stage_id, "fused": fused[stage_id]})
                case ExchangeInput() if source.stage_id in streams:
                    inputs.append(self._stream_spec(job_id, source, streams[source.stage_id]))
                case ExchangeInput():
                    of_one_task = replace(source, reads_all=True, partitions=1) if fused else source
                    inputs.append(_exchange_spec(job_id, of_one_task, locations[source.stage_id]))
        return inputs

    def _stream_spec(self, job_id: JobId, source: ExchangeInput, stream: pb.StreamedInput) -> dict[str, Any]:
        for address in {task.address for task in stream.tasks}:
            self._check_address(address)
        return _ranges_spec(source) | {
            "job": job_id,
            "stage": source.stage_id,
            "attempt": stream.stage_attempt,
            "reads_all": source.reads_all,
            "partitions": source.partitions,
            "attempts": [task.task_attempt for task in stream.tasks],
            "addresses": [task.address for task in stream.tasks],
            "sole_reader": source.is_sole_reader,
        }


def _layout(task_set: pb.TaskSet, parts: Sequence[StagePlan]) -> dict[str, Any]:
    """Return how a stage was laid out: what it computes of other stages, or what each task reads."""
    if task_set.fused:
        return {"fused": list(itertools.accumulate(len(part.inputs) for part in parts[:-1]))}
    if not task_set.reads:
        return {}
    return {
        "reads": [
            {
                "first": read.first_bucket,
                "end": read.end_bucket,
                "split": read.split_stage_id,
                "first_producer": read.first_producer,
                "end_producer": read.end_producer,
            }
            for read in task_set.reads
        ]
    }


def bound_plan(nodes: list[dict[str, Any]]) -> BoundPlan:
    """Return the operators as they are kept: short, and without secrets."""
    for node in nodes:
        node["text"] = shown_text(node["text"]).encode()[:_TEXT_BYTES].decode(errors="ignore")
    content = json.dumps({"nodes": nodes}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return BoundPlan(content, hashlib.sha256(content).hexdigest())


def _exchange_spec(job_id: JobId, source: ExchangeInput, location: pb.StageInputLocations) -> dict[str, Any]:
    outputs = location.outputs
    for output in outputs:
        if not is_life(output.nonce):
            raise ValueError(f"stage {source.stage_id} has an output with the invalid nonce {output.nonce!r}")
    return _ranges_spec(source) | {
        "stage": source.stage_id,
        "directory": stage_directory(location.job_id or job_id, location.of_stage_id or source.stage_id),
        "reads_all": source.reads_all,
        "by_producer": source.by_producer,
        "partitions": source.partitions,
        "producers": list(range(len(outputs))),
        "nonces": [output.nonce for output in outputs],
        "rows": [output.rows for output in outputs],
        "bytes": sum(output.bytes for output in outputs),
    }


def _ranges_spec(source: ExchangeInput) -> dict[str, str]:
    return {"ordering": base64.b64encode(source.ordering).decode()} if source.ordering else {}
