"""Every interval in a scheduler that is no setting, and what must hold between them."""

from typing import Final

from onager.errors import InvalidSettingError

# ---------------------------------------------------------------- calls and their answers

EXECUTOR_CALL_S: Final = 15.0
"""How long executors wait for an answer to a report. Source: executor/agent/reporting.py."""
ANSWER_TAKEN_S: Final = 2.0
"""How long a push executor may take to take the answer to its poll."""
CALL_FIRST_PAUSE_S: Final = 0.05
CALL_LONGEST_PAUSE_S: Final = 1.0
"""Pauses after failed calls to a push executor: the first one, and the longest of those that follow."""
UNREACHED_REPORTED_S: Final = 60.0
"""How often it is logged that an executor cannot be called."""
ATTEND_WAIT_S: Final = 10.0
"""How long the call that one scheduler keeps in flight to another waits before it is answered and made again."""
ATTEND_FIRST_PAUSE_S: Final = 0.05
ATTEND_LONGEST_PAUSE_S: Final = 1.0
SCHEDULER_PASSED_OVER_S: Final = 2.0
"""How long a scheduler that did not answer is skipped."""

# ---------------------------------------------------------------- shared directories

PLACE_LOOK_S: Final = 2.0
"""How often a scheduler looks whether it still sees the exchange directory."""
PLACE_ANSWER_S: Final = 5.0
"""How long a look may take. One that takes longer says that the disk does not answer this scheduler."""
PLACE_PENDING_S: Final = 0.2
PLACE_REFUSED_S: Final = 2.0
"""How often it looks until it is admitted, and once it is refused."""
HEALTH_LOOK_S: Final = 0.25
"""How often a scheduler compares what it tells load balancers with how it sees the exchange directory."""
PLACE_FAILS_S: Final = 15.0
"""A scheduler whose looks fail for longer does not see the directory any more, since it can find nothing for others."""
PLACE_FIND_S: Final = 1.0
"""How long it may take to find an executor's mark: less than an executor waits for the answer to its heartbeat."""

# ---------------------------------------------------------------- launches and running lists

LAUNCH_YOUNG_S: Final = 0.5
"""A task launched within this time may be on its way: a list without it proves nothing yet."""
LIST_JUDGED_EVERY_S: Final = 0.1
"""How often, at reports, all the tasks of an executor are checked."""
LISTS_COMPARED_EVERY_S: Final = 1.0
"""How often the other schedulers are sent the tasks of their jobs that executors hold."""
LIST_COMPARED_AGAIN_S: Final = 0.1
"""When the list of an executor that polled another scheduler before is compared again: an append seldom takes longer.
What does take longer is found by the comparison of each second."""
LISTS_SETTLED_S: Final = 1.5
"""How long other schedulers may take to begin to drive their new jobs."""

# ---------------------------------------------------------------- slots

DISPATCH_ROUND_S: Final = 0.05
"""A round of filling slots that takes longer runs on beside the next one: another scheduler may be slow to answer."""
DISPATCH_PAUSE_S: Final = 0.1
"""The pause after a failed round."""
NOTHING_FIT_S: Final = 2.0
"""How long an executor is not tried again for a job without news."""
JOB_RESTS_S: Final = 0.3
"""How long a job gets no slots after it had less to do than it seemed, or could not be worked on."""

# ---------------------------------------------------------------- jobs

NEW_JOB_MOMENT_S: Final = 0.01
"""How long a new job is left to the scheduler that took it in: about the time that an append takes."""
LOADS_REPORTED_EVERY_S: Final = 0.2
"""How often other schedulers are sent the loads of this one's jobs that have changed."""
CLEAN_UPS_TOGETHER_S: Final = 0.3
"""How long the clean-up of an ended job waits for others: to ask for it ends a poll, and the next job needs one."""
CLEAN_UP_MOMENT_S: Final = 1.0
"""How long a scheduler leaves a clean-up to the one before it, which may have no executor to ask."""
ORPHAN_AGE_S: Final = 600
"""How long a blob may wait for its job to be stored."""
WATCH_EVERY_S: Final = 0.1
"""The least time between two messages to a watcher of a job."""
HEARTBEAT_S: Final = 15.0
"""How often a stream of events over HTTP carries something, so that proxies do not take it for dead."""
EVENTS_AGAIN_MS: Final = 500
"""How long a browser waits before it opens a stream of events again."""
WATCH_LOOK_S: Final = 1.0
"""How often a watched job is looked at when it has not changed."""
TIMELINE_KEPT_S: Final = 0.5
"""How long the timeline of a running job of many attempts may be shown unchanged."""
TIMELINE_LONGEST_S: Final = 2.0
"""And if it takes long to make."""
TIMELINE_SOON_S: Final = 0.5
"""How long a log is read for a timeline that is wanted soon."""
SHARES_KEPT_S: Final = 1.0
"""How long the shares of a running job's wall time may be shown unchanged."""
SHARES_WAIT_S: Final = 1.0
"""How long somebody who looks at an ended job waits for them."""
SHARES_WAIT_RUNNING_S: Final = 0.1
"""And at a running one: they are asked for again, and the rest of the answer should not wait for them."""

GIVE_UP_S: Final = 30.0
"""How long work on a job is tried again after an error that does not pass."""

# ---------------------------------------------------------------- executors

EXECUTORS_LOOK_S: Final = 0.25
"""How often silent executors are looked after."""
LOSS_MOMENT_S: Final = 0.25
"""How much later than the one before it a scheduler handles a lost executor."""
FORGET_MOMENT_MS: Final = 5_000
"""The same, for an executor to be forgotten."""
LOSSES_REMEMBERED_S: Final = 60.0
"""How long a lost executor is remembered, for jobs that this scheduler begins to drive."""
QUARANTINE_LOOK_S: Final = 0.5
LOGS_ANSWERED_S: Final = 2.0
"""How long executors may take to answer what a client wants to read of their logs."""
LOGS_FOLLOWED_EVERY_S: Final = 0.5
"""How often a client that follows logs gets what is new."""
LOADS_LOOK_S: Final = 1.0
"""How often loads that executors have reported are written."""
LOAD_WRITTEN_EVERY_S: Final = 5.0
"""The least time between two writes of one executor's load."""

AUDIT_NOTED_S: Final = 10.0
"""How often everyday acts are written to the audit."""
AUDIT_COUNTED_S: Final = 600.0
"""How often they are counted, to remove the oldest."""

# ---------------------------------------------------------------- disks

DISK_S: Final = 10.0
"""How long a call to a disk may take."""
DISK_HANGS_S: Final = 1.0
"""The same, while an earlier call that took too long has not returned: callers turn to another scheduler sooner."""
DISK_LONG_S: Final = 60.0
"""The same, for a call that writes much back, or removes many files."""

# ---------------------------------------------------------------- the store, and the process

STORE_AGAIN_S: Final = 1.0
"""How long after a failure the store is asked again."""
BLOB_PAUSE_S: Final = 0.01
"""The pause between tries to store a blob, about twice as long after each further one."""
STOP_REFUSING_S: Final = 0.01
"""How long the server takes to refuse new calls, so that no executor whose poll is answered polls here again."""
STOP_GRACE_S: Final = 0.2
STOP_LEAVE_S: Final = 0.2
STOP_WRITE_S: Final = 0.4
"""What a scheduler that stops allows for calls in flight, for leaving the others, and for writes."""
METRICS_JOIN_S: Final = 2.0


def check(forward_timeout_ms: int) -> None:
    """Raise `InvalidSettingError` for a setting that breaks what must hold between it and the intervals here."""
    for most_s, why in (
        (
            EXECUTOR_CALL_S / 2,
            "an executor that reports would give its call up before this scheduler drives its job itself",
        ),
        (SCHEDULER_PASSED_OVER_S, "a scheduler that does not answer would never be passed over"),
    ):
        if forward_timeout_ms >= 1000 * most_s:
            raise InvalidSettingError(
                "forward-timeout-ms", str(forward_timeout_ms), f"give less than {1000 * most_s:.0f}: {why}"
            )


# What must hold between the constants, in words, and whether it does.
HOLDS: Final = {
    "a list that other schedulers got is older than a launch that may be on its way": LISTS_COMPARED_EVERY_S
    > LAUNCH_YOUNG_S,
    "a call has been answered, or has failed, before the executor gives up its report": ANSWER_TAKEN_S
    < EXECUTOR_CALL_S,
    "a scheduler has stopped within a second": STOP_REFUSING_S
    + max(STOP_GRACE_S, STOP_LEAVE_S)
    + STOP_LEAVE_S
    + STOP_WRITE_S
    < 1.0,
}
