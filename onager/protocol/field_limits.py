"""The size limit of each field of each request: one table, checked before anything else looks at a request.

Real use never reaches these numbers, and they are small enough that handling a request within them does not hold up
other calls. ``python -m onager.protocol.limits_page`` makes ``docs/limits.md`` from this table and those of
`call_limits`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onager.protocol.limits import INLINE_RESULT_BYTES, MAX_JOB_SPEC_BYTES, MAX_PLAN_BYTES, MIB

KIB: Final = 1024
MAX_SLOTS: Final = 1024
"""Slots of an executor."""
MAX_LISTED_TASKS: Final = 8 * MAX_SLOTS
"""Tasks in an executor's list: running ones, and those whose reports are not acknowledged."""
MAX_STAGES: Final = 2_000
MAX_STEPS: Final = 1_000
"""Steps of a program."""
MAX_STATEMENTS: Final = 10_000
"""Statements of a script with several steps."""
MAX_PARAMETERS: Final = 1_000
"""Values that are bound to places in a script."""
MAX_LABELS: Final = 64
MAX_LABEL_CHARS: Final = 256
MAX_TASKS_OF_STAGE: Final = 200_000
MAX_TASKS_OF_JOB: Final = 500_000
"""Tasks of a job. Each adds a third of a KiB to a scheduler's memory, and costs it 0.1 ms."""
MAX_TASKS_A_PAGE: Final = 10_000
"""Tasks of a job in one answer about it."""
MAX_AUDIT_A_PAGE: Final = 500
"""Records of the audit in one answer."""
MAX_JOBS_A_PAGE: Final = 1_000
"""Jobs in one answer."""
MAX_CATALOG_KEYS: Final = 100
"""Keys and prefixes of the catalog in one read."""
MAX_CATALOG_A_PAGE: Final = 1_000
"""Records of the catalog below one prefix, or partitions, in one answer."""
MAX_LOG_BYTES: Final = 256 * KIB
"""What an executor keeps of one attempt's log, and what one answer holds of it."""
MAX_LOGS: Final = 64
"""Attempts in one answer of an executor."""
MAX_LOGS_BYTES: Final = MIB
"""Text of all of them together."""
MAX_TAIL_CHARS: Final = 16 * KIB
"""What is kept of an attempt's log with its failure."""
MAX_LOADS: Final = 20_000
"""Jobs whose loads one scheduler sends another in one call."""
MAX_TOLD_ATTEMPTS: Final = 256
"""Attempts of which an executor tells in one heartbeat how far they are."""
MAX_FORWARDED_ATTEMPTS: Final = 4096
"""Attempts of which one scheduler tells another, in one call, how far they are."""
MAX_AMOUNT: Final = 2**43
"""Rows, bytes or milliseconds of one task. The sum over a million tasks still fits 64 bits."""
MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
MAX_INLINE_BYTES: Final = INLINE_RESULT_BYTES + 64 * KIB
MAX_MESSAGE_CHARS: Final = 16 * KIB
MAX_CONTEXT_CHARS: Final = 8 * KIB
MAX_REASON_CHARS: Final = 1000
MAX_CONNECT_REPLY_BYTES: Final = 8 * MIB
"""One answer of Spark to a request of a Spark Connect session: a schema, a plan as text, the rows of a command."""
MAX_CONNECT_ENTRY_BYTES: Final = 4 * MIB
"""A command that made a view, a function or a data source of a Spark Connect session."""
MAX_CONNECT_DETAILS_BYTES: Final = 64 * KIB
"""All that Spark tells of an error of a Spark Connect session."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text."""

    most: int
    is_cut: bool = False
    """Whether longer text is cut to the limit, so that executors can always report failures."""
    is_line: bool = False
    """Whether it is one line of printable characters."""
    is_id: bool = False
    """Whether it is a name: a line without slashes."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Any bytes."""

    most: int


@dataclass(frozen=True, slots=True)
class Number:
    """A number from 0 on."""

    most: int
    is_cut: bool = False
    """Whether a larger number counts as the limit."""


@dataclass(frozen=True, slots=True)
class Many:
    """A list; *each* says how large its entries may be."""

    most: int
    each: "Text | Bytes | Number | Part"
    is_cut: bool = False
    """Whether a longer list is cut to the limit: the sender repeats entries that were not answered."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map of texts."""

    most: int
    key: Text
    value: "Text | Plain"


@dataclass(frozen=True, slots=True)
class Part:
    """Another message, whose fields have limits of their own."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A value without a limit: a number that is only kept, compared or shown, a flag, a choice."""


@dataclass(frozen=True, slots=True)
class Unused:
    """Belongs to answers; a request must not have it."""


Limit = Text | Bytes | Number | Many | Pairs | Part | Plain | Unused

PLAIN: Final = Plain()
PART: Final = Part()
ID: Final = Text(256, is_id=True)
WORD: Final = Text(64, is_line=True)
LINE: Final = Text(1024, is_line=True)
PATH: Final = Text(4 * KIB)
STATE_PATH: Final = Text(4 * KIB)
REASON: Final = Text(MAX_REASON_CHARS, is_cut=True)
AMOUNT: Final = Number(MAX_AMOUNT)
SEEN: Final = Number(2**53, is_cut=True)
TIME: Final = Number(MAX_TIME_MS)
OPTIONS: Final = Pairs(1000, Text(256), Text(64 * KIB))
CODE: Final = Bytes(MAX_JOB_SPEC_BYTES)
TASKS: Final = Many(MAX_LISTED_TASKS, PART)
JOBS: Final = Many(1024, ID, is_cut=True)
PLACES: Final = Many(256, PART)
_LIFE: Final[Mapping[str, Limit]] = {"executor_id": ID, "incarnation": ID}
_LOGS_WANTED: Final[Mapping[str, Limit]] = {
    "stage_id": PLAIN,
    "partition": PLAIN,
    "attempt": PLAIN,
    "tail_bytes": Number(MAX_LOG_BYTES, is_cut=True),
    "after": Many(1024, PART),
}
_NO_FIELDS: Final[Mapping[str, Limit]] = {}

FIELD_LIMITS: Final[Mapping[str, Mapping[str, Limit]]] = {
    # ------------------------------------------------------------ clients
    "SubmitJobRequest": {"job_id": ID, "spec": PART, "client_id": Text(256, is_line=True), "protocol_version": PLAIN},
    "JobSpec": {
        "sql": PART,
        "python": PART,
        "name": LINE,
        "views": Many(4096, PART),
        "conf": Pairs(4096, Text(1024), Text(64 * KIB)),
        "py_files": Many(1000, PART),
        "sink": PART,
        "program": PART,
        "connect": Unused(),
        "labels": Pairs(MAX_LABELS, Text(MAX_LABEL_CHARS), Text(MAX_LABEL_CHARS)),
    },
    "ProgramSpec": {"steps": Many(MAX_STEPS, PART)},
    "ProgramStep": {
        "sql": PART,
        "python": PART,
        "name": LINE,
        "views": Many(4096, PART),
        "conf": Pairs(4096, Text(1024), Text(64 * KIB)),
        "py_files": Many(1000, PART),
        "sink": PART,
        "after": Many(MAX_STEPS, Number(MAX_STEPS)),
    },
    "SqlScript": {
        "text": Text(MAX_JOB_SPEC_BYTES),
        "statements": Many(MAX_STATEMENTS, Number(MAX_STATEMENTS)),
        "parameters": Many(MAX_PARAMETERS, PART),
    },
    "SqlParameter": {"name": LINE, "type": WORD, "value": Text(64 * KIB)},
    "PythonFunction": {
        "source": CODE,
        "pickled": CODE,
        "function": LINE,
        "arguments_json": Text(MIB),
        "file_name": PATH,
    },
    "PyFile": {"name": LINE, "content": CODE},
    "View": {"name": LINE, "path": Text(64 * KIB), "format": WORD, "options": OPTIONS},
    "Sink": {
        "path": PATH,
        "format": WORD,
        "mode": WORD,
        "options": OPTIONS,
        "schema_json": Text(8 * MIB),
        "partition_by": Many(100, Text(1_024)),
        "table": PART,
        "buckets": PART,
        "foreign": Text(64 * KIB),
        "replaces_anything": PLAIN,
    },
    "SinkBuckets": {"count": PLAIN, "by": Many(100, Text(1_024)), "sort_by": Many(100, Text(1_024))},
    "SinkTable": {
        "key": STATE_PATH,
        "table_id": ID,
        "location": PATH,
        "replaces": WORD,
        "within": Text(4 * KIB),
    },
    "GetJobRequest": {
        "job_id": ID,
        "stage_id": PLAIN,
        "partition": PLAIN,
        "limit": Number(MAX_TASKS_A_PAGE, is_cut=True),
    },
    "ListJobsRequest": {
        "limit": Number(MAX_JOBS_A_PAGE, is_cut=True),
        "state": WORD,
        "name": LINE,
        "session": LINE,
        "since_ms": TIME,
        "until_ms": TIME,
        "principal": Text(128, is_line=True),
        "cursor": Text(128, is_line=True),
        "steps": PLAIN,
        "labels": Pairs(MAX_LABELS, Text(MAX_LABEL_CHARS), Text(MAX_LABEL_CHARS)),
    },
    "RetryJobRequest": {
        "job_id": ID,
        "new_job_id": ID,
        "client_id": Text(256, is_line=True),
        "protocol_version": PLAIN,
    },
    "FetchLogsRequest": {
        "job_id": ID,
        **_LOGS_WANTED,
        "follow": PLAIN,
    },
    "LogPosition": {"task": PART, "position": PLAIN},
    "DrainExecutorRequest": {"executor_id": ID, "reason": REASON},
    "WatchJobRequest": {"job_id": ID},
    "WatchEventsRequest": {"job_id": ID, "after": PLAIN, "follow": PLAIN},
    "GetFinalPlanRequest": {"job_id": ID, "stage_id": PLAIN},
    "ExportJobRequest": {"job_id": ID, "format": WORD, "after": PLAIN, "soon": PLAIN},
    "CancelJobRequest": {"job_id": ID, "reason": REASON},
    "FetchResultRequest": {"job_id": ID, "partition": PLAIN, "batch": PLAIN},
    "GetCatalogRequest": {
        "database": LINE,
        "name": LINE,
        "partitions": PLAIN,
        "limit": Number(MAX_CATALOG_A_PAGE, is_cut=True),
        "cursor": STATE_PATH,
    },
    "ListExecutorsRequest": {"limit": PLAIN, "after": ID, "state": WORD},
    "ListSchedulersRequest": _NO_FIELDS,
    "ListStateRequest": {"prefix": STATE_PATH, "limit": Number(10_000, is_cut=True)},
    "GetStateRequest": {"key": STATE_PATH},
    "WatchStateRequest": {"prefix": STATE_PATH, "from_revisions": Pairs(64, Text(64), PLAIN)},
    "RemoveStateRequest": {"path": STATE_PATH, "dry_run": PLAIN, "force": PLAIN},
    "CheckStateRequest": _NO_FIELDS,
    "BackupStateRequest": _NO_FIELDS,
    "ListAuditRequest": {
        "since_ms": TIME,
        "until_ms": TIME,
        "action": WORD,
        "target": STATE_PATH,
        "principal": Text(128, is_line=True),
        "limit": Number(MAX_AUDIT_A_PAGE, is_cut=True),
        "cursor": STATE_PATH,
    },
    # ------------------------------------------------------------ executors
    "RegisterExecutorRequest": {
        **_LIFE,
        "host": LINE,
        "pid": PLAIN,
        "slots": Number(MAX_SLOTS),
        "protocol_version": PLAIN,
        "spark_version": WORD,
        "python_version": WORD,
        "exchange_dir": PATH,
        "running": TASKS,
        "mode": WORD,
        "address": LINE,
        "stream_address": LINE,
        "fetches_inputs": PLAIN,
        "feeds": PLAIN,
        "splits": PLAIN,
        "answered_by_call": PLAIN,
        "connects": PLAIN,
        "commits": PLAIN,
        "reuses": PLAIN,
        "machine": WORD,
        "places": PLACES,
    },
    "PlaceView": {
        "name": WORD,
        "path": PATH,
        "id": WORD,
        "generation": PLAIN,
        "mark": WORD,
        "problem": REASON,
        "wanted": WORD,
    },
    "PlaceMark": {"place": WORD, "mark": WORD, "seen": PLAIN},
    "HeartbeatRequest": {
        **_LIFE,
        "draining": PLAIN,
        "running": TASKS,
        "cleaned_up": JOBS,
        "exchange": PART,
        "exchange_files": Many(256, PART, is_cut=True),
        "kept_jobs": JOBS,
        "no_space": REASON,
        "load": PART,
        "progress": Many(MAX_TOLD_ATTEMPTS, PART, is_cut=True),
        "places": PLACES,
        "looked_for": Many(256, PART, is_cut=True),
    },
    "AttemptProgress": {"task": PART, "rows_read": SEEN, "bytes_read": SEEN, "permille": Number(1000, is_cut=True)},
    "ExecutorLoad": {
        "heap_used_bytes": AMOUNT,
        "heap_max_bytes": AMOUNT,
        "rss_bytes": AMOUNT,
        "cpu_percent": PLAIN,
        "gc_ms": AMOUNT,
        "python_workers": PLAIN,
        "running": PLAIN,
        "free_slots": PLAIN,
    },
    "ExchangeUse": {
        "bytes": PLAIN,
        "files": PLAIN,
        "free_bytes": PLAIN,
        "total_bytes": PLAIN,
        "looked_ms": TIME,
    },
    "ExchangeFiles": {"job_id": ID, "writers": Many(1024, ID)},
    "PollWorkRequest": {
        **_LIFE,
        "free_slots": Number(MAX_SLOTS, is_cut=True),
        "list_number": PLAIN,
        "running": TASKS,
        "wait_ms": PLAIN,
        "cleaned_up": JOBS,
    },
    "ReportTasksRequest": {
        **_LIFE,
        "reports": Many(MAX_SLOTS, PART, is_cut=True),
        "freed_slots": Number(MAX_SLOTS, is_cut=True),
        "list_number": PLAIN,
    },
    "TaskId": {
        "job_id": ID,
        "stage_id": PLAIN,
        "stage_attempt": PLAIN,
        "partition": PLAIN,
        "task_attempt": PLAIN,
    },
    "TaskReport": {
        "task": PART,
        "started_ms": TIME,
        "ended_ms": TIME,
        "success": PART,
        "failure": PART,
        "failed_metrics": PART,
        "needs_major": PLAIN,
    },
    "TaskSuccess": {
        "output": PART,
        "metrics": PART,
        "inline_result": Bytes(MAX_INLINE_BYTES),
        "plan": PART,
        "blobs": Many(10_000, PART),
        "op_metrics": Bytes(8 * KIB),
        "bound_plan": ID,
        "bucket_sizes": Bytes(4 * KIB),
        "feed": PART,
    },
    "FeedOutcome": {"added": PLAIN, "ended": PLAIN},
    "TaskOutput": {
        "nonce": ID,
        "executor_id": ID,
        "shared": PLAIN,
        "rows": AMOUNT,
        "bytes": AMOUNT,
        "inline": PLAIN,
        "files": Many(64 * KIB, PATH),
        "payload_digest": ID,
        "checksum": ID,
    },
    "TaskMetrics": {  # `wire.metrics_from` cuts them: it reads all of them anyway, for every task
        "run_ms": PLAIN,
        "rows_out": PLAIN,
        "bytes_out": PLAIN,
        "bytes_in": PLAIN,
        "spill_bytes": PLAIN,
        "peak_memory_bytes": PLAIN,
        "queued_ms": PLAIN,
        "fetch_ms": PLAIN,
        "commit_ms": PLAIN,
        "executor_rss_bytes": PLAIN,
        "bind_ms": PLAIN,
        "codegen_ms": PLAIN,
        "plan_ms": PLAIN,
        "function_ms": PLAIN,
        "plain_bytes_out": PLAIN,
    },
    "PlanOutcome": {
        "stages": Many(10_000, PART),
        "arrow_schema": Bytes(4 * MIB),
        "schema_json": Text(8 * MIB),
        "plan": Text(MIB, is_cut=True),
        "blobs": Many(10_000, PART),
        "sink": PART,
        "fused_output": PART,
        "fused_metrics": PART,
        "fused_inline_result": Bytes(MAX_INLINE_BYTES),
        "fused_op_metrics": Bytes(8 * KIB),
        "fused_bound_plan": ID,
        "estimates": Many(10_000, PART),
        "frame_digest": ID,
        "broadcast_bytes": PLAIN,
        "decisions": Many(100, REASON),
        "catalog": PART,
        "fused_observed": Bytes(256 * KIB),
    },
    # What is wrong with a change of the catalog is reported about the plan, which is unusable then.
    "CatalogChanges": {
        "puts": Many(20_000, PART),
        "partitions": Many(20_000, PART),
        "reads": Many(20_000, PART),
        "folders_made": Many(1_000, PATH),
        "folders_retired": Many(1_000, PATH),
    },
    "CatalogPut": {
        "key": STATE_PATH,
        "value": Bytes(MIB),
        "expected_revision": PLAIN,
        "removed_pages_of": Many(1000, ID),
    },
    "PartitionChange": {
        "key": STATE_PATH,
        "table_id": ID,
        "location": PATH,
        "set": Pairs(100_000, Text(4 * KIB), Text(64 * KIB)),
        "expected": Pairs(100_000, Text(4 * KIB), Text(64 * KIB)),
        "stale_stats": PLAIN,
        "template": Text(64 * KIB),
        "seen": PLAIN,
    },
    "CatalogRecord": {"key": STATE_PATH, "value": Bytes(MIB), "revision": PLAIN},
    "StageEstimate": {"stage_id": PLAIN, "rows": PLAIN},
    # An error in a stage's numbers is reported about the plan, which is unusable then.
    "PlannedStage": {
        "stage_id": PLAIN,
        "name": Text(1024, is_cut=True),
        "work": PLAIN,
        "plan_digest": ID,
        "partitions": PLAIN,
        "inputs": Many(10_000, PART),
        "output": PART,
        "deterministic": PLAIN,
        "plan": Text(256 * KIB, is_cut=True),
        "leaf_bytes": PLAIN,
        "may_fuse": PLAIN,
        "may_merge": PLAIN,
        "feed_stage_id": PLAIN,
        "portions": Many(10_000, PART),
        "fingerprint": ID,
    },
    "StageInput": {"stage_id": PLAIN, "read": WORD, "may_split": PLAIN, "side": WORD},
    "OutputLayout": {"kind": WORD, "buckets": PLAIN},
    "Blob": {"digest": ID, "content": Bytes(MAX_PLAN_BYTES)},
    "Failure": {
        "kind": Text(64, is_cut=True),
        "message": Text(MAX_MESSAGE_CHARS, is_cut=True),
        "error_class": Text(256, is_cut=True),
        "sql_state": Text(64, is_cut=True),
        "query_context": Text(MAX_CONTEXT_CHARS, is_cut=True),
        "details": Text(MAX_MESSAGE_CHARS, is_cut=True),
        "fetch": PART,
        "cause": Text(64, is_cut=True),
        "log_tail": Text(MAX_TAIL_CHARS, is_cut=True),
        "connect_details": Bytes(MAX_CONNECT_DETAILS_BYTES),
    },
    "FetchFailure": {"input_stage_id": PLAIN, "input_partition": PLAIN, "nonce": ID},
    "FetchBlobRequest": {"digest": ID},
    "ReadCatalogRequest": {
        **_LIFE,
        "keys": Many(MAX_CATALOG_KEYS, STATE_PATH),
        "prefixes": Many(MAX_CATALOG_KEYS, STATE_PATH),
        "keys_only": PLAIN,
        "start_after": STATE_PATH,
    },
    "DeregisterExecutorRequest": {**_LIFE, "reason": REASON, "death": PART},
    "JvmDeath": {"memory": PLAIN, "alone": PLAIN, "running": TASKS},
    "AwaitRequestsRequest": {
        **_LIFE,
        "wait_ms": PLAIN,
        "connect": PLAIN,
        "draining": PLAIN,
        "answers": Many(64, PART, is_cut=True),
    },
    "RequestAnswer": {"number": PLAIN, "logs": PART, "connect": PART},
    "LogsAnswer": {"logs": Many(MAX_LOGS, PART, is_cut=True), "left_out": PLAIN},
    "AttemptLog": {
        "task": PART,
        "executor_id": ID,
        "text": Bytes(MAX_LOG_BYTES),
        "begin": PLAIN,
        "end": PLAIN,
        "kept": PLAIN,
        "note": REASON,
    },
    "ConnectReply": {
        "analyzed": Bytes(MAX_CONNECT_REPLY_BYTES),
        "applied": PART,
        "job": PART,
        "failure": PART,
        "defaults": PART,
    },
    "ConnectApplied": {
        "responses": Many(64, Bytes(MAX_CONNECT_REPLY_BYTES)),
        "changes": PLAIN,
        "put": Many(64, PART),
        "removed": Many(4096, PART),
        "conf": Pairs(4096, Text(1024), Text(64 * KIB)),
        "catalog": Text(1024),
        "database": Text(1024),
    },
    "ConnectEntry": {"kind": WORD, "name": Text(1024), "command": Bytes(MAX_CONNECT_ENTRY_BYTES)},
    "ConnectJob": {"work": WORD, "responses": Many(64, Bytes(MAX_CONNECT_REPLY_BYTES))},
    "ConnectFailure": {
        "error_class": Text(256, is_cut=True),
        "sql_state": Text(64, is_cut=True),
        "message": Text(MAX_MESSAGE_CHARS, is_cut=True),
        "details": Bytes(MAX_CONNECT_DETAILS_BYTES),
    },
    "ConnectDefaults": {
        "spark_version": WORD,
        "conf": Pairs(10_000, Text(1024), Text(64 * KIB)),
        "fixed": Many(10_000, Text(1024)),
        "known": Many(10_000, Text(1024)),
        "set": Many(10_000, Text(1024)),
    },
    # ------------------------------------------------------------ other schedulers
    "AskExecutorsRequest": {"ask": PART, "wait_ms": PLAIN, "executor_ids": Many(4096, ID)},
    "LogsAsk": {"job_id": ID, **_LOGS_WANTED},
    "ForwardRequest": {
        "scheduler_id": ID,
        "loads": Many(MAX_LOADS, PART, is_cut=True),
        "reports": Many(1024, PART, is_cut=True),
        "slots": Many(1024, PART, is_cut=True),
        "lists": Many(1024, PART, is_cut=True),
        "heard_change": PLAIN,
        "watched": Many(1024, PART, is_cut=True),
        "progress": Many(MAX_FORWARDED_ATTEMPTS, PART, is_cut=True),
    },
    "JobLoad": {"job_id": ID, "running": PLAIN, "available": PLAIN, "log_seq": PLAIN, "head_revision": PLAIN},
    "ForwardedReports": {
        **_LIFE,
        "list_number": PLAIN,
        "reports": Many(MAX_SLOTS, PART, is_cut=True),
        "freed_slots": Number(MAX_SLOTS, is_cut=True),
        "empty": PLAIN,
    },
    "ForwardedSlots": {
        "job_id": ID,
        **_LIFE,
        "list_number": PLAIN,
        "slots": Number(MAX_SLOTS, is_cut=True),
        "empty": PLAIN,
    },
    "ForwardedList": {**_LIFE, "list_number": PLAIN, "held": TASKS, "disproves": PLAIN},
    "WatchedJob": {"job_id": ID, "log_seq": PLAIN, "progress": Unused()},
    "AttendRequest": {"wait_ms": PLAIN},
    # ------------------------------------------------------------ schedulers, to executors
    "AnswerPollRequest": {**_LIFE, "list_number": PLAIN, "answer": PART},
    "PollWorkResponse": {
        "task_sets": Many(MAX_LISTED_TASKS, PART),
        "cancel": TASKS,
        "clean_ups": Many(MAX_LISTED_TASKS, PART),
        "blobs": Many(MAX_LISTED_TASKS, PART),
        "will_call": PLAIN,
        "set_aside": PART,
    },
    "TaskSet": {
        "job_id": ID,
        "stage_id": PLAIN,
        "stage_attempt": PLAIN,
        "work": PLAIN,
        "spec_digest": ID,
        "plan_digest": ID,
        "partitions": PLAIN,
        "tasks": TASKS,
        "inputs": Many(10_000, PART),
        "output": PART,
        "sink": PART,
        "cluster_slots": PLAIN,
        "reply_to": LINE,
        "pipelined": PLAIN,
        "streams": Many(10_000, PART),
        "inputs_digest": ID,
        "fused": Many(MAX_STAGES, PART),
        "reads": Many(MAX_TASKS_OF_STAGE, PART),
        "replan": PART,
        "portion": PART,
        "may_grow": PLAIN,
        "may_step": PLAIN,
        "may_reuse": PLAIN,
    },
    "ReplanTask": {
        "frame_digest": ID,
        "begun": Many(MAX_STAGES, PART),
        "first_stage_id": PLAIN,
        "falsify": LINE,
    },
    "BegunStage": {
        "stage_id": PLAIN,
        "finished": PLAIN,
        "repeatable": PLAIN,
        "rows": PLAIN,
        "bytes": PLAIN,
        "tasks": PLAIN,
        "buckets": PLAIN,
    },
    "StagePortion": {"digest": ID, "first_partition": PLAIN, "partitions": PLAIN},
    "FusedStage": {"stage_id": PLAIN, "plan_digest": ID},
    "TaskRead": {
        "first_bucket": PLAIN,
        "end_bucket": PLAIN,
        "split_stage_id": PLAIN,
        "first_producer": PLAIN,
        "end_producer": PLAIN,
    },
    "TaskAttempt": {"partition": PLAIN, "task_attempt": PLAIN, "alone": PLAIN},
    "StageInputLocations": {
        "stage_id": PLAIN,
        "outputs": Many(2**20, PART),
        "job_id": ID,
        "of_stage_id": PLAIN,
    },
    "StreamedInput": {"stage_id": PLAIN, "stage_attempt": PLAIN, "tasks": Many(2**20, PART)},
    "StreamedTask": {"task_attempt": PLAIN, "address": LINE},
    "CleanUp": {
        "job_id": ID,
        "keep_result": PLAIN,
        "keep_files": Many(2**20, PATH),
        "sink": PART,
        "dead_writers": Many(2**20, ID),
        "memory_only": PLAIN,
        "folders": Many(1_000, PATH),
        "take_back": PLAIN,
    },
    "SetAside": {"until_ms": TIME, "reason": REASON},
}
"""By message and field; a test checks that every field of every request is here."""
