"""What happened to a job, as plain values."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onager.client.connection import Connection
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job, as its log has it."""

    position: int
    """Of the batch in the job's log, from 1 on; the events of a batch were committed together."""
    at_ms: int
    """Since the Unix epoch, by the clock of the scheduler that decided it; 0 for `not_kept`."""
    scheduler_id: str
    """The scheduler that committed it: another one than before tells that a scheduler took the job over. Empty if an
    earlier version of Onager committed it."""
    type: str
    """``task_succeeded``, ``executor_lost`` and so on; ``not_kept`` where the events up to here are not in the store
    any more."""
    fields: dict[str, Any]
    """The other fields of the event."""


def watch_events(connection: Connection, job_id: str, after: int, *, follow: bool) -> Iterator[JobEvent]:
    """Yield a job's events after a position, whichever scheduler tells them: none twice, and none left out."""
    position = after
    begun: list[JobEvent] = []

    def open_stream(stub: Any, deadline_s: float) -> Iterator[pb.EventBatch]:
        nonlocal begun
        begun = []  # a batch that broke off comes again from its beginning
        request = pb.WatchEventsRequest(job_id=job_id, after=position, follow=follow)
        messages: Iterator[pb.EventBatch] = stub.WatchEvents(request, timeout=deadline_s)
        return messages

    for message in connection.stream(open_stream):
        if message.not_kept:
            begun.append(JobEvent(message.position, 0, "", "not_kept", {}))
        begun += [_event(message, event) for event in message.events]
        if not message.more:
            position = message.position
            yield from begun
            begun = []


def _event(batch: pb.EventBatch, event: pb.JobEvent) -> JobEvent:
    fields = json.loads(event.json)
    for name in ("type", "at_ms"):
        fields.pop(name, None)
    return JobEvent(batch.position, event.at_ms, batch.scheduler_id, event.type, fields)
