"""The limits of whole requests, of streams, and of connections over HTTP: what one process takes at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from onager.protocol.field_limits import KIB
from onager.protocol.limits import MAX_JOB_SPEC_BYTES, MAX_MESSAGE_BYTES, MIB


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """The limits of a whole request."""

    most_bytes: int
    most_parts: int
    """Messages, map entries and list texts in it, all together."""
    advice: str = "send less at a time"
    """What the sender can do about too many bytes."""
    parts_advice: str = "send less at a time"
    waits: bool = False
    """Whether the call holds its request while it waits for an event; then it takes up no room."""


SMALL: Final = MessageLimit(64 * KIB, 1024)
"""The limit of calls that `MESSAGE_LIMITS` does not name."""
_WITHOUT_FIELDS: Final = MessageLimit(KIB, 1024)
_LIST: Final = MessageLimit(MIB, 20_000, parts_advice="start executors with fewer slots each")

MESSAGE_LIMITS: Final[Mapping[str, MessageLimit]] = {
    "SubmitJob": MessageLimit(
        MAX_JOB_SPEC_BYTES + 64 * KIB,
        20_000,
        "read large data from files instead of the query's text",
        "give fewer views, options, settings and files, or make several jobs of the query",
    ),
    "RetryJob": MessageLimit(MAX_JOB_SPEC_BYTES + 64 * KIB, 1024, "put data into files, not into the mended program"),
    "ListExecutors": _WITHOUT_FIELDS,
    "ListSchedulers": _WITHOUT_FIELDS,
    "CheckState": _WITHOUT_FIELDS,
    "BackupState": _WITHOUT_FIELDS,
    "FetchLogs": MessageLimit(256 * KIB, 4096),
    "RegisterExecutor": _LIST,
    "Heartbeat": _LIST,
    "PollWork": replace(_LIST, waits=True),
    "ReportTasks": MessageLimit(MAX_MESSAGE_BYTES, 100_000),
    "ReadCatalog": MessageLimit(MIB, 1024),
    "AwaitRequests": MessageLimit(MAX_MESSAGE_BYTES, 40_000, waits=True),
    "Forward": MessageLimit(MAX_MESSAGE_BYTES, 100_000),
    "AskExecutors": MessageLimit(MIB, 20_000, waits=True),
    "AnswerPoll": MessageLimit(MAX_MESSAGE_BYTES, 2**21),
}
"""By method; all others have the limit `SMALL`."""


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """How many streams of a kind a process serves at once."""

    most: int
    can_wait: bool = True
    """Whether clients shall try another scheduler, and come back; else they get an error at once."""
    has_shares: bool = True
    """Whether one client may have only a share of them. A client is who has a token; without a name in it, or without
    tokens, it is an address."""

    def share(self, percent: int) -> int:
        """Return how many one client may have at once."""
        return max(1, self.most * percent // 100) if self.has_shares else self.most


STREAM_LIMITS: Final[Mapping[str, StreamLimit]] = {
    "WatchJob": StreamLimit(2000),
    "WatchEvents": StreamLimit(200),
    "ExportJob": StreamLimit(8),
    "FetchResult": StreamLimit(64),
    "FetchLogs": StreamLimit(64),
    "WatchOutput": StreamLimit(500),
    "FetchBlob": StreamLimit(64, has_shares=False),
    "WatchState": StreamLimit(4, can_wait=False, has_shares=False),
    "CheckState": StreamLimit(1, can_wait=False, has_shares=False),
    "BackupState": StreamLimit(1, can_wait=False, has_shares=False),
}
"""By method, for methods that answer with a stream. All executors may have one token, and an operator has no rivals."""
CONNECT_OPERATIONS: Final = StreamLimit(1000)
"""Streams of operations of Spark Connect, most of which wait for their jobs: ExecutePlan and ReattachExecute."""
CONNECT_UPLOADS: Final = StreamLimit(16)
"""Streams of files that clients of Spark Connect send: AddArtifacts."""
STREAM_SHARE_PERCENT: Final = 75
"""The share of one client in the streams of a kind, unless a setting says otherwise."""
FOREIGN_STREAMS: Final = StreamLimit(1000)
"""Streams of each method of health and reflection, which strangers may open, and keep open."""
FOREIGN_BYTES: Final = KIB
"""Bytes of a request of health or reflection: it holds little but a name."""
SCALER_BYTES: Final = 16 * KIB
"""Bytes of a request of KEDA: a name, and what its trigger was given."""
STREAM_STALLED_S: Final = 60.0
"""A stream ends when its client takes, or sends, nothing for this long: it holds memory, or a place of others."""

HTTP_STREAMS: Final = StreamLimit(500)
"""Streams over HTTP: of events and progress, of all jobs and callers."""
HTTP_STREAMS_OF_ADDRESS: Final = StreamLimit(100, can_wait=False)
"""Of these, those to one address."""
HTTP_EXPORTS_OF_ADDRESS: Final = StreamLimit(2, can_wait=False)
"""Exports to one address: who reads slowly keeps one of the few that are made at a time."""
HTTP_CONNECTIONS: Final = 1000
"""Connections over HTTP."""
HTTP_HEAD_BYTES: Final = 32 * KIB
"""Bytes of the head of a request over HTTP."""
HTTP_HEAD_S: Final = 10.0
"""How long a head may take to come."""
HTTP_BODY_BYTES: Final = 4 * MIB
"""Bytes of the body of a request over HTTP: less than gRPC takes, because JSON is decoded in one go."""
HTTP_BODY_S: Final = 30.0
"""How long a body may take to come."""
HTTP_BODY_PARTS: Final = 20_000
"""Lists, objects and values in a body."""
