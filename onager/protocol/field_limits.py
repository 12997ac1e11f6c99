"""The size limits of the fields of requests: one table, checked before anything else looks at a request.

Each text, bytes field, list and map of a request has an entry. A flag, a choice or a number without an entry may have
any value: it is only kept, compared or shown. A message within a message needs no entry: its fields have their own.

Real use never reaches these limits. They are small enough that handling a request within them does not hold up other
calls. ``python -m onager.protocol.limits_page`` makes ``docs/limits.md`` from this table and those of
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
"""Steps of a script."""
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
MAX_CALLS_A_PAGE: Final = 500
"""Calls of a program in one answer."""
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
MAX_REPORTED_ATTEMPTS: Final = 256
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
    """A value without a limit."""


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
LABELS: Final = Pairs(MAX_LABELS, Text(MAX_LABEL_CHARS), Text(MAX_LABEL_CHARS))
SETTINGS: Final = Pairs(4096, Text(1024), Text(64 * KIB))
OPTIONS: Final = Pairs(1000, Text(256), Text(64 * KIB))
CODE: Final = Bytes(MAX_JOB_SPEC_BYTES)
TASKS: Final = Many(MAX_LISTED_TASKS, PART)
JOBS: Final = Many(1024, ID, is_cut=True)
PLACES: Final = Many(256, PART)
FEATURES: Final = Many(64, WORD)
_WORK: Final[Mapping[str, Limit]] = {
    "name": LINE,
    "views": Many(4096, PART),
    "conf": SETTINGS,
    "py_files": Many(1000, PART),
}
"""What a job and a step of a script have in common."""
_REPORTS: Final[Mapping[str, Limit]] = {
    "reports": Many(MAX_SLOTS, PART, is_cut=True),
    "freed_slots": Number(MAX_SLOTS, is_cut=True),
}
_LIFE: Final[Mapping[str, Limit]] = {"executor_id": ID, "incarnation": ID}
_LOGS_WANTED: Final[Mapping[str, Limit]] = {
    "tail_bytes": Number(MAX_LOG_BYTES, is_cut=True),
    "after": Many(1024, PART),
}

FIELD_LIMITS: Final[Mapping[str, Mapping[str, Limit]]] = {
    # ------------------------------------------------------------ clients
    "SubmitJobRequest": {"job_id": ID, "client_id": Text(256, is_line=True)},
    "JobSpec": {**_WORK, "connect": Unused(), "labels": LABELS},
    "ScriptSpec": {"steps": Many(MAX_STEPS, PART)},
    "ScriptStep": {**_WORK, "after": Many(MAX_STEPS, Number(MAX_STEPS))},
    "SqlScript": {
        "text": Text(MAX_JOB_SPEC_BYTES),
        "statements": Many(MAX_STATEMENTS, Number(MAX_STATEMENTS)),
        "parameters": Many(MAX_PARAMETERS, PART),
        "settled": Many(MAX_STATEMENTS, PART),
    },
    "SettledStatement": {"number": Number(MAX_STATEMENTS), "variables": Pairs(10_000, LINE, Text(MIB))},
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
        "foreign": Text(64 * KIB),
    },
    "SinkBuckets": {"by": Many(100, Text(1_024)), "sort_by": Many(100, Text(1_024))},
    "SinkTable": {
        "key": STATE_PATH,
        "table_id": ID,
        "location": PATH,
        "replaces": WORD,
        "within": Text(4 * KIB),
    },
    "GetJobRequest": {"job_id": ID, "limit": Number(MAX_TASKS_A_PAGE, is_cut=True)},
    "ListJobsRequest": {
        "limit": Number(MAX_JOBS_A_PAGE, is_cut=True),
        "state": WORD,
        "name": LINE,
        "session": LINE,
        "since_ms": TIME,
        "until_ms": TIME,
        "principal": Text(128, is_line=True),
        "cursor": Text(128, is_line=True),
        "labels": LABELS,
    },
    "RetryJobRequest": {"job_id": ID, "new_job_id": ID, "client_id": Text(256, is_line=True)},
    "FetchLogsRequest": {"job_id": ID, **_LOGS_WANTED},
    "DrainExecutorRequest": {"executor_id": ID, "reason": REASON},
    "BeginProgramRequest": {
        "program_id": ID,
        "secret": WORD,
        "user": LINE,
        "digest": WORD,
        "arguments": Text(16 * KIB),
    },
    "EndProgramRequest": {"program_id": ID, "attempt": Number(10**6), "secret": WORD, "exit_code": Number(255)},
    "FailedCall": {"task": LINE, "number": Number(10**6), "tasks": Number(10**6)},
    "GetProgramRequest": {"program_id": ID},
    "ListProgramCallsRequest": {"program_id": ID, "after": STATE_PATH, "limit": Number(MAX_CALLS_A_PAGE, is_cut=True)},
    "WatchOutputRequest": {"program_id": ID},
    "ProgramSpec": {
        "file_name": Text(255, is_id=True),
        "source": CODE,
        "arguments": Many(1000, Text(64 * KIB)),
        "files": Many(1000, PART),
        "environment": Pairs(1000, LINE, Text(64 * KIB)),
        "user": LINE,
    },
    "GivenScript": {"session_id": LINE, "relation": CODE, "parameters": Many(MAX_PARAMETERS, PART)},
    "BeginAttemptRequest": {**_LIFE, "secret": WORD, "user": LINE},
    "MendedProgram": {"file_name": Text(255, is_id=True), "source": CODE},
    "ProgramFile": {
        "name": Text(255, is_id=True),
        "content": CODE,
        "use": WORD,
        "alias": Text(255, is_id=True),
        "digest": WORD,
    },
    "WatchJobRequest": {"job_id": ID},
    "WatchEventsRequest": {"job_id": ID},
    "GetFinalPlanRequest": {"job_id": ID},
    "ExportJobRequest": {"job_id": ID, "format": WORD},
    "CancelJobRequest": {"job_id": ID, "reason": REASON},
    "FetchResultRequest": {"job_id": ID},
    "GetCatalogRequest": {
        "database": LINE,
        "name": LINE,
        "limit": Number(MAX_CATALOG_A_PAGE, is_cut=True),
        "cursor": STATE_PATH,
    },
    "ListExecutorsRequest": {"after": ID, "state": WORD},
    "ListStateRequest": {"prefix": STATE_PATH, "limit": Number(10_000, is_cut=True)},
    "GetStateRequest": {"key": STATE_PATH},
    "WatchStateRequest": {"prefix": STATE_PATH, "from_revisions": Pairs(64, Text(64), PLAIN)},
    "RemoveStateRequest": {"path": STATE_PATH},
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
        "slots": Number(MAX_SLOTS),
        "spark_version": WORD,
        "python_version": WORD,
        "exchange_dir": PATH,
        "running": TASKS,
        "mode": WORD,
        "address": LINE,
        "stream_address": LINE,
        "features": FEATURES,
        "machine": WORD,
        "places": PLACES,
    },
    "PlaceView": {"name": WORD, "path": PATH, "id": WORD, "mark": WORD, "problem": REASON, "wanted": WORD},
    "PlaceMark": {"place": WORD, "mark": WORD},
    "HeartbeatRequest": {
        **_LIFE,
        "running": TASKS,
        "cleaned_up": JOBS,
        "exchange_files": Many(256, PART, is_cut=True),
        "kept_jobs": JOBS,
        "no_space": REASON,
        "progress": Many(MAX_REPORTED_ATTEMPTS, PART, is_cut=True),
        "places": PLACES,
        "looked_for": Many(256, PART, is_cut=True),
    },
    "AttemptProgress": {"rows_read": SEEN, "bytes_read": SEEN, "permille": Number(1000, is_cut=True)},
    "ExecutorLoad": {"heap_used_bytes": AMOUNT, "heap_max_bytes": AMOUNT, "rss_bytes": AMOUNT, "gc_ms": AMOUNT},
    "ExchangeUse": {"looked_ms": TIME},
    "ExchangeFiles": {"job_id": ID, "writers": Many(1024, ID)},
    "PollWorkRequest": {**_LIFE, "free_slots": Number(MAX_SLOTS, is_cut=True), "running": TASKS, "cleaned_up": JOBS},
    "ReportTasksRequest": {**_LIFE, **_REPORTS},
    "TaskId": {"job_id": ID},
    "TaskReport": {"started_ms": TIME, "ended_ms": TIME, "needs": FEATURES},
    "TaskSuccess": {
        "inline_result": Bytes(MAX_INLINE_BYTES),
        "blobs": Many(10_000, PART),
        "op_metrics": Bytes(8 * KIB),
        "bound_plan": ID,
        "bucket_sizes": Bytes(4 * KIB),
    },
    "TaskOutput": {
        "nonce": ID,
        "executor_id": ID,
        "rows": AMOUNT,
        "bytes": AMOUNT,
        "files": Many(64 * KIB, PATH),
        "payload_digest": ID,
        "checksum": ID,
    },
    "PlanOutcome": {
        "stages": Many(10_000, PART),
        "arrow_schema": Bytes(4 * MIB),
        "schema_json": Text(8 * MIB),
        "plan": Text(MIB, is_cut=True),
        "blobs": Many(10_000, PART),
        "fused_inline_result": Bytes(MAX_INLINE_BYTES),
        "fused_op_metrics": Bytes(8 * KIB),
        "fused_bound_plan": ID,
        "estimates": Many(10_000, PART),
        "frame_digest": ID,
        "decisions": Many(100, REASON),
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
    "CatalogPut": {"key": STATE_PATH, "value": Bytes(MIB), "removed_pages_of": Many(1000, ID)},
    "PartitionChange": {
        "key": STATE_PATH,
        "table_id": ID,
        "location": PATH,
        "set": Pairs(100_000, Text(4 * KIB), Text(64 * KIB)),
        "expected": Pairs(100_000, Text(4 * KIB), Text(64 * KIB)),
        "template": Text(64 * KIB),
    },
    "CatalogRecord": {"key": STATE_PATH, "value": Bytes(MIB)},
    # An error in a stage's numbers is reported about the plan, which is unusable then.
    "PlannedStage": {
        "name": Text(1024, is_cut=True),
        "plan_digest": ID,
        "inputs": Many(10_000, PART),
        "plan": Text(256 * KIB, is_cut=True),
        "portions": Many(10_000, PART),
        "fingerprint": ID,
    },
    "StageInput": {"read": WORD, "side": WORD},
    "OutputLayout": {"kind": WORD},
    "Blob": {"digest": ID, "content": Bytes(MAX_PLAN_BYTES)},
    "Failure": {
        "kind": Text(64, is_cut=True),
        "message": Text(MAX_MESSAGE_CHARS, is_cut=True),
        "error_class": Text(256, is_cut=True),
        "sql_state": Text(64, is_cut=True),
        "query_context": Text(MAX_CONTEXT_CHARS, is_cut=True),
        "details": Text(MAX_MESSAGE_CHARS, is_cut=True),
        "cause": Text(64, is_cut=True),
        "log_tail": Text(MAX_TAIL_CHARS, is_cut=True),
        "connect_details": Bytes(MAX_CONNECT_DETAILS_BYTES),
    },
    "FetchFailure": {"nonce": ID},
    "FetchBlobRequest": {"digest": ID},
    "ReadCatalogRequest": {
        **_LIFE,
        "keys": Many(MAX_CATALOG_KEYS, STATE_PATH),
        "prefixes": Many(MAX_CATALOG_KEYS, STATE_PATH),
        "start_after": STATE_PATH,
    },
    "DeregisterExecutorRequest": {**_LIFE, "reason": REASON},
    "JvmDeath": {"running": TASKS},
    "AwaitRequestsRequest": {**_LIFE, "answers": Many(64, PART, is_cut=True)},
    "LogsAnswer": {"logs": Many(MAX_LOGS, PART, is_cut=True)},
    "AttemptLog": {"executor_id": ID, "text": Bytes(MAX_LOG_BYTES), "note": REASON},
    "ConnectReply": {"analyzed": Bytes(MAX_CONNECT_REPLY_BYTES)},
    "ConnectApplied": {
        "responses": Many(64, Bytes(MAX_CONNECT_REPLY_BYTES)),
        "put": Many(64, PART),
        "removed": Many(4096, PART),
        "conf": SETTINGS,
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
    "AskExecutorsRequest": {"executor_ids": Many(4096, ID)},
    "LogsAsk": {"job_id": ID, **_LOGS_WANTED},
    "ForwardRequest": {
        "scheduler_id": ID,
        "loads": Many(MAX_LOADS, PART, is_cut=True),
        "reports": Many(1024, PART, is_cut=True),
        "slots": Many(1024, PART, is_cut=True),
        "lists": Many(1024, PART, is_cut=True),
        "watched": Many(1024, PART, is_cut=True),
        "progress": Many(MAX_FORWARDED_ATTEMPTS, PART, is_cut=True),
    },
    "JobLoad": {"job_id": ID},
    "ForwardedReports": {**_LIFE, **_REPORTS},
    "ForwardedSlots": {"job_id": ID, **_LIFE, "slots": Number(MAX_SLOTS, is_cut=True)},
    "ForwardedList": {**_LIFE, "held": TASKS},
    "WatchedJob": {"job_id": ID, "progress": Unused()},
    # ------------------------------------------------------------ schedulers, to executors
    "AnswerPollRequest": _LIFE,
    "PollWorkResponse": {
        "task_sets": Many(MAX_LISTED_TASKS, PART),
        "cancel": TASKS,
        "clean_ups": Many(MAX_LISTED_TASKS, PART),
        "blobs": Many(MAX_LISTED_TASKS, PART),
    },
    "TaskSet": {
        "job_id": ID,
        "spec_digest": ID,
        "plan_digest": ID,
        "tasks": TASKS,
        "inputs": Many(10_000, PART),
        "reply_to": LINE,
        "streams": Many(10_000, PART),
        "inputs_digest": ID,
        "fused": Many(MAX_STAGES, PART),
        "reads": Many(MAX_TASKS_OF_STAGE, PART),
    },
    "ReplanTask": {"frame_digest": ID, "begun": Many(MAX_STAGES, PART), "falsify": LINE},
    "StagePortion": {"digest": ID},
    "FusedStage": {"plan_digest": ID},
    "StageInputLocations": {"outputs": Many(2**20, PART), "job_id": ID},
    "StreamedInput": {"tasks": Many(2**20, PART)},
    "StreamedTask": {"address": LINE},
    "CleanUp": {
        "job_id": ID,
        "keep_files": Many(2**20, PATH),
        "dead_writers": Many(2**20, ID),
        "folders": Many(1_000, PATH),
    },
    "Quarantine": {"until_ms": TIME, "reason": REASON},
}
"""By message and field; `checking.limit_of` has the limits of all other fields."""
