"""Every metric of a scheduler: what is served, the reference, the alerts and the dashboard are made from this list.

No label holds an id of a job, a session or a user: their number has no bound.
"""

from collections.abc import Mapping
from typing import Final

from onager.metric import CALL_BUCKETS_S, WORK_BUCKETS_S, Metric, Whose, counter, gauge, histogram
from onager.state_backend import observed

# ---------------------------------------------------------------- jobs

JOBS: Final = gauge("onager_jobs", Whose.CLUSTER, "Jobs by state; ended ones until their record is removed.", "state")
JOBS_SUBMITTED: Final = counter("onager_jobs_submitted_total", "Jobs that were accepted, each once.")
JOBS_ENDED: Final = counter(
    "onager_jobs_ended_total",
    "Jobs that ended, by their last state, and failed ones by the kind of failure.",
    "state",
    "error_kind",
)
JOB_DURATION: Final = histogram(
    "onager_job_duration_seconds", "From a job's submission to its end, however it ended.", WORK_BUCKETS_S
)
SUBMIT_TO_FIRST_TASK: Final = histogram(
    "onager_submit_to_first_task_seconds",
    "From a job's submission until its first task, the planning, was given to an executor.",
    (*CALL_BUCKETS_S, 5.0, 10.0, 30.0, 60.0, 300.0),
)
PLANNING: Final = histogram(
    "onager_planning_seconds",
    "What planning took on its executor. Queries that ran at once where they were planned are not in it.",
    WORK_BUCKETS_S,
)
JOB_RECORDS_DAMAGED: Final = gauge(
    "onager_job_records_damaged", Whose.CLUSTER, "Jobs that are left alone because their record cannot be read."
)

# ---------------------------------------------------------------- tasks

TASKS: Final = gauge(
    "onager_tasks", Whose.CLUSTER, "Tasks of active jobs that executors hold, and that wait for a slot.", "state"
)
TASKS_ENDED: Final = counter(
    "onager_tasks_ended_total",
    "Attempts at tasks that ended, by the kind of work, and successful or by the kind of failure.",
    "work",
    "outcome",
)
TASK_RUN: Final = histogram(
    "onager_task_run_seconds", "What successful attempts at tasks took on their executors.", WORK_BUCKETS_S
)
TASKS_RETRIED: Final = counter(
    "onager_tasks_retried_total", "Attempts that failed or were lost and left their task to be tried again.", "kind"
)
FINISHED_TASKS_RERUN: Final = counter(
    "onager_finished_tasks_rerun_total", "Tasks that succeeded once more because their output was lost."
)
STAGE_ROLLBACKS: Final = counter(
    "onager_stage_rollbacks_total", "Attempts at stages that were begun anew because an input or output was lost."
)
STAGES_REUSED: Final = counter(
    "onager_stages_reused_total", "Stages that took the output of another job's stage instead of computing the same."
)
REUSED_BYTES: Final = counter("onager_reused_bytes_total", "Bytes of those outputs.")
REUSED_LOST: Final = counter(
    "onager_reused_stages_lost_total", "Such stages that were computed after all, because that output was lost."
)
EXCHANGE_IO: Final = counter(
    "onager_exchange_io_bytes_total", "Bytes of rows that tasks read from other stages, and wrote.", "direction"
)
SPILL: Final = counter("onager_spill_bytes_total", "Bytes that tasks spilled to disks of their executors.")
STREAMING_ABANDONED: Final = counter(
    "onager_streaming_abandoned_total", "Jobs that were to stream, and were run again over the durable exchange."
)

# ---------------------------------------------------------------- executors

EXECUTORS: Final = gauge(
    "onager_executors",
    Whose.CLUSTER,
    "Executors by what they do: alive, draining, quarantined, no_space, no_place; lost and left ones until they are "
    "forgotten.",
    "state",
    "mode",
)
EXECUTOR_SLOTS: Final = gauge(
    "onager_executor_slots",
    Whose.CLUSTER,
    "Slots of executors that take work, busy or free, and of living ones that take none (closed).",
    "state",
)
SLOTS_WANTED: Final = gauge(
    "onager_slots_wanted",
    Whose.CLUSTER,
    "Slots that active jobs could use: tasks that run, wait or are due soon, within the limits of sessions.",
)
EXECUTOR_LOST: Final = counter(
    "onager_executor_lost_total",
    "Lives of executors that ended: left after a drain; said_goodbye with tasks left; lease, connection, process or "
    "restarted where they said nothing.",
    "reason",
)
EXCHANGE_BYTES: Final = gauge(
    "onager_exchange_bytes",
    Whose.CLUSTER,
    "Bytes in the exchange directory, as each executor last saw it.",
    "executor_id",
)
EXCHANGE_FILES: Final = gauge(
    "onager_exchange_files",
    Whose.CLUSTER,
    "Files in the exchange directory, as each executor last saw it.",
    "executor_id",
)
EXCHANGE_FREE: Final = gauge(
    "onager_exchange_free_bytes", Whose.CLUSTER, "Free space where the exchange directory lies.", "executor_id"
)
EXCHANGE_SPACE: Final = gauge(
    "onager_exchange_space_bytes", Whose.CLUSTER, "All space where the exchange directory lies.", "executor_id"
)
EXECUTOR_CALLS: Final = histogram(
    "onager_executor_call_seconds", "From a call to an executor in push mode until it was answered.", CALL_BUCKETS_S
)
EXECUTOR_CALL_FAILURES: Final = counter(
    "onager_executor_call_failures_total",
    "Calls to executors in push mode that failed; what they held goes with the next poll.",
)

# ---------------------------------------------------------------- schedulers

SCHEDULERS: Final = gauge("onager_schedulers", Whose.CLUSTER, "Schedulers that are listed and not known to be dead.")
CLOCK_AHEAD: Final = gauge(
    "onager_clock_ahead_seconds",
    Whose.PROCESS,
    "By how much the clock of this scheduler's machine is ahead of the time that the schedulers agree on.",
)
JOB_TAKEOVERS: Final = counter(
    "onager_job_takeovers_total",
    "Jobs that this scheduler began to drive in another's place: its driver is gone, another scheduler has joined, or "
    "this one has just started.",
    "reason",
)
TAKEOVER: Final = histogram(
    "onager_takeover_seconds",
    "From the moment when this scheduler learned that it drives a job until it had read it and gone on.",
    (*CALL_BUCKETS_S, 5.0, 10.0, 30.0),
)
LOG_APPEND_CONFLICTS: Final = counter(
    "onager_log_append_conflicts_total",
    "Appends to job logs that lost to another scheduler's append; each is decided anew.",
)
EVENT_LOOP_LAG: Final = histogram(
    "onager_event_loop_lag_seconds",
    "How late the event loop ran what was due, sampled four times a second.",
    (*CALL_BUCKETS_S, 5.0, 10.0),
    whose=Whose.PROCESS,
)
LEASE_REMAINING: Final = gauge(
    "onager_lease_remaining_seconds",
    Whose.PROCESS,
    "How long this scheduler stays listed if the store does not answer any more; 0 when it is not listed any more.",
)
AUTH_REFUSALS: Final = counter(
    "onager_auth_refusals_total",
    "Calls refused because their token was missing, unknown, or of another role.",
    "reason",
)
HTTP_REQUESTS: Final = counter(
    "onager_http_requests_total",
    "Requests over HTTP that were answered: for REST, for the page, and by probes.",
    "code",
)
CERTIFICATE_EXPIRY: Final = gauge(
    "onager_certificate_expiry_timestamp_seconds",
    Whose.PROCESS,
    "When the certificate in a file of this scheduler expires, in seconds since 1970: served to callers (server), or "
    "shown to others (outgoing).",
    "use",
)
BUILD_INFO: Final = gauge(
    "onager_build_info", Whose.PROCESS, "1, with the versions of this scheduler and of its Python.", "version", "python"
)

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Jobs": (JOBS, JOBS_SUBMITTED, JOBS_ENDED, JOB_DURATION, SUBMIT_TO_FIRST_TASK, PLANNING, JOB_RECORDS_DAMAGED),
    "Tasks": (
        *(TASKS, TASKS_ENDED, TASK_RUN, TASKS_RETRIED, FINISHED_TASKS_RERUN, STAGE_ROLLBACKS),
        *(STAGES_REUSED, REUSED_BYTES, REUSED_LOST, EXCHANGE_IO, SPILL, STREAMING_ABANDONED),
    ),
    "Executors": (
        *(EXECUTORS, EXECUTOR_SLOTS, SLOTS_WANTED, EXECUTOR_LOST),
        *(EXCHANGE_BYTES, EXCHANGE_FILES, EXCHANGE_FREE, EXCHANGE_SPACE, EXECUTOR_CALLS, EXECUTOR_CALL_FAILURES),
    ),
    "Schedulers": (
        *(SCHEDULERS, JOB_TAKEOVERS, TAKEOVER, LOG_APPEND_CONFLICTS, EVENT_LOOP_LAG, LEASE_REMAINING, CLOCK_AHEAD),
        *(AUTH_REFUSALS, HTTP_REQUESTS, CERTIFICATE_EXPIRY, BUILD_INFO),
    ),
    "Store": observed.METRICS,
}
"""In the order in which they are shown."""
METRICS: Final = tuple(metric for section in SECTIONS.values() for metric in section)
