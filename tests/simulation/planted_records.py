"""Bugs of other systems in records of jobs and executors; see `planted`."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from onager.execution_graph import Event, ExecutionGraph, LaunchEvent, ResolvedStage, RunningStage
from onager.execution_graph.attempts import held as _held
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.engine.query_coordinator import QueryCoordinator
from onager.scheduler.engine.stage_coordinator import StageCoordinator
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs import history, job_log
from onager.scheduler.jobs.job_heads import JobHead, JobHeads
from onager.scheduler.policy.reservations import Launch
from onager.state_backend import KeyValue, Put

_register = ExecutorManager.register
_decoding_graph = job_log.decoding_graph
_take = JobHeads._take
_history_parts = history.parts


def _registration_comes_in_parts() -> AbstractContextManager[Any]:
    """An executor's record, its heart and its slots are written one after the other (X7)."""

    class InParts:
        def __init__(self, backend: Any) -> None:
            self._backend = backend

        def __getattr__(self, name: str) -> Any:
            return getattr(self._backend, name)

        async def put_txn(self, ops: Any, *, expect: Any = None, fence: Any = ()) -> Any:
            first, *others = ops
            result = await self._backend.put_txn([first], expect=expect, fence=fence)
            for op in others:
                await self._backend.put_txn([op])
            return result

    async def register(self: ExecutorManager, *given: Any, **named: Any) -> Any:
        backend = self._backend
        self._backend = InParts(backend)  # type: ignore[assignment]
        try:
            return await _register(self, *given, **named)
        finally:
            self._backend = backend

    return mock.patch.object(ExecutorManager, "register", register)


def _running_is_read_as_resolved() -> AbstractContextManager[Any]:
    """A stage that runs is read as one that is to begin its next attempt, with what it has done so far (X12)."""

    def read(data: bytes) -> Generator[None, None, ExecutionGraph]:
        graph = yield from _decoding_graph(data)
        stages = tuple(
            ResolvedStage(spec=s.spec, attempt=s.attempt + 1, ledger=s.ledger) if isinstance(s, RunningStage) else s
            for s in graph.stages
        )
        return replace(graph, stages=stages)

    return mock.patch.object(job_log, "decoding_graph", read)


def _stage_plans_stay() -> AbstractContextManager[Any]:
    """The plan that tasks of a stage get is made once, and still names lost outputs after a rollback (X14)."""

    async def launches(self: QueryCoordinator, graph: ExecutionGraph, events: Iterable[Event]) -> list[Launch]:
        found = []
        for event in events:
            if not isinstance(event, LaunchEvent):
                continue
            stage = graph.stages[event.stage_id]
            if not graph.is_active or not isinstance(stage, RunningStage) or stage.attempt != event.stage_attempt:
                continue
            known = self._stages.setdefault(
                event.stage_id, StageCoordinator(graph, event.stage_id, self._cluster.streams)
            )
            for task_set in known.task_sets(graph, event):
                task_set.stage_attempt = event.stage_attempt
                found.append(Launch(event.executor_id, task_set))
        return found

    return mock.patch.object(QueryCoordinator, "make_launches", launches)


def _partition_is_one_off() -> AbstractContextManager[Any]:
    """A report of the partition behind the last one is looked up (X16: an index out of range)."""

    def held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> Any:
        if partition > stage.spec.partitions:
            return None
        tasks = [stage.running.get(p) for p in range(stage.spec.partitions)]
        return _held(stage, partition, attempt, executor_id) if partition < 0 or tasks[partition] else None

    return mock.patch("onager.execution_graph.scheduling.held", held)


def _one_head_fails_all() -> AbstractContextManager[Any]:
    """Jobs cannot be listed, and no scheduler starts, while the head of one cannot be read (X17)."""

    def take(self: JobHeads, item: KeyValue, *, is_strict: bool = False) -> None:
        JobHead.decoded(item.value, f"JobHeads/{item.key}")
        _take(self, item, is_strict=is_strict)

    return mock.patch.object(JobHeads, "_take", take)


def _newest_is_written_at_once() -> AbstractContextManager[Any]:
    """A scheduler uses a feature that those of an older release, which are still there, lack."""
    return mock.patch.object(LiveSchedulers, "features", property(lambda self: frozenset(self.record.features)))


def _history_lacks_the_last_entry() -> AbstractContextManager[Any]:
    """The batch before that of a snapshot is not kept: the log is read up to the snapshot's position, exclusively."""

    def parts(job_id: str, log: Iterable[bytes], after: int, last: bytes) -> Generator[None, None, list[Put]]:
        return _history_parts(job_id, list(log)[:-1], after, last)

    return mock.patch.object(history, "parts", parts)


OF_RECORDS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "registration-in-parts": _registration_comes_in_parts,
    "running-read-as-resolved": _running_is_read_as_resolved,
    "stage-plans-stay": _stage_plans_stay,
    "partition-one-off": _partition_is_one_off,
    "one-head-fails-all": _one_head_fails_all,
    "history-lacks-an-entry": _history_lacks_the_last_entry,
    "newest-written-at-once": _newest_is_written_at_once,
}
