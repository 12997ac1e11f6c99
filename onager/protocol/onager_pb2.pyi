from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    QUEUED: _ClassVar[JobState]
    PLANNING: _ClassVar[JobState]
    RUNNING: _ClassVar[JobState]
    PUBLISHING: _ClassVar[JobState]
    SUCCESSFUL: _ClassVar[JobState]
    FAILED: _ClassVar[JobState]
    CANCELLED: _ClassVar[JobState]

class Work(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORK_UNSPECIFIED: _ClassVar[Work]
    PLAN: _ClassVar[Work]
    QUERY: _ClassVar[Work]
    PUBLISH_PLAN: _ClassVar[Work]
    PUBLISH: _ClassVar[Work]
    REPLAN: _ClassVar[Work]
    FEED: _ClassVar[Work]
    STEP: _ClassVar[Work]
    PROGRAM: _ClassVar[Work]
JOB_STATE_UNSPECIFIED: JobState
QUEUED: JobState
PLANNING: JobState
RUNNING: JobState
PUBLISHING: JobState
SUCCESSFUL: JobState
FAILED: JobState
CANCELLED: JobState
WORK_UNSPECIFIED: Work
PLAN: Work
QUERY: Work
PUBLISH_PLAN: Work
PUBLISH: Work
REPLAN: Work
FEED: Work
STEP: Work
PROGRAM: Work

class View(_message.Message):
    __slots__ = ("name", "path", "format", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    format: str
    options: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., format: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SqlScript(_message.Message):
    __slots__ = ("text", "statements", "parameters", "settled")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    text: str
    statements: _containers.RepeatedScalarFieldContainer[int]
    parameters: _containers.RepeatedCompositeFieldContainer[SqlParameter]
    settled: _containers.RepeatedCompositeFieldContainer[SettledStatement]
    def __init__(self, text: _Optional[str] = ..., statements: _Optional[_Iterable[int]] = ..., parameters: _Optional[_Iterable[_Union[SqlParameter, _Mapping]]] = ..., settled: _Optional[_Iterable[_Union[SettledStatement, _Mapping]]] = ...) -> None: ...

class SettledStatement(_message.Message):
    __slots__ = ("number", "variables")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    number: int
    variables: _containers.ScalarMap[str, str]
    def __init__(self, number: _Optional[int] = ..., variables: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PythonFunction(_message.Message):
    __slots__ = ("source", "pickled", "function", "arguments_json", "file_name")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    pickled: bytes
    function: str
    arguments_json: str
    file_name: str
    def __init__(self, source: _Optional[bytes] = ..., pickled: _Optional[bytes] = ..., function: _Optional[str] = ..., arguments_json: _Optional[str] = ..., file_name: _Optional[str] = ...) -> None: ...

class PyFile(_message.Message):
    __slots__ = ("name", "content")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class Sink(_message.Message):
    __slots__ = ("path", "format", "mode", "options", "schema_json", "partition_by", "table", "buckets", "foreign", "replaces_anything")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PATH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    PARTITION_BY_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    REPLACES_ANYTHING_FIELD_NUMBER: _ClassVar[int]
    path: str
    format: str
    mode: str
    options: _containers.ScalarMap[str, str]
    schema_json: str
    partition_by: _containers.RepeatedScalarFieldContainer[str]
    table: SinkTable
    buckets: SinkBuckets
    foreign: str
    replaces_anything: bool
    def __init__(self, path: _Optional[str] = ..., format: _Optional[str] = ..., mode: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., schema_json: _Optional[str] = ..., partition_by: _Optional[_Iterable[str]] = ..., table: _Optional[_Union[SinkTable, _Mapping]] = ..., buckets: _Optional[_Union[SinkBuckets, _Mapping]] = ..., foreign: _Optional[str] = ..., replaces_anything: _Optional[bool] = ...) -> None: ...

class SinkBuckets(_message.Message):
    __slots__ = ("count", "by", "sort_by")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SORT_BY_FIELD_NUMBER: _ClassVar[int]
    count: int
    by: _containers.RepeatedScalarFieldContainer[str]
    sort_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, count: _Optional[int] = ..., by: _Optional[_Iterable[str]] = ..., sort_by: _Optional[_Iterable[str]] = ...) -> None: ...

class SinkTable(_message.Message):
    __slots__ = ("key", "table_id", "location", "replaces", "within")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    key: str
    table_id: str
    location: str
    replaces: str
    within: str
    def __init__(self, key: _Optional[str] = ..., table_id: _Optional[str] = ..., location: _Optional[str] = ..., replaces: _Optional[str] = ..., within: _Optional[str] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("sql", "python", "script", "connect", "program", "name", "views", "conf", "py_files", "sink", "labels")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SQL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    PY_FILES_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    sql: SqlScript
    python: PythonFunction
    script: ScriptSpec
    connect: ConnectPlan
    program: ProgramSpec
    name: str
    views: _containers.RepeatedCompositeFieldContainer[View]
    conf: _containers.ScalarMap[str, str]
    py_files: _containers.RepeatedCompositeFieldContainer[PyFile]
    sink: Sink
    labels: _containers.ScalarMap[str, str]
    def __init__(self, sql: _Optional[_Union[SqlScript, _Mapping]] = ..., python: _Optional[_Union[PythonFunction, _Mapping]] = ..., script: _Optional[_Union[ScriptSpec, _Mapping]] = ..., connect: _Optional[_Union[ConnectPlan, _Mapping]] = ..., program: _Optional[_Union[ProgramSpec, _Mapping]] = ..., name: _Optional[str] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., conf: _Optional[_Mapping[str, str]] = ..., py_files: _Optional[_Iterable[_Union[PyFile, _Mapping]]] = ..., sink: _Optional[_Union[Sink, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("job_id", "spec", "client_id", "protocol_version")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    spec: JobSpec
    client_id: str
    protocol_version: int
    def __init__(self, job_id: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., client_id: _Optional[str] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "existed")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    existed: bool
    def __init__(self, job_id: _Optional[str] = ..., existed: _Optional[bool] = ...) -> None: ...

class RetryJobRequest(_message.Message):
    __slots__ = ("job_id", "new_job_id", "client_id", "protocol_version", "mended")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MENDED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    new_job_id: str
    client_id: str
    protocol_version: int
    mended: MendedProgram
    def __init__(self, job_id: _Optional[str] = ..., new_job_id: _Optional[str] = ..., client_id: _Optional[str] = ..., protocol_version: _Optional[int] = ..., mended: _Optional[_Union[MendedProgram, _Mapping]] = ...) -> None: ...

class MendedProgram(_message.Message):
    __slots__ = ("file_name", "source", "keep")
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    source: bytes
    keep: bool
    def __init__(self, file_name: _Optional[str] = ..., source: _Optional[bytes] = ..., keep: _Optional[bool] = ...) -> None: ...

class RetryJobResponse(_message.Message):
    __slots__ = ("job_id", "existed")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    existed: bool
    def __init__(self, job_id: _Optional[str] = ..., existed: _Optional[bool] = ...) -> None: ...

class FetchFailure(_message.Message):
    __slots__ = ("input_stage_id", "input_partition", "nonce")
    INPUT_STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_PARTITION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    input_stage_id: int
    input_partition: int
    nonce: str
    def __init__(self, input_stage_id: _Optional[int] = ..., input_partition: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "error_class", "sql_state", "query_context", "details", "fetch", "cause", "log_tail", "connect_details")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    SQL_STATE_FIELD_NUMBER: _ClassVar[int]
    QUERY_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    CONNECT_DETAILS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    error_class: str
    sql_state: str
    query_context: str
    details: str
    fetch: FetchFailure
    cause: str
    log_tail: str
    connect_details: bytes
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., error_class: _Optional[str] = ..., sql_state: _Optional[str] = ..., query_context: _Optional[str] = ..., details: _Optional[str] = ..., fetch: _Optional[_Union[FetchFailure, _Mapping]] = ..., cause: _Optional[str] = ..., log_tail: _Optional[str] = ..., connect_details: _Optional[bytes] = ...) -> None: ...

class TaskMetrics(_message.Message):
    __slots__ = ("run_ms", "rows_out", "bytes_out", "bytes_in", "spill_bytes", "peak_memory_bytes", "queued_ms", "fetch_ms", "commit_ms", "executor_rss_bytes", "bind_ms", "codegen_ms", "plan_ms", "function_ms", "plain_bytes_out")
    RUN_MS_FIELD_NUMBER: _ClassVar[int]
    ROWS_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    SPILL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    FETCH_MS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    BIND_MS_FIELD_NUMBER: _ClassVar[int]
    CODEGEN_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_MS_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_MS_FIELD_NUMBER: _ClassVar[int]
    PLAIN_BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    run_ms: int
    rows_out: int
    bytes_out: int
    bytes_in: int
    spill_bytes: int
    peak_memory_bytes: int
    queued_ms: int
    fetch_ms: int
    commit_ms: int
    executor_rss_bytes: int
    bind_ms: int
    codegen_ms: int
    plan_ms: int
    function_ms: int
    plain_bytes_out: int
    def __init__(self, run_ms: _Optional[int] = ..., rows_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., bytes_in: _Optional[int] = ..., spill_bytes: _Optional[int] = ..., peak_memory_bytes: _Optional[int] = ..., queued_ms: _Optional[int] = ..., fetch_ms: _Optional[int] = ..., commit_ms: _Optional[int] = ..., executor_rss_bytes: _Optional[int] = ..., bind_ms: _Optional[int] = ..., codegen_ms: _Optional[int] = ..., plan_ms: _Optional[int] = ..., function_ms: _Optional[int] = ..., plain_bytes_out: _Optional[int] = ...) -> None: ...

class TaskInfo(_message.Message):
    __slots__ = ("partition", "state", "attempts", "successes", "executor_id", "failures", "speculated", "speculative_executor_id", "speculative_won")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSES_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    SPECULATED_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_WON_FIELD_NUMBER: _ClassVar[int]
    partition: int
    state: str
    attempts: int
    successes: int
    executor_id: str
    failures: int
    speculated: bool
    speculative_executor_id: str
    speculative_won: bool
    def __init__(self, partition: _Optional[int] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., successes: _Optional[int] = ..., executor_id: _Optional[str] = ..., failures: _Optional[int] = ..., speculated: _Optional[bool] = ..., speculative_executor_id: _Optional[str] = ..., speculative_won: _Optional[bool] = ...) -> None: ...

class StageInfo(_message.Message):
    __slots__ = ("stage_id", "name", "work", "state", "attempt", "partitions", "successful", "running", "pending", "input_stage_ids", "metrics", "started_ms", "ended_ms", "tasks_failed", "plan", "tasks", "tasks_lost", "tasks_speculated", "wasted", "latencies", "fraction", "rows_read", "bytes_read", "child_job_id", "step_rows", "step_state")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSFUL_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    INPUT_STAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FAILED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TASKS_LOST_FIELD_NUMBER: _ClassVar[int]
    TASKS_SPECULATED_FIELD_NUMBER: _ClassVar[int]
    WASTED_FIELD_NUMBER: _ClassVar[int]
    LATENCIES_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    CHILD_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_ROWS_FIELD_NUMBER: _ClassVar[int]
    STEP_STATE_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    name: str
    work: str
    state: str
    attempt: int
    partitions: int
    successful: int
    running: int
    pending: int
    input_stage_ids: _containers.RepeatedScalarFieldContainer[int]
    metrics: TaskMetrics
    started_ms: int
    ended_ms: int
    tasks_failed: int
    plan: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskInfo]
    tasks_lost: int
    tasks_speculated: int
    wasted: TaskMetrics
    latencies: _containers.RepeatedCompositeFieldContainer[Latency]
    fraction: float
    rows_read: int
    bytes_read: int
    child_job_id: str
    step_rows: int
    step_state: str
    def __init__(self, stage_id: _Optional[int] = ..., name: _Optional[str] = ..., work: _Optional[str] = ..., state: _Optional[str] = ..., attempt: _Optional[int] = ..., partitions: _Optional[int] = ..., successful: _Optional[int] = ..., running: _Optional[int] = ..., pending: _Optional[int] = ..., input_stage_ids: _Optional[_Iterable[int]] = ..., metrics: _Optional[_Union[TaskMetrics, _Mapping]] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., tasks_failed: _Optional[int] = ..., plan: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskInfo, _Mapping]]] = ..., tasks_lost: _Optional[int] = ..., tasks_speculated: _Optional[int] = ..., wasted: _Optional[_Union[TaskMetrics, _Mapping]] = ..., latencies: _Optional[_Iterable[_Union[Latency, _Mapping]]] = ..., fraction: _Optional[float] = ..., rows_read: _Optional[int] = ..., bytes_read: _Optional[int] = ..., child_job_id: _Optional[str] = ..., step_rows: _Optional[int] = ..., step_state: _Optional[str] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("part", "tasks", "p50_ms", "p95_ms", "p99_ms", "max_ms", "relative_error")
    PART_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    part: str
    tasks: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int
    relative_error: float
    def __init__(self, part: _Optional[str] = ..., tasks: _Optional[int] = ..., p50_ms: _Optional[int] = ..., p95_ms: _Optional[int] = ..., p99_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., relative_error: _Optional[float] = ...) -> None: ...

class TimeShare(_message.Message):
    __slots__ = ("use", "ms")
    USE_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    use: str
    ms: int
    def __init__(self, use: _Optional[str] = ..., ms: _Optional[int] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ("job_id", "name", "state", "submitted_ms", "started_ms", "ended_ms", "stages", "failure", "waiting_for", "result_rows", "sink_path", "retry", "exchange_bytes", "exchange", "durable_because", "principal", "fraction", "eta_low_ms", "eta_high_ms", "time_shares", "fraction_fell", "retry_of", "session", "stages_total", "stages_done", "parent", "labels", "deadline_ms")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    RESULT_ROWS_FIELD_NUMBER: _ClassVar[int]
    SINK_PATH_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    ETA_LOW_MS_FIELD_NUMBER: _ClassVar[int]
    ETA_HIGH_MS_FIELD_NUMBER: _ClassVar[int]
    TIME_SHARES_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FELL_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STAGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STAGES_DONE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    state: JobState
    submitted_ms: int
    started_ms: int
    ended_ms: int
    stages: _containers.RepeatedCompositeFieldContainer[StageInfo]
    failure: Failure
    waiting_for: str
    result_rows: int
    sink_path: str
    retry: TaskRetry
    exchange_bytes: int
    exchange: str
    durable_because: str
    principal: str
    fraction: float
    eta_low_ms: int
    eta_high_ms: int
    time_shares: _containers.RepeatedCompositeFieldContainer[TimeShare]
    fraction_fell: str
    retry_of: str
    session: str
    stages_total: int
    stages_done: int
    parent: str
    labels: _containers.ScalarMap[str, str]
    deadline_ms: int
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., submitted_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StageInfo, _Mapping]]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., waiting_for: _Optional[str] = ..., result_rows: _Optional[int] = ..., sink_path: _Optional[str] = ..., retry: _Optional[_Union[TaskRetry, _Mapping]] = ..., exchange_bytes: _Optional[int] = ..., exchange: _Optional[str] = ..., durable_because: _Optional[str] = ..., principal: _Optional[str] = ..., fraction: _Optional[float] = ..., eta_low_ms: _Optional[int] = ..., eta_high_ms: _Optional[int] = ..., time_shares: _Optional[_Iterable[_Union[TimeShare, _Mapping]]] = ..., fraction_fell: _Optional[str] = ..., retry_of: _Optional[str] = ..., session: _Optional[str] = ..., stages_total: _Optional[int] = ..., stages_done: _Optional[int] = ..., parent: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class TaskRetry(_message.Message):
    __slots__ = ("stage_id", "partition", "next_try", "max_tries", "message", "not_before_ms", "tasks")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_FIELD_NUMBER: _ClassVar[int]
    MAX_TRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    partition: int
    next_try: int
    max_tries: int
    message: str
    not_before_ms: int
    tasks: int
    def __init__(self, stage_id: _Optional[int] = ..., partition: _Optional[int] = ..., next_try: _Optional[int] = ..., max_tries: _Optional[int] = ..., message: _Optional[str] = ..., not_before_ms: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class JobDetail(_message.Message):
    __slots__ = ("progress", "spec", "plan", "schema_json", "log_seq", "next")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQ_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    progress: JobProgress
    spec: JobSpec
    plan: str
    schema_json: str
    log_seq: int
    next: TaskPage
    def __init__(self, progress: _Optional[_Union[JobProgress, _Mapping]] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., plan: _Optional[str] = ..., schema_json: _Optional[str] = ..., log_seq: _Optional[int] = ..., next: _Optional[_Union[TaskPage, _Mapping]] = ...) -> None: ...

class TaskPage(_message.Message):
    __slots__ = ("stage_id", "partition")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    partition: int
    def __init__(self, stage_id: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "stage_id", "partition", "limit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    partition: int
    limit: int
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ..., partition: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("limit", "state", "name", "session", "since_ms", "until_ms", "principal", "cursor", "steps", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    limit: int
    state: str
    name: str
    session: str
    since_ms: int
    until_ms: int
    principal: str
    cursor: str
    steps: bool
    labels: _containers.ScalarMap[str, str]
    def __init__(self, limit: _Optional[int] = ..., state: _Optional[str] = ..., name: _Optional[str] = ..., session: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., principal: _Optional[str] = ..., cursor: _Optional[str] = ..., steps: _Optional[bool] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobProgress]
    next: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobProgress, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ExportJobRequest(_message.Message):
    __slots__ = ("job_id", "format", "after", "soon")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SOON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    format: str
    after: int
    soon: bool
    def __init__(self, job_id: _Optional[str] = ..., format: _Optional[str] = ..., after: _Optional[int] = ..., soon: _Optional[bool] = ...) -> None: ...

class ExportChunk(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("job_id", "after", "follow")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    after: int
    follow: bool
    def __init__(self, job_id: _Optional[str] = ..., after: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("position", "scheduler_id", "events", "more", "not_kept")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NOT_KEPT_FIELD_NUMBER: _ClassVar[int]
    position: int
    scheduler_id: str
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    more: bool
    not_kept: bool
    def __init__(self, position: _Optional[int] = ..., scheduler_id: _Optional[str] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., more: _Optional[bool] = ..., not_kept: _Optional[bool] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("type", "at_ms", "json")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    type: str
    at_ms: int
    json: str
    def __init__(self, type: _Optional[str] = ..., at_ms: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class GetFinalPlanRequest(_message.Message):
    __slots__ = ("job_id", "stage_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ...) -> None: ...

class FinalPlan(_message.Message):
    __slots__ = ("job_id", "state", "stages", "next")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: JobState
    stages: _containers.RepeatedCompositeFieldContainer[FinalStage]
    next: int
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., stages: _Optional[_Iterable[_Union[FinalStage, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class FinalStage(_message.Message):
    __slots__ = ("info", "inputs", "output", "has_estimate", "estimated_rows", "plans", "reported")
    INFO_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    HAS_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_ROWS_FIELD_NUMBER: _ClassVar[int]
    PLANS_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    info: StageInfo
    inputs: _containers.RepeatedCompositeFieldContainer[StageInput]
    output: OutputLayout
    has_estimate: bool
    estimated_rows: int
    plans: _containers.RepeatedCompositeFieldContainer[FinalOperators]
    reported: int
    def __init__(self, info: _Optional[_Union[StageInfo, _Mapping]] = ..., inputs: _Optional[_Iterable[_Union[StageInput, _Mapping]]] = ..., output: _Optional[_Union[OutputLayout, _Mapping]] = ..., has_estimate: _Optional[bool] = ..., estimated_rows: _Optional[int] = ..., plans: _Optional[_Iterable[_Union[FinalOperators, _Mapping]]] = ..., reported: _Optional[int] = ...) -> None: ...

class FinalOperators(_message.Message):
    __slots__ = ("bound_plan", "tasks", "operators")
    BOUND_PLAN_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    bound_plan: str
    tasks: int
    operators: _containers.RepeatedCompositeFieldContainer[FinalOperator]
    def __init__(self, bound_plan: _Optional[str] = ..., tasks: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[FinalOperator, _Mapping]]] = ...) -> None: ...

class FinalOperator(_message.Message):
    __slots__ = ("name", "text", "children", "metrics")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    children: _containers.RepeatedScalarFieldContainer[int]
    metrics: _containers.RepeatedCompositeFieldContainer[OperatorMetric]
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., children: _Optional[_Iterable[int]] = ..., metrics: _Optional[_Iterable[_Union[OperatorMetric, _Mapping]]] = ...) -> None: ...

class OperatorMetric(_message.Message):
    __slots__ = ("name", "type", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    value: int
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("cancelled", "state")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    state: JobState
    def __init__(self, cancelled: _Optional[bool] = ..., state: _Optional[_Union[JobState, str]] = ...) -> None: ...

class FetchLogsRequest(_message.Message):
    __slots__ = ("job_id", "stage_id", "partition", "attempt", "tail_bytes", "follow", "after")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    partition: int
    attempt: int
    tail_bytes: int
    follow: bool
    after: _containers.RepeatedCompositeFieldContainer[LogPosition]
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., follow: _Optional[bool] = ..., after: _Optional[_Iterable[_Union[LogPosition, _Mapping]]] = ...) -> None: ...

class LogPosition(_message.Message):
    __slots__ = ("task", "position")
    TASK_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    position: int
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., position: _Optional[int] = ...) -> None: ...

class AttemptLog(_message.Message):
    __slots__ = ("task", "executor_id", "text", "begin", "end", "kept", "note")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    executor_id: str
    text: bytes
    begin: int
    end: int
    kept: bool
    note: str
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., executor_id: _Optional[str] = ..., text: _Optional[bytes] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., kept: _Optional[bool] = ..., note: _Optional[str] = ...) -> None: ...

class FetchResultRequest(_message.Message):
    __slots__ = ("job_id", "partition", "batch")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    partition: int
    batch: int
    def __init__(self, job_id: _Optional[str] = ..., partition: _Optional[int] = ..., batch: _Optional[int] = ...) -> None: ...

class ResultChunk(_message.Message):
    __slots__ = ("schema", "partition", "batch", "record_batch", "more")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_BATCH_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    schema: bytes
    partition: int
    batch: int
    record_batch: bytes
    more: bool
    def __init__(self, schema: _Optional[bytes] = ..., partition: _Optional[int] = ..., batch: _Optional[int] = ..., record_batch: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class ExecutorInfo(_message.Message):
    __slots__ = ("executor_id", "incarnation", "host", "slots", "running", "state", "registered_ms", "last_seen_ms", "spark_version", "pid", "mode", "address", "exchange", "stream_address", "reason", "quarantined_until_ms", "load", "load_ms", "programs", "program_slots")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    SPARK_VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    LOAD_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    host: str
    slots: int
    running: int
    state: str
    registered_ms: int
    last_seen_ms: int
    spark_version: str
    pid: int
    mode: str
    address: str
    exchange: ExchangeUse
    stream_address: str
    reason: str
    quarantined_until_ms: int
    load: ExecutorLoad
    load_ms: int
    programs: int
    program_slots: int
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., host: _Optional[str] = ..., slots: _Optional[int] = ..., running: _Optional[int] = ..., state: _Optional[str] = ..., registered_ms: _Optional[int] = ..., last_seen_ms: _Optional[int] = ..., spark_version: _Optional[str] = ..., pid: _Optional[int] = ..., mode: _Optional[str] = ..., address: _Optional[str] = ..., exchange: _Optional[_Union[ExchangeUse, _Mapping]] = ..., stream_address: _Optional[str] = ..., reason: _Optional[str] = ..., quarantined_until_ms: _Optional[int] = ..., load: _Optional[_Union[ExecutorLoad, _Mapping]] = ..., load_ms: _Optional[int] = ..., programs: _Optional[int] = ..., program_slots: _Optional[int] = ...) -> None: ...

class DrainExecutorRequest(_message.Message):
    __slots__ = ("executor_id", "reason")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    reason: str
    def __init__(self, executor_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainExecutorResponse(_message.Message):
    __slots__ = ("was_leaving", "running", "others", "programs")
    WAS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    was_leaving: bool
    running: int
    others: int
    programs: int
    def __init__(self, was_leaving: _Optional[bool] = ..., running: _Optional[int] = ..., others: _Optional[int] = ..., programs: _Optional[int] = ...) -> None: ...

class BeginProgramRequest(_message.Message):
    __slots__ = ("program_id", "secret", "user", "digest", "arguments")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    secret: str
    user: str
    digest: str
    arguments: str
    def __init__(self, program_id: _Optional[str] = ..., secret: _Optional[str] = ..., user: _Optional[str] = ..., digest: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class BeginProgramResponse(_message.Message):
    __slots__ = ("attempt", "seed", "calls", "ended", "exit_code", "why_ended", "retries")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    WHY_ENDED_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    seed: str
    calls: int
    ended: bool
    exit_code: int
    why_ended: str
    retries: int
    def __init__(self, attempt: _Optional[int] = ..., seed: _Optional[str] = ..., calls: _Optional[int] = ..., ended: _Optional[bool] = ..., exit_code: _Optional[int] = ..., why_ended: _Optional[str] = ..., retries: _Optional[int] = ...) -> None: ...

class EndProgramRequest(_message.Message):
    __slots__ = ("program_id", "attempt", "secret", "exit_code", "failed")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    attempt: int
    secret: str
    exit_code: int
    failed: FailedCall
    def __init__(self, program_id: _Optional[str] = ..., attempt: _Optional[int] = ..., secret: _Optional[str] = ..., exit_code: _Optional[int] = ..., failed: _Optional[_Union[FailedCall, _Mapping]] = ...) -> None: ...

class FailedCall(_message.Message):
    __slots__ = ("task", "number", "tasks")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    task: str
    number: int
    tasks: int
    def __init__(self, task: _Optional[str] = ..., number: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class EndProgramResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetProgramRequest(_message.Message):
    __slots__ = ("program_id",)
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    def __init__(self, program_id: _Optional[str] = ...) -> None: ...

class ProgramInfo(_message.Message):
    __slots__ = ("program_id", "attempt", "ended", "exit_code", "why_ended", "began_ms", "attempt_ms", "ended_ms", "calls", "job_id", "retries", "retried", "matching")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    WHY_ENDED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    attempt: int
    ended: bool
    exit_code: int
    why_ended: str
    began_ms: int
    attempt_ms: int
    ended_ms: int
    calls: int
    job_id: str
    retries: int
    retried: str
    matching: bool
    def __init__(self, program_id: _Optional[str] = ..., attempt: _Optional[int] = ..., ended: _Optional[bool] = ..., exit_code: _Optional[int] = ..., why_ended: _Optional[str] = ..., began_ms: _Optional[int] = ..., attempt_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., calls: _Optional[int] = ..., job_id: _Optional[str] = ..., retries: _Optional[int] = ..., retried: _Optional[str] = ..., matching: _Optional[bool] = ...) -> None: ...

class ListProgramCallsRequest(_message.Message):
    __slots__ = ("program_id", "after", "limit")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    after: str
    limit: int
    def __init__(self, program_id: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ProgramCall(_message.Message):
    __slots__ = ("task", "number", "kind", "target", "line", "at_ms", "attempt", "done", "error", "job_id", "session_id")
    TASK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    task: str
    number: int
    kind: str
    target: str
    line: str
    at_ms: int
    attempt: int
    done: bool
    error: str
    job_id: str
    session_id: str
    def __init__(self, task: _Optional[str] = ..., number: _Optional[int] = ..., kind: _Optional[str] = ..., target: _Optional[str] = ..., line: _Optional[str] = ..., at_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., done: _Optional[bool] = ..., error: _Optional[str] = ..., job_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class ListProgramCallsResponse(_message.Message):
    __slots__ = ("calls", "next")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[ProgramCall]
    next: str
    def __init__(self, calls: _Optional[_Iterable[_Union[ProgramCall, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class WatchOutputRequest(_message.Message):
    __slots__ = ("program_id", "attempt", "position", "follow")
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    attempt: int
    position: int
    follow: bool
    def __init__(self, program_id: _Optional[str] = ..., attempt: _Optional[int] = ..., position: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class ProgramOutput(_message.Message):
    __slots__ = ("stream", "content", "attempt", "position", "left_out")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    stream: int
    content: bytes
    attempt: int
    position: int
    left_out: int
    def __init__(self, stream: _Optional[int] = ..., content: _Optional[bytes] = ..., attempt: _Optional[int] = ..., position: _Optional[int] = ..., left_out: _Optional[int] = ...) -> None: ...

class ProgramSpec(_message.Message):
    __slots__ = ("file_name", "source", "arguments", "files", "environment", "user", "script")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    source: bytes
    arguments: _containers.RepeatedScalarFieldContainer[str]
    files: _containers.RepeatedCompositeFieldContainer[ProgramFile]
    environment: _containers.ScalarMap[str, str]
    user: str
    script: GivenScript
    def __init__(self, file_name: _Optional[str] = ..., source: _Optional[bytes] = ..., arguments: _Optional[_Iterable[str]] = ..., files: _Optional[_Iterable[_Union[ProgramFile, _Mapping]]] = ..., environment: _Optional[_Mapping[str, str]] = ..., user: _Optional[str] = ..., script: _Optional[_Union[GivenScript, _Mapping]] = ...) -> None: ...

class GivenScript(_message.Message):
    __slots__ = ("session_id", "relation", "parameters")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    relation: bytes
    parameters: _containers.RepeatedCompositeFieldContainer[SqlParameter]
    def __init__(self, session_id: _Optional[str] = ..., relation: _Optional[bytes] = ..., parameters: _Optional[_Iterable[_Union[SqlParameter, _Mapping]]] = ...) -> None: ...

class ProgramFile(_message.Message):
    __slots__ = ("name", "content", "use", "alias", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    use: str
    alias: str
    digest: str
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ..., use: _Optional[str] = ..., alias: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class BeginAttemptRequest(_message.Message):
    __slots__ = ("task", "executor_id", "incarnation", "secret", "user")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    executor_id: str
    incarnation: str
    secret: str
    user: str
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., secret: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class BeginAttemptResponse(_message.Message):
    __slots__ = ("begun", "owner", "user", "folder", "program_id", "retried")
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    begun: BeginProgramResponse
    owner: str
    user: str
    folder: str
    program_id: str
    retried: _containers.RepeatedCompositeFieldContainer[RetriedFrom]
    def __init__(self, begun: _Optional[_Union[BeginProgramResponse, _Mapping]] = ..., owner: _Optional[str] = ..., user: _Optional[str] = ..., folder: _Optional[str] = ..., program_id: _Optional[str] = ..., retried: _Optional[_Iterable[_Union[RetriedFrom, _Mapping]]] = ...) -> None: ...

class RetriedFrom(_message.Message):
    __slots__ = ("attempt", "call", "other")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    call: FailedCall
    other: bool
    def __init__(self, attempt: _Optional[int] = ..., call: _Optional[_Union[FailedCall, _Mapping]] = ..., other: _Optional[bool] = ...) -> None: ...

class EndAttemptRequest(_message.Message):
    __slots__ = ("task", "end")
    TASK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    end: EndProgramRequest
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., end: _Optional[_Union[EndProgramRequest, _Mapping]] = ...) -> None: ...

class EndAttemptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCatalogRequest(_message.Message):
    __slots__ = ("database", "name", "partitions", "limit", "cursor")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    database: str
    name: str
    partitions: bool
    limit: int
    cursor: str
    def __init__(self, database: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[bool] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class CatalogEntry(_message.Message):
    __slots__ = ("kind", "database", "name", "json", "revision")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    database: str
    name: str
    json: str
    revision: int
    def __init__(self, kind: _Optional[str] = ..., database: _Optional[str] = ..., name: _Optional[str] = ..., json: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class CatalogPartition(_message.Message):
    __slots__ = ("path", "json")
    PATH_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    path: str
    json: str
    def __init__(self, path: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class GetCatalogResponse(_message.Message):
    __slots__ = ("entries", "partitions", "revision", "next")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[CatalogEntry]
    partitions: _containers.RepeatedCompositeFieldContainer[CatalogPartition]
    revision: int
    next: str
    def __init__(self, entries: _Optional[_Iterable[_Union[CatalogEntry, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[CatalogPartition, _Mapping]]] = ..., revision: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class ListExecutorsRequest(_message.Message):
    __slots__ = ("limit", "after", "state")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    limit: int
    after: str
    state: str
    def __init__(self, limit: _Optional[int] = ..., after: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ListExecutorsResponse(_message.Message):
    __slots__ = ("executors", "states", "now_ms", "more")
    class StatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    executors: _containers.RepeatedCompositeFieldContainer[ExecutorInfo]
    states: _containers.ScalarMap[str, int]
    now_ms: int
    more: bool
    def __init__(self, executors: _Optional[_Iterable[_Union[ExecutorInfo, _Mapping]]] = ..., states: _Optional[_Mapping[str, int]] = ..., now_ms: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class SchedulerInfo(_message.Message):
    __slots__ = ("scheduler_id", "incarnation", "address", "host", "pid", "version", "started_ms", "answering", "clock_ahead_ms")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    incarnation: str
    address: str
    host: str
    pid: int
    version: str
    started_ms: int
    answering: bool
    clock_ahead_ms: int
    def __init__(self, scheduler_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ..., started_ms: _Optional[int] = ..., answering: _Optional[bool] = ..., clock_ahead_ms: _Optional[int] = ...) -> None: ...

class ListSchedulersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSchedulersResponse(_message.Message):
    __slots__ = ("schedulers", "now_ms")
    SCHEDULERS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    schedulers: _containers.RepeatedCompositeFieldContainer[SchedulerInfo]
    now_ms: int
    def __init__(self, schedulers: _Optional[_Iterable[_Union[SchedulerInfo, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ListStateRequest(_message.Message):
    __slots__ = ("prefix", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class StateEntry(_message.Message):
    __slots__ = ("key", "mod_revision", "size_bytes")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    key: str
    mod_revision: int
    size_bytes: int
    def __init__(self, key: _Optional[str] = ..., mod_revision: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ListStateResponse(_message.Message):
    __slots__ = ("entries", "more")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[StateEntry]
    more: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[StateEntry, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("key", "json", "mod_revision")
    KEY_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    key: str
    json: str
    mod_revision: int
    def __init__(self, key: _Optional[str] = ..., json: _Optional[str] = ..., mod_revision: _Optional[int] = ...) -> None: ...

class WatchStateRequest(_message.Message):
    __slots__ = ("prefix", "from_revisions")
    class FromRevisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    from_revisions: _containers.ScalarMap[str, int]
    def __init__(self, prefix: _Optional[str] = ..., from_revisions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class StateChange(_message.Message):
    __slots__ = ("kind", "key", "mod_revision", "size_bytes", "json", "keyspaces")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    KEYSPACES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    mod_revision: int
    size_bytes: int
    json: str
    keyspaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ..., mod_revision: _Optional[int] = ..., size_bytes: _Optional[int] = ..., json: _Optional[str] = ..., keyspaces: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveStateRequest(_message.Message):
    __slots__ = ("path", "dry_run", "force")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    path: str
    dry_run: bool
    force: bool
    def __init__(self, path: _Optional[str] = ..., dry_run: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class RemoveStateResponse(_message.Message):
    __slots__ = ("keys", "sample", "dangers", "removed")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    DANGERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    keys: int
    sample: _containers.RepeatedScalarFieldContainer[str]
    dangers: _containers.RepeatedScalarFieldContainer[str]
    removed: bool
    def __init__(self, keys: _Optional[int] = ..., sample: _Optional[_Iterable[str]] = ..., dangers: _Optional[_Iterable[str]] = ..., removed: _Optional[bool] = ...) -> None: ...

class CheckStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StateFinding(_message.Message):
    __slots__ = ("severity", "key", "kind", "message")
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    severity: str
    key: str
    kind: str
    message: str
    def __init__(self, severity: _Optional[str] = ..., key: _Optional[str] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StateCheckSummary(_message.Message):
    __slots__ = ("revision", "records", "errors", "warnings")
    class RecordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    records: _containers.ScalarMap[str, int]
    errors: int
    warnings: int
    def __init__(self, revision: _Optional[int] = ..., records: _Optional[_Mapping[str, int]] = ..., errors: _Optional[int] = ..., warnings: _Optional[int] = ...) -> None: ...

class StateCheck(_message.Message):
    __slots__ = ("begins", "findings", "summary")
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    begins: bool
    findings: _containers.RepeatedCompositeFieldContainer[StateFinding]
    summary: StateCheckSummary
    def __init__(self, begins: _Optional[bool] = ..., findings: _Optional[_Iterable[_Union[StateFinding, _Mapping]]] = ..., summary: _Optional[_Union[StateCheckSummary, _Mapping]] = ...) -> None: ...

class BackupStateRequest(_message.Message):
    __slots__ = ("format",)
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    format: int
    def __init__(self, format: _Optional[int] = ...) -> None: ...

class StateBackupHeader(_message.Message):
    __slots__ = ("onager_version", "taken_ms", "source", "revision", "records", "left_out", "format")
    class RecordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LeftOutEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ONAGER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TAKEN_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    onager_version: str
    taken_ms: int
    source: str
    revision: int
    records: _containers.ScalarMap[str, int]
    left_out: _containers.ScalarMap[str, int]
    format: int
    def __init__(self, onager_version: _Optional[str] = ..., taken_ms: _Optional[int] = ..., source: _Optional[str] = ..., revision: _Optional[int] = ..., records: _Optional[_Mapping[str, int]] = ..., left_out: _Optional[_Mapping[str, int]] = ..., format: _Optional[int] = ...) -> None: ...

class StateRecord(_message.Message):
    __slots__ = ("keyspace", "key", "value")
    KEYSPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    keyspace: str
    key: str
    value: bytes
    def __init__(self, keyspace: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class StateBackup(_message.Message):
    __slots__ = ("header", "records")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    header: StateBackupHeader
    records: _containers.RepeatedCompositeFieldContainer[StateRecord]
    def __init__(self, header: _Optional[_Union[StateBackupHeader, _Mapping]] = ..., records: _Optional[_Iterable[_Union[StateRecord, _Mapping]]] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("since_ms", "until_ms", "action", "target", "principal", "limit", "cursor")
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    since_ms: int
    until_ms: int
    action: str
    target: str
    principal: str
    limit: int
    cursor: str
    def __init__(self, since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., action: _Optional[str] = ..., target: _Optional[str] = ..., principal: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries", "next")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next: str
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("at_ms", "principal", "address", "scheduler_id", "action", "target", "detail", "outcome")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    principal: str
    address: str
    scheduler_id: str
    action: str
    target: str
    detail: str
    outcome: str
    def __init__(self, at_ms: _Optional[int] = ..., principal: _Optional[str] = ..., address: _Optional[str] = ..., scheduler_id: _Optional[str] = ..., action: _Optional[str] = ..., target: _Optional[str] = ..., detail: _Optional[str] = ..., outcome: _Optional[str] = ...) -> None: ...

class TaskAttempt(_message.Message):
    __slots__ = ("partition", "task_attempt", "alone")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TASK_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    task_attempt: int
    alone: bool
    def __init__(self, partition: _Optional[int] = ..., task_attempt: _Optional[int] = ..., alone: _Optional[bool] = ...) -> None: ...

class TaskOutput(_message.Message):
    __slots__ = ("nonce", "executor_id", "shared", "rows", "bytes", "inline", "files", "payload_digest", "checksum")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    executor_id: str
    shared: bool
    rows: int
    bytes: int
    inline: bool
    files: _containers.RepeatedScalarFieldContainer[str]
    payload_digest: str
    checksum: str
    def __init__(self, nonce: _Optional[str] = ..., executor_id: _Optional[str] = ..., shared: _Optional[bool] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., inline: _Optional[bool] = ..., files: _Optional[_Iterable[str]] = ..., payload_digest: _Optional[str] = ..., checksum: _Optional[str] = ...) -> None: ...

class StageInputLocations(_message.Message):
    __slots__ = ("stage_id", "outputs", "job_id", "of_stage_id")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OF_STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    outputs: _containers.RepeatedCompositeFieldContainer[TaskOutput]
    job_id: str
    of_stage_id: int
    def __init__(self, stage_id: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[TaskOutput, _Mapping]]] = ..., job_id: _Optional[str] = ..., of_stage_id: _Optional[int] = ...) -> None: ...

class OutputLayout(_message.Message):
    __slots__ = ("kind", "buckets")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    buckets: int
    def __init__(self, kind: _Optional[str] = ..., buckets: _Optional[int] = ...) -> None: ...

class TaskSet(_message.Message):
    __slots__ = ("job_id", "stage_id", "stage_attempt", "work", "spec_digest", "plan_digest", "partitions", "tasks", "inputs", "output", "sink", "cluster_slots", "reply_to", "streaming", "streams", "inputs_digest", "fused", "reads", "replan", "portion", "may_grow", "may_step", "may_reuse")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SLOTS_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FUSED_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    REPLAN_FIELD_NUMBER: _ClassVar[int]
    PORTION_FIELD_NUMBER: _ClassVar[int]
    MAY_GROW_FIELD_NUMBER: _ClassVar[int]
    MAY_STEP_FIELD_NUMBER: _ClassVar[int]
    MAY_REUSE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    stage_attempt: int
    work: Work
    spec_digest: str
    plan_digest: str
    partitions: int
    tasks: _containers.RepeatedCompositeFieldContainer[TaskAttempt]
    inputs: _containers.RepeatedCompositeFieldContainer[StageInputLocations]
    output: OutputLayout
    sink: Sink
    cluster_slots: int
    reply_to: str
    streaming: bool
    streams: _containers.RepeatedCompositeFieldContainer[StreamedInput]
    inputs_digest: str
    fused: _containers.RepeatedCompositeFieldContainer[FusedStage]
    reads: _containers.RepeatedCompositeFieldContainer[TaskRead]
    replan: ReplanTask
    portion: StagePortion
    may_grow: bool
    may_step: bool
    may_reuse: bool
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ..., stage_attempt: _Optional[int] = ..., work: _Optional[_Union[Work, str]] = ..., spec_digest: _Optional[str] = ..., plan_digest: _Optional[str] = ..., partitions: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskAttempt, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[StageInputLocations, _Mapping]]] = ..., output: _Optional[_Union[OutputLayout, _Mapping]] = ..., sink: _Optional[_Union[Sink, _Mapping]] = ..., cluster_slots: _Optional[int] = ..., reply_to: _Optional[str] = ..., streaming: _Optional[bool] = ..., streams: _Optional[_Iterable[_Union[StreamedInput, _Mapping]]] = ..., inputs_digest: _Optional[str] = ..., fused: _Optional[_Iterable[_Union[FusedStage, _Mapping]]] = ..., reads: _Optional[_Iterable[_Union[TaskRead, _Mapping]]] = ..., replan: _Optional[_Union[ReplanTask, _Mapping]] = ..., portion: _Optional[_Union[StagePortion, _Mapping]] = ..., may_grow: _Optional[bool] = ..., may_step: _Optional[bool] = ..., may_reuse: _Optional[bool] = ...) -> None: ...

class ReplanTask(_message.Message):
    __slots__ = ("frame_digest", "begun", "first_stage_id", "falsify")
    FRAME_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    FIRST_STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FALSIFY_FIELD_NUMBER: _ClassVar[int]
    frame_digest: str
    begun: _containers.RepeatedCompositeFieldContainer[BegunStage]
    first_stage_id: int
    falsify: str
    def __init__(self, frame_digest: _Optional[str] = ..., begun: _Optional[_Iterable[_Union[BegunStage, _Mapping]]] = ..., first_stage_id: _Optional[int] = ..., falsify: _Optional[str] = ...) -> None: ...

class BegunStage(_message.Message):
    __slots__ = ("stage_id", "finished", "repeatable", "rows", "bytes", "tasks", "buckets")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    finished: bool
    repeatable: bool
    rows: int
    bytes: int
    tasks: int
    buckets: int
    def __init__(self, stage_id: _Optional[int] = ..., finished: _Optional[bool] = ..., repeatable: _Optional[bool] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., tasks: _Optional[int] = ..., buckets: _Optional[int] = ...) -> None: ...

class FusedStage(_message.Message):
    __slots__ = ("stage_id", "plan_digest")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    plan_digest: str
    def __init__(self, stage_id: _Optional[int] = ..., plan_digest: _Optional[str] = ...) -> None: ...

class TaskRead(_message.Message):
    __slots__ = ("first_bucket", "end_bucket", "split_stage_id", "first_producer", "end_producer")
    FIRST_BUCKET_FIELD_NUMBER: _ClassVar[int]
    END_BUCKET_FIELD_NUMBER: _ClassVar[int]
    SPLIT_STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    END_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    first_bucket: int
    end_bucket: int
    split_stage_id: int
    first_producer: int
    end_producer: int
    def __init__(self, first_bucket: _Optional[int] = ..., end_bucket: _Optional[int] = ..., split_stage_id: _Optional[int] = ..., first_producer: _Optional[int] = ..., end_producer: _Optional[int] = ...) -> None: ...

class StreamedInput(_message.Message):
    __slots__ = ("stage_id", "stage_attempt", "tasks")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    stage_attempt: int
    tasks: _containers.RepeatedCompositeFieldContainer[StreamedTask]
    def __init__(self, stage_id: _Optional[int] = ..., stage_attempt: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[StreamedTask, _Mapping]]] = ...) -> None: ...

class StreamedTask(_message.Message):
    __slots__ = ("task_attempt", "address")
    TASK_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    task_attempt: int
    address: str
    def __init__(self, task_attempt: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class StagePortion(_message.Message):
    __slots__ = ("digest", "first_partition", "partitions")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    first_partition: int
    partitions: int
    def __init__(self, digest: _Optional[str] = ..., first_partition: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class TaskId(_message.Message):
    __slots__ = ("job_id", "stage_id", "stage_attempt", "partition", "task_attempt")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TASK_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    stage_attempt: int
    partition: int
    task_attempt: int
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ..., stage_attempt: _Optional[int] = ..., partition: _Optional[int] = ..., task_attempt: _Optional[int] = ...) -> None: ...

class StageInput(_message.Message):
    __slots__ = ("stage_id", "read", "may_split", "side")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    MAY_SPLIT_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    read: str
    may_split: bool
    side: str
    def __init__(self, stage_id: _Optional[int] = ..., read: _Optional[str] = ..., may_split: _Optional[bool] = ..., side: _Optional[str] = ...) -> None: ...

class PlannedStage(_message.Message):
    __slots__ = ("stage_id", "name", "work", "plan_digest", "partitions", "inputs", "output", "deterministic", "plan", "leaf_bytes", "may_fuse", "may_merge", "feed_stage_id", "portions", "fingerprint")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    LEAF_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAY_FUSE_FIELD_NUMBER: _ClassVar[int]
    MAY_MERGE_FIELD_NUMBER: _ClassVar[int]
    FEED_STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PORTIONS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    name: str
    work: Work
    plan_digest: str
    partitions: int
    inputs: _containers.RepeatedCompositeFieldContainer[StageInput]
    output: OutputLayout
    deterministic: bool
    plan: str
    leaf_bytes: int
    may_fuse: bool
    may_merge: bool
    feed_stage_id: int
    portions: _containers.RepeatedCompositeFieldContainer[StagePortion]
    fingerprint: str
    def __init__(self, stage_id: _Optional[int] = ..., name: _Optional[str] = ..., work: _Optional[_Union[Work, str]] = ..., plan_digest: _Optional[str] = ..., partitions: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[StageInput, _Mapping]]] = ..., output: _Optional[_Union[OutputLayout, _Mapping]] = ..., deterministic: _Optional[bool] = ..., plan: _Optional[str] = ..., leaf_bytes: _Optional[int] = ..., may_fuse: _Optional[bool] = ..., may_merge: _Optional[bool] = ..., feed_stage_id: _Optional[int] = ..., portions: _Optional[_Iterable[_Union[StagePortion, _Mapping]]] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("digest", "content")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    digest: str
    content: bytes
    def __init__(self, digest: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class StageEstimate(_message.Message):
    __slots__ = ("stage_id", "rows")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    stage_id: int
    rows: int
    def __init__(self, stage_id: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class PlanOutcome(_message.Message):
    __slots__ = ("stages", "arrow_schema", "schema_json", "plan", "blobs", "sink", "fused_output", "fused_metrics", "fused_inline_result", "fused_op_metrics", "fused_bound_plan", "estimates", "frame_digest", "broadcast_bytes", "decisions", "catalog", "fused_observed")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    ARROW_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    FUSED_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    FUSED_METRICS_FIELD_NUMBER: _ClassVar[int]
    FUSED_INLINE_RESULT_FIELD_NUMBER: _ClassVar[int]
    FUSED_OP_METRICS_FIELD_NUMBER: _ClassVar[int]
    FUSED_BOUND_PLAN_FIELD_NUMBER: _ClassVar[int]
    ESTIMATES_FIELD_NUMBER: _ClassVar[int]
    FRAME_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    FUSED_OBSERVED_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedCompositeFieldContainer[PlannedStage]
    arrow_schema: bytes
    schema_json: str
    plan: str
    blobs: _containers.RepeatedCompositeFieldContainer[Blob]
    sink: Sink
    fused_output: TaskOutput
    fused_metrics: TaskMetrics
    fused_inline_result: bytes
    fused_op_metrics: bytes
    fused_bound_plan: str
    estimates: _containers.RepeatedCompositeFieldContainer[StageEstimate]
    frame_digest: str
    broadcast_bytes: int
    decisions: _containers.RepeatedScalarFieldContainer[str]
    catalog: CatalogChanges
    fused_observed: bytes
    def __init__(self, stages: _Optional[_Iterable[_Union[PlannedStage, _Mapping]]] = ..., arrow_schema: _Optional[bytes] = ..., schema_json: _Optional[str] = ..., plan: _Optional[str] = ..., blobs: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ..., sink: _Optional[_Union[Sink, _Mapping]] = ..., fused_output: _Optional[_Union[TaskOutput, _Mapping]] = ..., fused_metrics: _Optional[_Union[TaskMetrics, _Mapping]] = ..., fused_inline_result: _Optional[bytes] = ..., fused_op_metrics: _Optional[bytes] = ..., fused_bound_plan: _Optional[str] = ..., estimates: _Optional[_Iterable[_Union[StageEstimate, _Mapping]]] = ..., frame_digest: _Optional[str] = ..., broadcast_bytes: _Optional[int] = ..., decisions: _Optional[_Iterable[str]] = ..., catalog: _Optional[_Union[CatalogChanges, _Mapping]] = ..., fused_observed: _Optional[bytes] = ...) -> None: ...

class CatalogChanges(_message.Message):
    __slots__ = ("puts", "partitions", "reads", "folders_made", "folders_retired")
    PUTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_MADE_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_RETIRED_FIELD_NUMBER: _ClassVar[int]
    puts: _containers.RepeatedCompositeFieldContainer[CatalogPut]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    reads: _containers.RepeatedCompositeFieldContainer[CatalogRecord]
    folders_made: _containers.RepeatedScalarFieldContainer[str]
    folders_retired: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, puts: _Optional[_Iterable[_Union[CatalogPut, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ..., reads: _Optional[_Iterable[_Union[CatalogRecord, _Mapping]]] = ..., folders_made: _Optional[_Iterable[str]] = ..., folders_retired: _Optional[_Iterable[str]] = ...) -> None: ...

class CatalogPut(_message.Message):
    __slots__ = ("key", "value", "expected_revision", "removed_pages_of")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_PAGES_OF_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    expected_revision: int
    removed_pages_of: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., expected_revision: _Optional[int] = ..., removed_pages_of: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionChange(_message.Message):
    __slots__ = ("key", "table_id", "location", "set", "expected", "stale_stats", "template", "seen")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ExpectedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    STALE_STATS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    key: str
    table_id: str
    location: str
    set: _containers.ScalarMap[str, str]
    expected: _containers.ScalarMap[str, str]
    stale_stats: bool
    template: str
    seen: int
    def __init__(self, key: _Optional[str] = ..., table_id: _Optional[str] = ..., location: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., expected: _Optional[_Mapping[str, str]] = ..., stale_stats: _Optional[bool] = ..., template: _Optional[str] = ..., seen: _Optional[int] = ...) -> None: ...

class CatalogRecord(_message.Message):
    __slots__ = ("key", "value", "revision")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    revision: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., revision: _Optional[int] = ...) -> None: ...

class ReadCatalogRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "keys", "prefixes", "keys_only", "start_after")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    START_AFTER_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    prefixes: _containers.RepeatedScalarFieldContainer[str]
    keys_only: bool
    start_after: str
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., prefixes: _Optional[_Iterable[str]] = ..., keys_only: _Optional[bool] = ..., start_after: _Optional[str] = ...) -> None: ...

class ReadCatalogResponse(_message.Message):
    __slots__ = ("records", "revision", "truncated")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[CatalogRecord]
    revision: int
    truncated: bool
    def __init__(self, records: _Optional[_Iterable[_Union[CatalogRecord, _Mapping]]] = ..., revision: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class TaskSuccess(_message.Message):
    __slots__ = ("output", "metrics", "inline_result", "plan", "blobs", "op_metrics", "bound_plan", "bucket_sizes", "feed")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INLINE_RESULT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    OP_METRICS_FIELD_NUMBER: _ClassVar[int]
    BOUND_PLAN_FIELD_NUMBER: _ClassVar[int]
    BUCKET_SIZES_FIELD_NUMBER: _ClassVar[int]
    FEED_FIELD_NUMBER: _ClassVar[int]
    output: TaskOutput
    metrics: TaskMetrics
    inline_result: bytes
    plan: PlanOutcome
    blobs: _containers.RepeatedCompositeFieldContainer[Blob]
    op_metrics: bytes
    bound_plan: str
    bucket_sizes: bytes
    feed: FeedOutcome
    def __init__(self, output: _Optional[_Union[TaskOutput, _Mapping]] = ..., metrics: _Optional[_Union[TaskMetrics, _Mapping]] = ..., inline_result: _Optional[bytes] = ..., plan: _Optional[_Union[PlanOutcome, _Mapping]] = ..., blobs: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ..., op_metrics: _Optional[bytes] = ..., bound_plan: _Optional[str] = ..., bucket_sizes: _Optional[bytes] = ..., feed: _Optional[_Union[FeedOutcome, _Mapping]] = ...) -> None: ...

class FeedOutcome(_message.Message):
    __slots__ = ("added", "ended")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    added: int
    ended: bool
    def __init__(self, added: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("task", "started_ms", "ended_ms", "success", "failure", "failed_metrics", "needs")
    TASK_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAILED_METRICS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    started_ms: int
    ended_ms: int
    success: TaskSuccess
    failure: Failure
    failed_metrics: TaskMetrics
    needs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., success: _Optional[_Union[TaskSuccess, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., failed_metrics: _Optional[_Union[TaskMetrics, _Mapping]] = ..., needs: _Optional[_Iterable[str]] = ...) -> None: ...

class CleanUp(_message.Message):
    __slots__ = ("job_id", "keep_result", "keep_files", "sink", "dead_writers", "memory_only", "folders", "take_back")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_RESULT_FIELD_NUMBER: _ClassVar[int]
    KEEP_FILES_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    DEAD_WRITERS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ONLY_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    TAKE_BACK_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    keep_result: bool
    keep_files: _containers.RepeatedScalarFieldContainer[str]
    sink: Sink
    dead_writers: _containers.RepeatedScalarFieldContainer[str]
    memory_only: bool
    folders: _containers.RepeatedScalarFieldContainer[str]
    take_back: bool
    def __init__(self, job_id: _Optional[str] = ..., keep_result: _Optional[bool] = ..., keep_files: _Optional[_Iterable[str]] = ..., sink: _Optional[_Union[Sink, _Mapping]] = ..., dead_writers: _Optional[_Iterable[str]] = ..., memory_only: _Optional[bool] = ..., folders: _Optional[_Iterable[str]] = ..., take_back: _Optional[bool] = ...) -> None: ...

class ExchangeUse(_message.Message):
    __slots__ = ("bytes", "files", "free_bytes", "total_bytes", "looked_ms")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOOKED_MS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    files: int
    free_bytes: int
    total_bytes: int
    looked_ms: int
    def __init__(self, bytes: _Optional[int] = ..., files: _Optional[int] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., looked_ms: _Optional[int] = ...) -> None: ...

class ExchangeFiles(_message.Message):
    __slots__ = ("job_id", "writers")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    writers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., writers: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterExecutorRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "host", "pid", "slots", "protocol_version", "spark_version", "python_version", "exchange_dir", "running", "mode", "address", "stream_address", "features", "machine", "places", "runs_programs")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARK_VERSION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_DIR_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    RUNS_PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    host: str
    pid: int
    slots: int
    protocol_version: int
    spark_version: str
    python_version: str
    exchange_dir: str
    running: _containers.RepeatedCompositeFieldContainer[TaskId]
    mode: str
    address: str
    stream_address: str
    features: _containers.RepeatedScalarFieldContainer[str]
    machine: str
    places: _containers.RepeatedCompositeFieldContainer[PlaceView]
    runs_programs: bool
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., slots: _Optional[int] = ..., protocol_version: _Optional[int] = ..., spark_version: _Optional[str] = ..., python_version: _Optional[str] = ..., exchange_dir: _Optional[str] = ..., running: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., mode: _Optional[str] = ..., address: _Optional[str] = ..., stream_address: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., machine: _Optional[str] = ..., places: _Optional[_Iterable[_Union[PlaceView, _Mapping]]] = ..., runs_programs: _Optional[bool] = ...) -> None: ...

class PlaceView(_message.Message):
    __slots__ = ("name", "path", "id", "generation", "mark", "problem", "wanted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    id: str
    generation: int
    mark: str
    problem: str
    wanted: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., id: _Optional[str] = ..., generation: _Optional[int] = ..., mark: _Optional[str] = ..., problem: _Optional[str] = ..., wanted: _Optional[str] = ...) -> None: ...

class PlaceMark(_message.Message):
    __slots__ = ("place", "mark", "seen")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    place: str
    mark: str
    seen: bool
    def __init__(self, place: _Optional[str] = ..., mark: _Optional[str] = ..., seen: _Optional[bool] = ...) -> None: ...

class PlaceVerdict(_message.Message):
    __slots__ = ("name", "id", "admitted", "why", "new_id", "generation", "mark")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    NEW_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    admitted: bool
    why: str
    new_id: str
    generation: int
    mark: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., admitted: _Optional[bool] = ..., why: _Optional[str] = ..., new_id: _Optional[str] = ..., generation: _Optional[int] = ..., mark: _Optional[str] = ...) -> None: ...

class RegisterExecutorResponse(_message.Message):
    __slots__ = ("scheduler_id", "lease_ttl_ms", "places")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    lease_ttl_ms: int
    places: _containers.RepeatedCompositeFieldContainer[PlaceVerdict]
    def __init__(self, scheduler_id: _Optional[str] = ..., lease_ttl_ms: _Optional[int] = ..., places: _Optional[_Iterable[_Union[PlaceVerdict, _Mapping]]] = ...) -> None: ...

class Quarantine(_message.Message):
    __slots__ = ("until_ms", "reason")
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    until_ms: int
    reason: str
    def __init__(self, until_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ExecutorLoad(_message.Message):
    __slots__ = ("heap_used_bytes", "heap_max_bytes", "rss_bytes", "cpu_percent", "gc_ms", "python_workers", "running", "free_slots")
    HEAP_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEAP_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    GC_MS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_WORKERS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    heap_used_bytes: int
    heap_max_bytes: int
    rss_bytes: int
    cpu_percent: int
    gc_ms: int
    python_workers: int
    running: int
    free_slots: int
    def __init__(self, heap_used_bytes: _Optional[int] = ..., heap_max_bytes: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., cpu_percent: _Optional[int] = ..., gc_ms: _Optional[int] = ..., python_workers: _Optional[int] = ..., running: _Optional[int] = ..., free_slots: _Optional[int] = ...) -> None: ...

class AttemptProgress(_message.Message):
    __slots__ = ("task", "rows_read", "bytes_read", "permille")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    task: TaskId
    rows_read: int
    bytes_read: int
    permille: int
    def __init__(self, task: _Optional[_Union[TaskId, _Mapping]] = ..., rows_read: _Optional[int] = ..., bytes_read: _Optional[int] = ..., permille: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "draining", "running", "cleaned_up", "exchange", "exchange_files", "kept_jobs", "no_space", "load", "progress", "places", "looked_for")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    CLEANED_UP_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FILES_FIELD_NUMBER: _ClassVar[int]
    KEPT_JOBS_FIELD_NUMBER: _ClassVar[int]
    NO_SPACE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FOR_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    draining: bool
    running: _containers.RepeatedCompositeFieldContainer[TaskId]
    cleaned_up: _containers.RepeatedScalarFieldContainer[str]
    exchange: ExchangeUse
    exchange_files: _containers.RepeatedCompositeFieldContainer[ExchangeFiles]
    kept_jobs: _containers.RepeatedScalarFieldContainer[str]
    no_space: str
    load: ExecutorLoad
    progress: _containers.RepeatedCompositeFieldContainer[AttemptProgress]
    places: _containers.RepeatedCompositeFieldContainer[PlaceView]
    looked_for: _containers.RepeatedCompositeFieldContainer[PlaceMark]
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., draining: _Optional[bool] = ..., running: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., cleaned_up: _Optional[_Iterable[str]] = ..., exchange: _Optional[_Union[ExchangeUse, _Mapping]] = ..., exchange_files: _Optional[_Iterable[_Union[ExchangeFiles, _Mapping]]] = ..., kept_jobs: _Optional[_Iterable[str]] = ..., no_space: _Optional[str] = ..., load: _Optional[_Union[ExecutorLoad, _Mapping]] = ..., progress: _Optional[_Iterable[_Union[AttemptProgress, _Mapping]]] = ..., places: _Optional[_Iterable[_Union[PlaceView, _Mapping]]] = ..., looked_for: _Optional[_Iterable[_Union[PlaceMark, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("cancel", "clean_ups", "tell_again", "connect_at", "places", "look_for", "quarantine")
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CLEAN_UPS_FIELD_NUMBER: _ClassVar[int]
    TELL_AGAIN_FIELD_NUMBER: _ClassVar[int]
    CONNECT_AT_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    LOOK_FOR_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    cancel: _containers.RepeatedCompositeFieldContainer[TaskId]
    clean_ups: _containers.RepeatedCompositeFieldContainer[CleanUp]
    tell_again: _containers.RepeatedScalarFieldContainer[str]
    connect_at: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedCompositeFieldContainer[PlaceVerdict]
    look_for: _containers.RepeatedCompositeFieldContainer[PlaceMark]
    quarantine: Quarantine
    def __init__(self, cancel: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., clean_ups: _Optional[_Iterable[_Union[CleanUp, _Mapping]]] = ..., tell_again: _Optional[_Iterable[str]] = ..., connect_at: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[_Union[PlaceVerdict, _Mapping]]] = ..., look_for: _Optional[_Iterable[_Union[PlaceMark, _Mapping]]] = ..., quarantine: _Optional[_Union[Quarantine, _Mapping]] = ...) -> None: ...

class PollWorkRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "free_slots", "list_number", "running", "wait_ms", "cleaned_up")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CLEANED_UP_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    free_slots: int
    list_number: int
    running: _containers.RepeatedCompositeFieldContainer[TaskId]
    wait_ms: int
    cleaned_up: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., free_slots: _Optional[int] = ..., list_number: _Optional[int] = ..., running: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., wait_ms: _Optional[int] = ..., cleaned_up: _Optional[_Iterable[str]] = ...) -> None: ...

class PollWorkResponse(_message.Message):
    __slots__ = ("task_sets", "cancel", "clean_ups", "blobs", "will_call", "quarantine")
    TASK_SETS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CLEAN_UPS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    WILL_CALL_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    task_sets: _containers.RepeatedCompositeFieldContainer[TaskSet]
    cancel: _containers.RepeatedCompositeFieldContainer[TaskId]
    clean_ups: _containers.RepeatedCompositeFieldContainer[CleanUp]
    blobs: _containers.RepeatedCompositeFieldContainer[Blob]
    will_call: bool
    quarantine: Quarantine
    def __init__(self, task_sets: _Optional[_Iterable[_Union[TaskSet, _Mapping]]] = ..., cancel: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., clean_ups: _Optional[_Iterable[_Union[CleanUp, _Mapping]]] = ..., blobs: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ..., will_call: _Optional[bool] = ..., quarantine: _Optional[_Union[Quarantine, _Mapping]] = ...) -> None: ...

class ReportTasksRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "reports", "freed_slots", "list_number")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    FREED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    freed_slots: int
    list_number: int
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ..., freed_slots: _Optional[int] = ..., list_number: _Optional[int] = ...) -> None: ...

class ReportTasksResponse(_message.Message):
    __slots__ = ("acknowledged", "task_sets", "cancel", "credited_slots", "blobs")
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    TASK_SETS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CREDITED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    acknowledged: _containers.RepeatedCompositeFieldContainer[TaskId]
    task_sets: _containers.RepeatedCompositeFieldContainer[TaskSet]
    cancel: _containers.RepeatedCompositeFieldContainer[TaskId]
    credited_slots: int
    blobs: _containers.RepeatedCompositeFieldContainer[Blob]
    def __init__(self, acknowledged: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., task_sets: _Optional[_Iterable[_Union[TaskSet, _Mapping]]] = ..., cancel: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., credited_slots: _Optional[int] = ..., blobs: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ...) -> None: ...

class FetchBlobRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class BlobChunk(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class AwaitRequestsRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "wait_ms", "connect", "draining", "answers")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    wait_ms: int
    connect: bool
    draining: bool
    answers: _containers.RepeatedCompositeFieldContainer[RequestAnswer]
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., wait_ms: _Optional[int] = ..., connect: _Optional[bool] = ..., draining: _Optional[bool] = ..., answers: _Optional[_Iterable[_Union[RequestAnswer, _Mapping]]] = ...) -> None: ...

class AwaitRequestsResponse(_message.Message):
    __slots__ = ("requests", "drain")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[ExecutorRequest]
    drain: bool
    def __init__(self, requests: _Optional[_Iterable[_Union[ExecutorRequest, _Mapping]]] = ..., drain: _Optional[bool] = ...) -> None: ...

class ExecutorRequest(_message.Message):
    __slots__ = ("number", "logs", "connect")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    number: int
    logs: LogsAsk
    connect: ConnectCall
    def __init__(self, number: _Optional[int] = ..., logs: _Optional[_Union[LogsAsk, _Mapping]] = ..., connect: _Optional[_Union[ConnectCall, _Mapping]] = ...) -> None: ...

class RequestAnswer(_message.Message):
    __slots__ = ("number", "logs", "connect")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    number: int
    logs: LogsAnswer
    connect: ConnectReply
    def __init__(self, number: _Optional[int] = ..., logs: _Optional[_Union[LogsAnswer, _Mapping]] = ..., connect: _Optional[_Union[ConnectReply, _Mapping]] = ...) -> None: ...

class LogsAsk(_message.Message):
    __slots__ = ("job_id", "stage_id", "partition", "attempt", "tail_bytes", "after")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    stage_id: int
    partition: int
    attempt: int
    tail_bytes: int
    after: _containers.RepeatedCompositeFieldContainer[LogPosition]
    def __init__(self, job_id: _Optional[str] = ..., stage_id: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., after: _Optional[_Iterable[_Union[LogPosition, _Mapping]]] = ...) -> None: ...

class LogsAnswer(_message.Message):
    __slots__ = ("logs", "left_out")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedCompositeFieldContainer[AttemptLog]
    left_out: int
    def __init__(self, logs: _Optional[_Iterable[_Union[AttemptLog, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class DeregisterExecutorRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "reason", "death")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEATH_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    reason: str
    death: JvmDeath
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., reason: _Optional[str] = ..., death: _Optional[_Union[JvmDeath, _Mapping]] = ...) -> None: ...

class JvmDeath(_message.Message):
    __slots__ = ("memory", "alone", "running")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    memory: bool
    alone: bool
    running: _containers.RepeatedCompositeFieldContainer[TaskId]
    def __init__(self, memory: _Optional[bool] = ..., alone: _Optional[bool] = ..., running: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ...) -> None: ...

class DeregisterExecutorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AnswerPollRequest(_message.Message):
    __slots__ = ("executor_id", "incarnation", "list_number", "answer")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    list_number: int
    answer: PollWorkResponse
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., list_number: _Optional[int] = ..., answer: _Optional[_Union[PollWorkResponse, _Mapping]] = ...) -> None: ...

class AnswerPollResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobLoad(_message.Message):
    __slots__ = ("job_id", "running", "available", "log_seq", "head_revision")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_REVISION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    running: int
    available: int
    log_seq: int
    head_revision: int
    def __init__(self, job_id: _Optional[str] = ..., running: _Optional[int] = ..., available: _Optional[int] = ..., log_seq: _Optional[int] = ..., head_revision: _Optional[int] = ...) -> None: ...

class ForwardedSlots(_message.Message):
    __slots__ = ("job_id", "executor_id", "incarnation", "list_number", "slots", "empty")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    executor_id: str
    incarnation: str
    list_number: int
    slots: int
    empty: bool
    def __init__(self, job_id: _Optional[str] = ..., executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., list_number: _Optional[int] = ..., slots: _Optional[int] = ..., empty: _Optional[bool] = ...) -> None: ...

class FilledSlots(_message.Message):
    __slots__ = ("task_sets", "failed")
    TASK_SETS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    task_sets: _containers.RepeatedCompositeFieldContainer[TaskSet]
    failed: bool
    def __init__(self, task_sets: _Optional[_Iterable[_Union[TaskSet, _Mapping]]] = ..., failed: _Optional[bool] = ...) -> None: ...

class ForwardedReports(_message.Message):
    __slots__ = ("executor_id", "incarnation", "list_number", "reports", "freed_slots", "empty")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    FREED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    list_number: int
    reports: _containers.RepeatedCompositeFieldContainer[TaskReport]
    freed_slots: int
    empty: bool
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., list_number: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[TaskReport, _Mapping]]] = ..., freed_slots: _Optional[int] = ..., empty: _Optional[bool] = ...) -> None: ...

class AppliedReports(_message.Message):
    __slots__ = ("acknowledged", "task_sets", "all_acknowledged")
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    TASK_SETS_FIELD_NUMBER: _ClassVar[int]
    ALL_ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    acknowledged: _containers.RepeatedCompositeFieldContainer[TaskId]
    task_sets: _containers.RepeatedCompositeFieldContainer[TaskSet]
    all_acknowledged: bool
    def __init__(self, acknowledged: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., task_sets: _Optional[_Iterable[_Union[TaskSet, _Mapping]]] = ..., all_acknowledged: _Optional[bool] = ...) -> None: ...

class ForwardedList(_message.Message):
    __slots__ = ("executor_id", "incarnation", "list_number", "held", "disproves")
    EXECUTOR_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LIST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    DISPROVES_FIELD_NUMBER: _ClassVar[int]
    executor_id: str
    incarnation: str
    list_number: int
    held: _containers.RepeatedCompositeFieldContainer[TaskId]
    disproves: bool
    def __init__(self, executor_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., list_number: _Optional[int] = ..., held: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ..., disproves: _Optional[bool] = ...) -> None: ...

class ComparedList(_message.Message):
    __slots__ = ("task_sets", "cancel")
    TASK_SETS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    task_sets: _containers.RepeatedCompositeFieldContainer[TaskSet]
    cancel: _containers.RepeatedCompositeFieldContainer[TaskId]
    def __init__(self, task_sets: _Optional[_Iterable[_Union[TaskSet, _Mapping]]] = ..., cancel: _Optional[_Iterable[_Union[TaskId, _Mapping]]] = ...) -> None: ...

class WatchedJob(_message.Message):
    __slots__ = ("job_id", "log_seq", "progress")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQ_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    log_seq: int
    progress: JobProgress
    def __init__(self, job_id: _Optional[str] = ..., log_seq: _Optional[int] = ..., progress: _Optional[_Union[JobProgress, _Mapping]] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("scheduler_id", "loads", "reports", "slots", "lists", "known_change", "watched", "progress")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_CHANGE_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    loads: _containers.RepeatedCompositeFieldContainer[JobLoad]
    reports: _containers.RepeatedCompositeFieldContainer[ForwardedReports]
    slots: _containers.RepeatedCompositeFieldContainer[ForwardedSlots]
    lists: _containers.RepeatedCompositeFieldContainer[ForwardedList]
    known_change: int
    watched: _containers.RepeatedCompositeFieldContainer[WatchedJob]
    progress: _containers.RepeatedCompositeFieldContainer[AttemptProgress]
    def __init__(self, scheduler_id: _Optional[str] = ..., loads: _Optional[_Iterable[_Union[JobLoad, _Mapping]]] = ..., reports: _Optional[_Iterable[_Union[ForwardedReports, _Mapping]]] = ..., slots: _Optional[_Iterable[_Union[ForwardedSlots, _Mapping]]] = ..., lists: _Optional[_Iterable[_Union[ForwardedList, _Mapping]]] = ..., known_change: _Optional[int] = ..., watched: _Optional[_Iterable[_Union[WatchedJob, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[AttemptProgress, _Mapping]]] = ...) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("loads", "reports", "slots", "lists", "change", "watched")
    LOADS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    loads: _containers.RepeatedCompositeFieldContainer[JobLoad]
    reports: _containers.RepeatedCompositeFieldContainer[AppliedReports]
    slots: _containers.RepeatedCompositeFieldContainer[FilledSlots]
    lists: _containers.RepeatedCompositeFieldContainer[ComparedList]
    change: int
    watched: _containers.RepeatedCompositeFieldContainer[WatchedJob]
    def __init__(self, loads: _Optional[_Iterable[_Union[JobLoad, _Mapping]]] = ..., reports: _Optional[_Iterable[_Union[AppliedReports, _Mapping]]] = ..., slots: _Optional[_Iterable[_Union[FilledSlots, _Mapping]]] = ..., lists: _Optional[_Iterable[_Union[ComparedList, _Mapping]]] = ..., change: _Optional[int] = ..., watched: _Optional[_Iterable[_Union[WatchedJob, _Mapping]]] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("wait_ms",)
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    wait_ms: int
    def __init__(self, wait_ms: _Optional[int] = ...) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("scheduler_id", "incarnation", "leaving", "now_ms", "machine_ms")
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_MS_FIELD_NUMBER: _ClassVar[int]
    scheduler_id: str
    incarnation: str
    leaving: bool
    now_ms: int
    machine_ms: int
    def __init__(self, scheduler_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., leaving: _Optional[bool] = ..., now_ms: _Optional[int] = ..., machine_ms: _Optional[int] = ...) -> None: ...

class AskExecutorsRequest(_message.Message):
    __slots__ = ("ask", "wait_ms", "executor_ids")
    ASK_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_IDS_FIELD_NUMBER: _ClassVar[int]
    ask: LogsAsk
    wait_ms: int
    executor_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ask: _Optional[_Union[LogsAsk, _Mapping]] = ..., wait_ms: _Optional[int] = ..., executor_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AskExecutorsResponse(_message.Message):
    __slots__ = ("logs", "answered", "left_out")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedCompositeFieldContainer[AttemptLog]
    answered: _containers.RepeatedScalarFieldContainer[str]
    left_out: int
    def __init__(self, logs: _Optional[_Iterable[_Union[AttemptLog, _Mapping]]] = ..., answered: _Optional[_Iterable[str]] = ..., left_out: _Optional[int] = ...) -> None: ...

class ScriptSpec(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[ScriptStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[ScriptStep, _Mapping]]] = ...) -> None: ...

class ScriptStep(_message.Message):
    __slots__ = ("sql", "python", "name", "views", "conf", "py_files", "sink", "after")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SQL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    PY_FILES_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    sql: SqlScript
    python: PythonFunction
    name: str
    views: _containers.RepeatedCompositeFieldContainer[View]
    conf: _containers.ScalarMap[str, str]
    py_files: _containers.RepeatedCompositeFieldContainer[PyFile]
    sink: Sink
    after: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sql: _Optional[_Union[SqlScript, _Mapping]] = ..., python: _Optional[_Union[PythonFunction, _Mapping]] = ..., name: _Optional[str] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., conf: _Optional[_Mapping[str, str]] = ..., py_files: _Optional[_Iterable[_Union[PyFile, _Mapping]]] = ..., sink: _Optional[_Union[Sink, _Mapping]] = ..., after: _Optional[_Iterable[int]] = ...) -> None: ...

class SqlParameter(_message.Message):
    __slots__ = ("name", "type", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    value: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ConnectPlan(_message.Message):
    __slots__ = ("request", "session", "work")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    session: ConnectSession
    work: str
    def __init__(self, request: _Optional[bytes] = ..., session: _Optional[_Union[ConnectSession, _Mapping]] = ..., work: _Optional[str] = ...) -> None: ...

class ConnectSession(_message.Message):
    __slots__ = ("user", "session_id", "server_side_session_id", "revision", "conf", "catalog", "database", "entries", "artifacts")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    USER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_SIDE_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    user: str
    session_id: str
    server_side_session_id: str
    revision: int
    conf: _containers.ScalarMap[str, str]
    catalog: str
    database: str
    entries: _containers.RepeatedCompositeFieldContainer[ConnectEntry]
    artifacts: _containers.RepeatedCompositeFieldContainer[ConnectArtifact]
    def __init__(self, user: _Optional[str] = ..., session_id: _Optional[str] = ..., server_side_session_id: _Optional[str] = ..., revision: _Optional[int] = ..., conf: _Optional[_Mapping[str, str]] = ..., catalog: _Optional[str] = ..., database: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[ConnectEntry, _Mapping]]] = ..., artifacts: _Optional[_Iterable[_Union[ConnectArtifact, _Mapping]]] = ...) -> None: ...

class ConnectEntry(_message.Message):
    __slots__ = ("kind", "name", "command")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    command: bytes
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., command: _Optional[bytes] = ...) -> None: ...

class ConnectMade(_message.Message):
    __slots__ = ("command", "database", "conf", "reads", "drops", "name", "slots", "table")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    database: str
    conf: _containers.ScalarMap[str, str]
    reads: _containers.RepeatedScalarFieldContainer[str]
    drops: bool
    name: str
    slots: int
    table: str
    def __init__(self, command: _Optional[bytes] = ..., database: _Optional[str] = ..., conf: _Optional[_Mapping[str, str]] = ..., reads: _Optional[_Iterable[str]] = ..., drops: _Optional[bool] = ..., name: _Optional[str] = ..., slots: _Optional[int] = ..., table: _Optional[str] = ...) -> None: ...

class ConnectArtifact(_message.Message):
    __slots__ = ("name", "digest", "size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    size: int
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class ConnectCall(_message.Message):
    __slots__ = ("deadline_ms", "session", "analyze", "apply", "configure", "describe", "persist", "slots")
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ANALYZE_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    PERSIST_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    session: ConnectSession
    analyze: bytes
    apply: bytes
    configure: bytes
    describe: bool
    persist: bytes
    slots: int
    def __init__(self, deadline_ms: _Optional[int] = ..., session: _Optional[_Union[ConnectSession, _Mapping]] = ..., analyze: _Optional[bytes] = ..., apply: _Optional[bytes] = ..., configure: _Optional[bytes] = ..., describe: _Optional[bool] = ..., persist: _Optional[bytes] = ..., slots: _Optional[int] = ...) -> None: ...

class ConnectReply(_message.Message):
    __slots__ = ("analyzed", "applied", "job", "failure", "defaults")
    ANALYZED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    analyzed: bytes
    applied: ConnectApplied
    job: ConnectJob
    failure: ConnectFailure
    defaults: ConnectDefaults
    def __init__(self, analyzed: _Optional[bytes] = ..., applied: _Optional[_Union[ConnectApplied, _Mapping]] = ..., job: _Optional[_Union[ConnectJob, _Mapping]] = ..., failure: _Optional[_Union[ConnectFailure, _Mapping]] = ..., defaults: _Optional[_Union[ConnectDefaults, _Mapping]] = ...) -> None: ...

class ConnectApplied(_message.Message):
    __slots__ = ("responses", "changes", "put", "removed", "conf", "catalog", "database")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    CATALOG_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedScalarFieldContainer[bytes]
    changes: bool
    put: _containers.RepeatedCompositeFieldContainer[ConnectEntry]
    removed: _containers.RepeatedCompositeFieldContainer[ConnectEntry]
    conf: _containers.ScalarMap[str, str]
    catalog: str
    database: str
    def __init__(self, responses: _Optional[_Iterable[bytes]] = ..., changes: _Optional[bool] = ..., put: _Optional[_Iterable[_Union[ConnectEntry, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[ConnectEntry, _Mapping]]] = ..., conf: _Optional[_Mapping[str, str]] = ..., catalog: _Optional[str] = ..., database: _Optional[str] = ...) -> None: ...

class ConnectJob(_message.Message):
    __slots__ = ("work", "responses")
    WORK_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    work: str
    responses: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, work: _Optional[str] = ..., responses: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ConnectFailure(_message.Message):
    __slots__ = ("error_class", "sql_state", "message", "details", "is_passing")
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    SQL_STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    IS_PASSING_FIELD_NUMBER: _ClassVar[int]
    error_class: str
    sql_state: str
    message: str
    details: bytes
    is_passing: bool
    def __init__(self, error_class: _Optional[str] = ..., sql_state: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[bytes] = ..., is_passing: _Optional[bool] = ...) -> None: ...

class ConnectDefaults(_message.Message):
    __slots__ = ("spark_version", "conf", "fixed", "known", "set")
    class ConfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SPARK_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONF_FIELD_NUMBER: _ClassVar[int]
    FIXED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    spark_version: str
    conf: _containers.ScalarMap[str, str]
    fixed: _containers.RepeatedScalarFieldContainer[str]
    known: _containers.RepeatedScalarFieldContainer[str]
    set: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spark_version: _Optional[str] = ..., conf: _Optional[_Mapping[str, str]] = ..., fixed: _Optional[_Iterable[str]] = ..., known: _Optional[_Iterable[str]] = ..., set: _Optional[_Iterable[str]] = ...) -> None: ...
