"""A job's events as they are told to clients."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from onager.execution_graph import Event, encode_event
from onager.protocol import onager_pb2 as pb
from onager.redaction import may_hold_secrets, shown_json
from onager.scheduler.jobs.history import Entry

_EVENTS_A_MESSAGE: Final = 500


def told(entries: Sequence[Entry]) -> Iterator[pb.EventBatch]:
    """Yield the messages that tell *entries*: one or more for each."""
    for entry in entries:
        if entry.batch is None:
            yield pb.EventBatch(position=entry.position, not_kept=True)
            continue
        events = iter(entry.batch.events)
        left = len(entry.batch.events)
        while some := list(islice(events, _EVENTS_A_MESSAGE)):
            left -= len(some)
            yield pb.EventBatch(
                position=entry.position,
                scheduler_id=entry.batch.writer,
                events=[_told(event) for event in some],
                more=left > 0,
            )


def _told(event: Event) -> pb.JobEvent:
    text = encode_event(event)
    if may_hold_secrets(text):
        text = json.dumps(shown_json(json.loads(text)), ensure_ascii=False)
    return pb.JobEvent(type=event.type, at_ms=event.at_ms, json=text)
