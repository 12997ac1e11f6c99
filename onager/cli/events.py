"""What happened to a job, a line for each event."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import onager
from onager.client.amounts import size
from onager.client.events import JobEvent


def events(scheduler: str, job_id: str, after: int, output: str, *, follow: bool) -> None:
    """Print a job's events as they come: aligned lines for people, a JSON object a line for programs."""
    with onager.connect(scheduler) as client:
        for event in client.job(job_id).events(after, follow=follow):
            print(_json(event) if output == "json" else line(event), flush=follow)


def line(event: JobEvent) -> str:
    """Return an event for people: position, time, scheduler, and what happened."""
    when = datetime.fromtimestamp(event.at_ms / 1000, UTC).astimezone() if event.at_ms else None
    clock = "" if when is None else f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}"
    return f"{event.position:>6}  {clock:23}  {event.scheduler_id:20}  {event.type:17}  {what(event)}".rstrip()


def _json(event: JobEvent) -> str:
    known = {"position": event.position, "at_ms": event.at_ms, "scheduler_id": event.scheduler_id, "type": event.type}
    return json.dumps(known | event.fields, ensure_ascii=False)


def what(event: JobEvent) -> str:  # noqa: C901, PLR0911, PLR0912 - one case a type
    """Return what an event tells besides its type."""
    fields = event.fields
    match event.type:
        case "stages_started":
            return f"stage {_ranges(fields['stage_ids'])}"
        case "stage_laid_out":
            return _laid_out(fields)
        case "tasks_launched" | "tasks_speculated" | "launches_repeated":
            return f"{_tasks(fields)} on {fields['executor_id']}"
        case "stragglers_found":
            return _tasks(fields)
        case "tasks_lost":
            return f"{_tasks(fields)} on {fields['executor_id']}: {fields['reason']}"
        case "task_succeeded":
            return f"{_task(fields)}: {_made(fields['output'], fields['metrics'])}"
        case "task_failed":
            failure = fields["failure"]
            return f"{_task(fields)}: {failure.get('cause') or failure['kind']}: {failure['message']}"
        case "job_planned":
            stages = len(fields["stages"])
            return f"{stages} stage{'s' * (stages != 1)}, by {fields['executor_id']}"
        case "partitions_added" | "feed_ended":
            return f"{_task(fields)}: {_added(fields['added'])}"
        case "outputs_taken":
            sources = (
                f"stage {each['stage_id']} from {each['job_id']}/{each['of_stage_id']}" for each in fields["taken"]
            )
            return ", ".join(sources)
        case "replan_begun":
            return f"stage {fields['replan_id']}: {fields['why']}"
        case "stage_replanned":
            return _replanned(fields)
        case "replan_given_up":
            return f"stage {fields['replan_id']}: the plan is kept: {fields['reason']}"
        case "step_ended":
            ended = f"step {fields['stage_id']}: job {fields['child_id']}"
            if failure := fields["failure"]:
                return f"{ended} failed: {failure['message'].partition(chr(10))[0]}"
            return f"{ended}, {fields['rows']:,} row{'s' * (fields['rows'] != 1)}"
        case "job_failed":
            return str(fields["failure"]["message"]).partition("\n")[0]
        case "executor_lost":
            return f"{fields['executor_id']}: {fields['reason']}"
        case "not_kept":
            return "what happened up to here is not in the store any more"
        case _:
            by = f", by {fields['principal']}" if "principal" in fields else ""
            return f"{fields.get('reason', '')}{by}"


def _stage(fields: Mapping[str, Any]) -> str:
    attempt = fields["stage_attempt"]
    return f"stage {fields['stage_id']}" + (f" (attempt {attempt})" if attempt else "")


def _laid_out(fields: Mapping[str, Any]) -> str:
    if fused := fields.get("fused"):
        return f"stage {fields['stage_id']}: its one task computes stage {_ranges(fused)}, too"
    reads = fields["reads"]
    tasks, buckets = len(reads), reads[-1]["end_bucket"]
    return f"stage {fields['stage_id']}: reads {buckets} buckets in {tasks} task{'s' * (tasks != 1)}"


def _added(count: int) -> str:
    return f"{count or 'no'} more task{'s' * (count != 1)} for the stage that it feeds"


def _replanned(fields: Mapping[str, Any]) -> str:
    result = "the plan is kept"
    if stages := fields["stages"]:
        without = f", without stage {_ranges(fields['dropped'])}" if fields["dropped"] else ""
        result = f"new stages {_ranges(stage['stage_id'] for stage in stages)}{without}"
    return f"stage {fields['replan_id']}: {result}: {'; '.join(fields['decisions'])}"


def _tasks(fields: Mapping[str, Any]) -> str:
    partitions = [partition for partition, _ in fields["tasks"]]
    return f"{_stage(fields)}, task{'s' * (len(partitions) > 1)} {_ranges(partitions)}"


def _task(fields: Mapping[str, Any]) -> str:
    attempt = f" (attempt {fields['task_attempt']})" if fields["task_attempt"] else ""
    return f"{_stage(fields)}, task {fields['partition']}{attempt} on {fields['executor_id']}"


def _made(output: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    rows, run_s = output["rows"], metrics.get("run_ms", 0) / 1000
    return f"{rows:,} row{'s' * (rows != 1)}, {size(output['bytes'])}, {run_s:.2f} s"


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers for people: ``0-3, 7``."""
    runs = [list(run) for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for (_, a), (_, b) in ((run[0], run[-1]) for run in runs))
