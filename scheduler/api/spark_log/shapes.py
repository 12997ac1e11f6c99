"""Spark's events as JSON.

Source of names and required fields: `org.apache.spark.util.JsonProtocol` of Spark 4.3, and the listeners that the
History Server replays events to.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onager.execution_graph import StageSpec, TaskMetrics
from onager.execution_graph.intervals import Attempt, Outcome, StageRun

SPARK_VERSION: Final = "4.3.0"
"""The version whose format this is."""
_SQL: Final = "org.apache.spark.sql.execution.ui"
PLANNING_JOB: Final = 0
QUERY_JOB: Final = 1

Event = dict[str, Any]


def log_start() -> Event:
    """Return the first event of a log."""
    return {"Event": "SparkListenerLogStart", "Spark Version": SPARK_VERSION}


def environment(spark: Mapping[str, str]) -> Event:
    """Return the settings; the History Server shows no application without this event."""
    return {
        "Event": "SparkListenerEnvironmentUpdate",
        "JVM Information": {},
        "Spark Properties": dict(spark),
        "Hadoop Properties": {},
        "System Properties": {},
        "Metrics Properties": {},
        "Classpath Entries": {},
    }


def application_start(app_id: str, name: str, user: str, at_ms: int) -> Event:
    """Return the start of the application that stands for an Onager job."""
    return {
        "Event": "SparkListenerApplicationStart",
        "App Name": name,
        "App ID": app_id,
        "Timestamp": at_ms,
        "User": user,
    }


def application_end(at_ms: int) -> Event:
    """Return the end of the application."""
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": at_ms}


def executor_added(executor_id: str, host: str, cores: int, at_ms: int) -> Event:
    """Return that an executor took part."""
    info = {"Host": host, "Total Cores": cores, "Log Urls": {}, "Attributes": {}, "Resources": {}}
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": at_ms,
        "Executor ID": executor_id,
        "Executor Info": {**info, "Resource Profile Id": 0},
    }


def executor_removed(executor_id: str, reason: str, at_ms: int) -> Event:
    """Return that an executor was lost."""
    return {
        "Event": "SparkListenerExecutorRemoved",
        "Timestamp": at_ms,
        "Executor ID": executor_id,
        "Removed Reason": reason,
    }


def job_start(number: int, stages: Sequence[Event], properties: Mapping[str, str], at_ms: int) -> Event:
    """Return the start of a Spark job with *stages* (`stage_info`)."""
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": number,
        "Submission Time": at_ms,
        "Stage Infos": list(stages),
        "Stage IDs": [stage["Stage ID"] for stage in stages],
        "Properties": dict(properties),
    }


def job_end(number: int, failure: str, at_ms: int) -> Event:
    """Return the end of a Spark job; an empty *failure* is success."""
    result: Event = {"Result": "JobSucceeded"}
    if failure:
        result = {"Result": "JobFailed", "Exception": {"Message": failure, "Stack Trace": []}}
    return {"Event": "SparkListenerJobEnd", "Job ID": number, "Completion Time": at_ms, "Job Result": result}


def stage_info(run: StageRun, *, failure: str = "", is_submitted: bool = True) -> Event:
    """Return a stage attempt; one that has a *failure* is shown as failed, and tried again if another one follows."""
    spec = run.spec
    info: Event = {
        "Stage ID": spec.stage_id,
        "Stage Attempt ID": run.attempt,
        "Stage Name": f"{spec.name} ({spec.work.value})",
        "Number of Tasks": spec.partitions,
        "RDD Info": [],
        "Parent IDs": [source.stage_id for source in spec.inputs],
        "Details": "",
    }
    if is_submitted:
        info["Submission Time"] = run.from_ms
        if run.to_ms is not None:
            info["Completion Time"] = run.to_ms
    if failure:
        info["Failure Reason"] = failure
    return {**info, "Accumulables": [], "Resource Profile Id": 0}


def stage_submitted(run: StageRun, properties: Mapping[str, str]) -> Event:
    """Return the start of a stage attempt."""
    info = stage_info(StageRun(run.spec, run.attempt, run.from_ms))
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": dict(properties)}


def stage_completed(run: StageRun, failure: str) -> Event:
    """Return the end of a stage attempt."""
    return {"Event": "SparkListenerStageCompleted", "Stage Info": stage_info(run, failure=failure)}


def task_start(number: int, attempt: Attempt, stage_id: int, executor: str, host: str) -> Event:
    """Return the launch of a task attempt, with its number in the application."""
    return {
        "Event": "SparkListenerTaskStart",
        "Stage ID": stage_id,
        "Stage Attempt ID": attempt.stage_attempt,
        "Task Info": _task_info(number, attempt, executor, host, is_over=False),
    }


def task_end(
    number: int, attempt: Attempt, stage_id: int, executor: str, host: str, metrics: TaskMetrics, spec: StageSpec | None
) -> Event:
    """Return the end of a task attempt; *spec* is that of its stage, if it is known."""
    writes = spec is not None and spec.output.kind == "exchange"
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage_id,
        "Stage Attempt ID": attempt.stage_attempt,
        "Task Type": "ShuffleMapTask" if writes else "ResultTask",
        "Task End Reason": _end_reason(attempt, executor),
        "Task Info": _task_info(number, attempt, executor, host, is_over=True),
        "Task Executor Metrics": {},
        "Task Metrics": _task_metrics(metrics, reads=spec is not None and bool(spec.inputs), writes=writes),
    }


def sql_start(description: str, script: str, plan_text: str, plan: Event, at_ms: int) -> Event:
    """Return the start of the query with its plan."""
    return {
        "Event": f"{_SQL}.SparkListenerSQLExecutionStart",
        "executionId": 0,
        "rootExecutionId": 0,
        "description": description,
        "details": script,
        "physicalPlanDescription": plan_text,
        "sparkPlanInfo": plan,
        "time": at_ms,
        "modifiedConfigs": {},
        "jobTags": [],
    }


def sql_metrics(updates: Sequence[tuple[int, int]]) -> Event:
    """Return the values of the plan's metrics, by accumulator."""
    return {"Event": f"{_SQL}.SparkListenerDriverAccumUpdates", "executionId": 0, "accumUpdates": list(updates)}


def sql_end(failure: str, at_ms: int) -> Event:
    """Return the end of the query."""
    end: Event = {"Event": f"{_SQL}.SparkListenerSQLExecutionEnd", "executionId": 0, "time": at_ms}
    return end | {"errorMessage": failure}


def _task_info(number: int, attempt: Attempt, executor: str, host: str, *, is_over: bool) -> Event:
    return {
        "Task ID": number,
        "Index": attempt.partition,
        "Attempt": attempt.number,
        "Partition ID": attempt.partition,
        "Launch Time": attempt.from_ms,
        "Executor ID": executor,
        "Host": host,
        "Locality": "ANY",
        "Speculative": attempt.is_second,
        "Getting Result Time": 0,
        "Finish Time": (attempt.to_ms or attempt.from_ms) if is_over else 0,
        "Failed": is_over and attempt.outcome in (Outcome.FAILED, Outcome.LOST),
        "Killed": is_over and attempt.outcome in (Outcome.KILLED, Outcome.STOPPED),
        "Accumulables": [],
    }


def _end_reason(attempt: Attempt, executor: str) -> Event:
    why = attempt.message or attempt.kind
    match attempt.outcome:
        case Outcome.SUCCESSFUL:
            return {"Reason": "Success"}
        case Outcome.LOST:
            lost = {"Executor ID": executor, "Exit Caused By App": False, "Loss Reason": why}
            return {"Reason": "ExecutorLostFailure", **lost}
        case Outcome.FAILED:
            failure: Event = {"Class Name": attempt.kind, "Description": why, "Stack Trace": []}
            return {"Reason": "ExceptionFailure", **failure, "Full Stack Trace": why, "Accumulator Updates": []}
        case _:
            reason = why or "the stage was rolled back, or the job ended"
            return {"Reason": "TaskKilled", "Kill Reason": reason, "Accumulator Updates": []}


def _task_metrics(metrics: TaskMetrics, *, reads: bool, writes: bool) -> Event:
    """Return what an attempt cost; *reads* and *writes*: from and to other stages."""
    shuffled = metrics.bytes_in if reads else 0
    return {
        "Executor Deserialize Time": 0,
        "Executor Deserialize CPU Time": 0,
        "Executor Run Time": metrics.run_ms,
        "Executor CPU Time": 0,
        "Peak Execution Memory": metrics.peak_memory_bytes,
        "Result Size": 0,
        "JVM GC Time": 0,
        "Result Serialization Time": 0,
        "Memory Bytes Spilled": 0,
        "Disk Bytes Spilled": metrics.spill_bytes,
        "Shuffle Read Metrics": {
            "Remote Blocks Fetched": 0,
            "Local Blocks Fetched": 0,
            "Fetch Wait Time": metrics.fetch_ms,
            "Remote Bytes Read": shuffled,
            "Remote Bytes Read To Disk": 0,
            "Local Bytes Read": 0,
            "Total Records Read": 0,
            "Remote Requests Duration": 0,
        },
        "Shuffle Write Metrics": {
            "Shuffle Bytes Written": metrics.bytes_out if writes else 0,
            "Shuffle Write Time": 1_000_000 * metrics.commit_ms if writes else 0,
            "Shuffle Records Written": metrics.rows_out if writes else 0,
        },
        "Input Metrics": {"Bytes Read": metrics.bytes_in - shuffled, "Records Read": 0},
        "Output Metrics": {
            "Bytes Written": 0 if writes else metrics.bytes_out,
            "Records Written": 0 if writes else metrics.rows_out,
        },
        "Updated Blocks": [],
    }
