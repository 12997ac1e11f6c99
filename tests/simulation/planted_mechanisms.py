"""Bugs in mechanisms that many parts share: watched records, moves, rounds, requests, checks, intervals, the codec."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from immutables import Map
from msgspec import structs

from onager.execution_graph import Event, ExecutionGraph, ExecutorLost, intervals
from onager.execution_graph.intervals import AttemptKey
from onager.scheduler.cluster.rounds import Rounds
from onager.scheduler.engine import job_checks
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.jobs import job_log
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.watched_records import WatchedRecords
from onager.state_backend import EventKind, Move, Op

_settle = JobStore._settle
_encoding_graph = job_log.encoding_graph
_endings = intervals.endings


def _deletions_are_ignored() -> AbstractContextManager[Any]:
    """A record that the watch says is gone stays known until all are read again."""

    async def watch(self: WatchedRecords[Any]) -> None:
        revision = await self.refresh()
        async with self._backend.watch(self._keyspace, from_revision=revision + 1) as events:
            async for event in events:
                if event.kind is EventKind.PUT:
                    self.take(event.key, event.value, event.mod_revision)

    return mock.patch.object(WatchedRecords, "watch", watch)


def _what_is_gone_is_not_noticed_when_all_is_read() -> AbstractContextManager[Any]:
    """Of records that went while a watch was broken nobody ever learns: a list says only what is there."""

    async def refresh(self: WatchedRecords[Any], *, is_strict: bool = False) -> int:
        page = await self._backend.get_from_prefix(self._keyspace, "")
        for item in page:
            self.take(item.key, item.value, item.mod_revision, is_strict=is_strict)
        return page.revision

    return mock.patch.object(WatchedRecords, "refresh", refresh)


def _watch_begins_after_the_next_change() -> AbstractContextManager[Any]:
    """The revision to watch from is one too high."""
    refresh = WatchedRecords.refresh

    async def read(self: WatchedRecords[Any], *, is_strict: bool = False) -> int:
        return await refresh(self, is_strict=is_strict) + 1

    return mock.patch.object(WatchedRecords, "refresh", read)


def _move_keeps_the_value() -> AbstractContextManager[Any]:
    """A header arrives among those of ended jobs as it was, and names a snapshot that is gone."""

    async def settle(self: JobStore, ops: Sequence[Op], expect: Mapping[Any, int], changes: Any = None) -> int | None:
        kept: list[Op] = []
        for op in ops:
            found = await self._backend.get(op.keyspace, op.key) if isinstance(op, Move) else None
            kept.append(replace(op, value=found.value) if isinstance(op, Move) and found is not None else op)
        return await _settle(self, kept, dict(expect), changes)

    return mock.patch.object(JobStore, "_settle", settle)


def _round_is_never_free() -> AbstractContextManager[Any]:
    """Nobody gets the lock of a round: each leaves it to another one, and the work is not done at all."""

    async def claim(self: Rounds, *_: Any, **__: Any) -> bool:
        return False

    return mock.patch.object(Rounds, "claim", claim)


def _check_covers_the_first_job_alone() -> AbstractContextManager[Any]:
    """One loop checks all jobs, and ends with the first that needs it."""
    needs_checks = job_checks._needs_checks

    def needs(job: StoredJob) -> bool:
        return needs_checks(job) and not job.graph.is_streaming

    return mock.patch.object(job_checks, "_needs_checks", needs)


def _requests_wait_for_the_next_call() -> AbstractContextManager[Any]:
    """A call that waits for requests is not ended when there is one: the executor learns it from the next call."""
    return mock.patch.object(ExecutorRequests, "note_change")


def _losses_end_no_attempts() -> AbstractContextManager[Any]:
    """Who adds up what ran where does not see that attempts end with their executor."""

    def endings(event: Event, held_by: Callable[[str, str], Iterable[AttemptKey]]) -> Iterator[Any]:
        return iter(()) if isinstance(event, ExecutorLost) else _endings(event, held_by)

    return mock.patch("onager.execution_graph.intervals.endings", endings)


def _stored_without_a_field() -> AbstractContextManager[Any]:
    """A snapshot lacks the counts of failures, so that each scheduler which reads it begins to count anew."""

    def encoding(graph: ExecutionGraph) -> Generator[None, None, bytes]:
        stages = tuple(structs.replace(s, ledger=structs.replace(s.ledger, failures=Map())) for s in graph.stages)
        return (yield from _encoding_graph(structs.replace(graph, stages=stages)))

    return mock.patch.object(job_log, "encoding_graph", encoding)


def _unknown_feature_is_read() -> AbstractContextManager[Any]:
    """A scheduler reads records with features that it lacks, and writes them anew without knowing what they mean."""

    def check(needed: Iterable[str], what: str) -> None:
        del needed, what

    return mock.patch("onager.execution_graph.codec.check_features", check)


OF_MECHANISMS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "deletions-ignored": _deletions_are_ignored,
    "list-removes-nothing": _what_is_gone_is_not_noticed_when_all_is_read,
    "watch-one-too-late": _watch_begins_after_the_next_change,
    "move-keeps-the-value": _move_keeps_the_value,
    "round-never-free": _round_is_never_free,
    "streams-not-checked": _check_covers_the_first_job_alone,
    "requests-wait-for-the-next-call": _requests_wait_for_the_next_call,
    "losses-end-no-attempts": _losses_end_no_attempts,
    "stored-without-a-field": _stored_without_a_field,
    "unknown-feature-read": _unknown_feature_is_read,
}
