"""What the attempts of a job's tasks logged, as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onager.client.connection import Connection
from onager.client.copying import copied
from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """Some lines that one attempt of a task logged, or a note on what is missing."""

    stage_id: int
    stage_attempt: int
    partition: int
    attempt: int
    """Of the task, from 0 on."""
    executor_id: str
    """The executor that ran it; empty for a note."""
    text: str
    """Whole lines."""
    is_cut: bool
    """Whether there were lines before these that are not here."""
    is_kept: bool
    """Whether it is what was kept of a failed attempt's log with the failure."""
    note: str
    """For people: what is missing, and why; then there is no text."""


def fetch_logs(connection: Connection, request: pb.FetchLogsRequest) -> Iterator[AttemptLog]:
    """Yield the logs that *request* asks for, whichever scheduler sends them: no line twice."""
    after: dict[bytes, pb.LogPosition] = {}

    def open_stream(stub: Any, deadline_s: float) -> Iterator[pb.AttemptLog]:
        request.ClearField("after")
        request.after.extend(list(after.values())[-_MAX_AFTER:])
        messages: Iterator[pb.AttemptLog] = stub.FetchLogs(request, timeout=deadline_s)
        return messages

    for message in connection.stream(open_stream):
        key, task = message.task.SerializeToString(deterministic=True), message.task
        known = after.get(key)
        if not message.note:
            after.pop(key, None)  # those that go on come last
            after[key] = pb.LogPosition(task=task, position=0 if message.kept else message.end)
        yield copied(
            AttemptLog,
            task,
            attempt=task.task_attempt,
            executor_id=message.executor_id,
            text=message.text.decode(errors="replace"),
            is_cut=message.kept or message.begin > (0 if known is None else known.position),
            is_kept=message.kept,
            note=message.note,
        )


_MAX_AFTER = 1_000
"""Attempts whose positions a request names."""
