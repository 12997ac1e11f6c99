"""How far running tasks are, from what the kernel sees of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id

_MAX_PERMILLE: Final = 990
"""A task that runs is not done, whatever it has read."""


def progress_of(key: TaskKey, reading: Mapping[str, Any]) -> pb.AttemptProgress:
    """Return how far the task *key* is.

    *reading* is of a task of a stage: what it read of how many bytes of files, of which it may need only some columns;
    or of a query that runs whole: which part of Spark's stages is done.
    """
    expected = reading.get("expected", 0)
    permille = reading.get("permille") or (1000 * reading["bytes"] // expected if expected else 0)
    return pb.AttemptProgress(
        task=task_id(key),
        rows_read=reading["rows"],
        bytes_read=reading["bytes"],
        permille=min(_MAX_PERMILLE, permille),
    )


def by_run(readings: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return *readings* by run and partition."""
    return {(reading["run"], reading["partition"]): reading for reading in readings}
