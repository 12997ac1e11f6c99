"""A sink as the kernel gets it; see Java's `OutputSpec`."""

from typing import Any

from onager.exchange_layout import staging_directory
from onager.protocol import onager_pb2 as pb


def sink_layout(sink: pb.Sink, job_id: str) -> dict[str, Any]:
    """Return the layout of the files of *sink*, which are staged for the job."""
    buckets = sink.buckets
    bucketed = {"count": buckets.count, "by": list(buckets.by), "sort_by": list(buckets.sort_by)}
    return {
        "layout": "sink",
        "format": sink.format,
        "options": dict(sink.options),
        "partition_by": list(sink.partition_by),
        "bucketed": bucketed if sink.HasField("buckets") else None,
        "staging": staging_directory(sink.path, job_id),
    }
