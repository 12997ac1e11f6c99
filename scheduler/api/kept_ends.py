"""The ends of logs that the history keeps with failures, remembered between looks: each look reads only what is new."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onager.execution_graph import TaskFailed
from onager.ids import JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.apart import apart
from onager.redaction import shown_text
from onager.scheduler.jobs.history import Entry, JobHistory, size_of
from onager.scheduler.jobs.job_log import StoredJob

_MAX_KEPT: Final = 1_000
"""One answer has the kept ends of so many failures at most: of the latest ones."""
_MAX_REMEMBERED: Final = 2_000
"""Failures, of all that was asked about lately: up to 16 KiB each."""
_MAX_ASKED: Final = 100

_Wanted = tuple[int | None, int | None, int | None]
"""The stage, the partition and the attempt that are wanted; None: all."""


class Kept(NamedTuple):
    """What the record has of a failed attempt."""

    executor_id: str
    tail: str


@dataclass(slots=True)
class _Read:
    ends: dict[TaskKey, Kept] = field(default_factory=dict)
    position: int = 0
    """Up to which the history was read."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KeptEnds:
    """What the histories of jobs have of failed attempts."""

    def __init__(self, history: JobHistory) -> None:
        self._history = history
        self._read: OrderedDict[tuple[JobId, int, _Wanted], _Read] = OrderedDict()

    async def of(self, job: StoredJob, request: pb.FetchLogsRequest) -> dict[TaskKey, Kept]:
        """Return what is kept of the wanted failed attempts of a job, of the latest `_MAX_KEPT`."""
        job_id = JobId(job.header.job_id)
        stage, partition, attempt = (
            getattr(request, name) if request.HasField(name) else None for name in ("stage_id", "partition", "attempt")
        )
        wanted = stage, partition, attempt
        asked = job_id, job.graph.submitted_ms, wanted
        read = self._read.setdefault(asked, _Read())
        self._read.move_to_end(asked)
        async with read.lock:
            async with aclosing(self._history.pages(job_id, read.position, to=job.seq)) as pages:
                async for entries in pages:
                    read.ends |= await apart(size_of(entries), _failures, job_id, entries, wanted)
                    for key in list(read.ends)[:-_MAX_KEPT]:
                        del read.ends[key]
                    read.position = entries[-1].position
            ends = dict(read.ends)
        self._forget()
        return ends

    def _forget(self) -> None:
        remembered = sum(len(read.ends) for read in self._read.values())
        while remembered > _MAX_REMEMBERED or len(self._read) > _MAX_ASKED:
            _, read = self._read.popitem(last=False)
            remembered -= len(read.ends)


def _failures(job_id: JobId, entries: Collection[Entry], wanted: _Wanted) -> dict[TaskKey, Kept]:
    found: dict[TaskKey, Kept] = {}
    for entry in entries:
        for event in entry.events:
            if not isinstance(event, TaskFailed) or not _is_wanted(event, wanted):
                continue
            key = TaskKey(
                job_id, StageId(event.stage_id), event.stage_attempt, Partition(event.partition), event.task_attempt
            )
            found[key] = Kept(event.executor_id, shown_text(event.failure.log_tail or ""))
    return found


def _is_wanted(event: TaskFailed, wanted: _Wanted) -> bool:
    found = event.stage_id, event.partition, event.task_attempt
    return all(wish in (None, value) for wish, value in zip(wanted, found, strict=True))
