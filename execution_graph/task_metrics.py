"""The cost of running tasks."""

from typing import Annotated, get_args, get_type_hints

from msgspec.structs import astuple

from onager.execution_graph.record import Record


class TaskMetrics(Record, frozen=True):
    """The cost of running tasks; each field declares how it is merged. Durations are the executor's own."""

    run_ms: Annotated[int, sum] = 0
    rows_out: Annotated[int, sum] = 0
    bytes_out: Annotated[int, sum] = 0
    """Compressed bytes of the output, whatever its kind: of the exchange, a result, a dataset, or streamed."""
    bytes_in: Annotated[int, sum] = 0
    spill_bytes: Annotated[int, sum] = 0
    peak_memory_bytes: Annotated[int, max] = 0
    queued_ms: Annotated[int, sum] = 0
    """From being accepted by the executor to the task's begin there."""
    fetch_ms: Annotated[int, sum] = 0
    """The part of `run_ms` in which the task waited for rows of other stages."""
    commit_ms: Annotated[int, sum] = 0
    """The part of `run_ms` from the last row to the output under its final name."""
    executor_rss_bytes: Annotated[int, max] = 0
    """What all processes of an executor held in memory when they were looked at while its tasks ran."""
    bind_ms: Annotated[int, sum] = 0
    """The part of `queued_ms` in which the plan was made executable: code was generated, broadcasts were made."""
    codegen_ms: Annotated[int, sum] = 0
    """The part of `bind_ms` in which Spark generated and compiled code."""
    plan_ms: Annotated[int, sum] = 0
    """Of a query that was run where it was planned: how long planning took, before `run_ms`."""
    function_ms: Annotated[int, sum] = 0
    """The part of `plan_ms`, or of a planning task's `run_ms`, in which the job's Python function ran."""
    plain_bytes_out: Annotated[int, sum] = 0
    """`bytes_out` of an exchange before compression; 0: an older executor did not tell."""

    def __bool__(self) -> bool:
        """Return whether there is anything to tell."""
        return self != NO_METRICS

    def merge(self, *others: "TaskMetrics") -> "TaskMetrics":
        """Return these metrics merged with *others*."""
        if not others:
            return self
        columns = zip(*map(astuple, (self, *others)), strict=True)
        return TaskMetrics(*[rule(column) for rule, column in zip(_MERGE_RULES, columns, strict=True)])


_MERGE_RULES = [get_args(hint)[1] for hint in get_type_hints(TaskMetrics, include_extras=True).values()]
NO_METRICS = TaskMetrics()
