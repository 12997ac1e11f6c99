"""What each task of a job took, read from the job's events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onager.client.events import JobEvent

_METRICS = ("queued_ms", "run_ms", "fetch_ms", "bytes_in", "spill_bytes")
_WHOLE_STAGE = 1
"""The only stage of a query that ran while it was planned."""


@dataclass(frozen=True, slots=True)
class TaskCost:
    """The first success of a task; times are durations by the executor's own clock."""

    stage_id: int
    partition: int
    attempt: int
    """The number of the attempt that succeeded, from 0 on."""
    executor_id: str
    queued_ms: int
    """From being accepted by the executor to the task's begin."""
    run_ms: int
    fetch_ms: int
    """The part of `run_ms` in which it waited for rows of other stages."""
    rows: int
    """Rows that it gave to other stages, or to the result."""
    bytes: int
    bytes_in: int
    """Bytes that it read of other stages."""
    spill_bytes: int


def task_costs(events: Iterable[JobEvent]) -> dict[int, tuple[TaskCost, ...]]:
    """Return the tasks of each stage by partition; those that have not succeeded are left out.

    An event tells of a success that was accepted, so the first one of a partition is the one whose metrics the stage
    counts. A plan that was lost and made again takes what the earlier one had with it.
    """
    found: dict[int, dict[int, TaskCost]] = {}
    for event in events:
        fields = event.fields
        if event.type == "job_planned":
            found.clear()
            if fields.get("fused_output"):
                output = fields["fused_output"]
                found[_WHOLE_STAGE] = {0: _cost(fields, _WHOLE_STAGE, 0, output)}
        elif event.type == "task_succeeded":
            stage_id, partition = fields["stage_id"], fields["partition"]
            found.setdefault(stage_id, {}).setdefault(partition, _cost(fields, stage_id, partition, fields["output"]))
    return {stage_id: tuple(tasks[p] for p in sorted(tasks)) for stage_id, tasks in sorted(found.items())}


def _cost(fields: Mapping[str, Any], stage_id: int, partition: int, output: Mapping[str, Any]) -> TaskCost:
    return TaskCost(
        stage_id=stage_id,
        partition=partition,
        attempt=fields["task_attempt"],
        executor_id=fields["executor_id"],
        rows=output["rows"],
        bytes=output["bytes"],
        **{name: fields["metrics"].get(name, 0) for name in _METRICS},
    )
