"""A job's events as they are shown to clients."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from onager.execution_graph import Event, encode_event
from onager.protocol import onager_pb2 as pb
from onager.redaction import may_hold_secrets, shown_json
from onager.scheduler.jobs.history import Entry

_EVENTS_A_MESSAGE: Final = 500


def batches_of(entries: Sequence[Entry]) -> Iterator[pb.EventBatch]:
    """Yield the messages that tell *entries*: one or more for each."""
    for entry in entries:
        if entry.batch is None:
            yield pb.EventBatch(position=entry.position, not_kept=True)
            continue
        events = entry.batch.events
        for start in range(0, len(events), _EVENTS_A_MESSAGE):
            end = start + _EVENTS_A_MESSAGE
            yield pb.EventBatch(
                position=entry.position,
                scheduler_id=entry.batch.writer,
                events=map(_to_message, events[start:end]),
                more=end < len(events),
            )


def _to_message(event: Event) -> pb.JobEvent:
    text = encode_event(event)
    if may_hold_secrets(text):
        text = json.dumps(shown_json(json.loads(text)), ensure_ascii=False)
    return pb.JobEvent(type=event.type, at_ms=event.at_ms, json=text)
