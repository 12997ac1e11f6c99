"""What both ends of a connection agree on: the protocol's version, sizes of messages, pings."""

from typing import Final

PROTOCOL_VERSION: Final = 2
BACKUP_FORMAT: Final = 2
"""Sent with every submission and registration; another version is refused with `VersionMismatchError`."""

MIB: Final = 1024 * 1024

MAX_MESSAGE_BYTES: Final = 32 * MIB
"""The largest single message, either way. Anything that can grow larger travels in chunks."""

MAX_REPORT_BYTES: Final = MAX_MESSAGE_BYTES - 64 * 1024
"""The largest report of one task."""

MAX_PLAN_BYTES: Final = MAX_REPORT_BYTES - 64 * 1024
"""The largest plan of a job; it is in the report of the planning task."""

MAX_JOB_SPEC_BYTES: Final = 24 * MIB
"""The largest job specification (SQL text, pickled function, Python files) that a client may submit."""

BLOB_CHUNK_BYTES: Final = 1 * MIB
"""The largest chunk of a blob in one `BlobChunk`."""

RESULT_CHUNK_BYTES: Final = 2 * MIB - 64 * 1024
"""The largest chunk of a record batch in one `ResultChunk`; the message itself stays below 2 MiB."""

INLINE_RESULT_BYTES: Final = 256 * 1024
"""Partitions of a result up to this size travel in the task's report."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""Room for typed error details in trailing metadata."""

DEFAULT_PORT: Final = 50050
DEFAULT_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"
"""Where a scheduler listens, and where clients and executors look for it, by default."""

Option = tuple[str, int]
"""A gRPC channel argument: name and value."""

_SIZES: Final[tuple[Option, ...]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * MAX_METADATA_BYTES),
)

# An end that hangs, or whose machine vanished, sends no reset: ping it, and give up after 9 + 5 s. A request shall lose
# 16 s at most, turning to another scheduler included.
_PINGS: Final[tuple[Option, ...]] = (
    ("grpc.keepalive_time_ms", 9_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # For gRPC's own bandwidth pings: one without an answer holds back all others, by default for a minute.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)

CHANNEL_OPTIONS: Final[tuple[Option, ...]] = (
    *_SIZES,
    *_PINGS,
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted scheduler is found within a second. (The option named `min` is in fact how long one attempt to connect
    # may take.)
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Channels to the same address must not share a connection (and its back-off) within a process.
    ("grpc.use_local_subchannel_pool", 1),
)
"""For every channel to a scheduler, of clients and executors alike."""

SERVER_OPTIONS: Final[tuple[Option, ...]] = (
    *_SIZES,
    # Two schedulers on one port would share its connections; the second one shall fail.
    ("grpc.so_reuseport", 0),
    *_PINGS,
    # The clients' pings above are allowed.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)
"""For every gRPC server."""
