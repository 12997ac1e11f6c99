"""The cost of a task, as the kernel tells it."""

from collections.abc import Mapping
from typing import Any

from onager.protocol import onager_pb2 as pb


def metrics_of(event: Mapping[str, Any]) -> pb.TaskMetrics:
    """Return what the task of *event* cost; one that failed has made nothing."""
    return pb.TaskMetrics(
        run_ms=max(0, event["ended_ms"] - event["started_ms"]),
        rows_out=event.get("rows", 0),
        bytes_out=event.get("bytes", 0),
        bytes_in=event["bytes_in"],
        spill_bytes=event["spill_bytes"],
        peak_memory_bytes=event["peak_memory_bytes"],
        fetch_ms=event["fetch_ms"],
        commit_ms=event.get("commit_ms", 0),
        plain_bytes_out=event.get("plain_bytes", 0),
    )
