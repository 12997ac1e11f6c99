"""Streaming jobs: their stages run together, and rows go from task to task without being stored.

A stage is resolved as soon as every task of its producers is assigned to an executor or done (`settling.has_inputs`).
So stages start in the order of their ids, and no task waits for one that no executor has. The attempts that a task
reads from are fixed when it is launched. What would change them gives streaming up, once and for the whole job.
Streamed rows cannot be read again, so then all stages of the query begin again over the durable exchange, with attempt
numbers of tasks and stages above those that were used. It counts against no task.

A reader may be done before its producers are, if it needed only some of their rows. A stage without unfinished readers
ends at once, with the outputs that it has (`settling.settled`), and its running tasks are no longer wanted.
"""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from onager.execution_graph.events import StreamingAbandoned
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.rollback import lives_with_outputs, without_running
from onager.execution_graph.settling import settled
from onager.execution_graph.stages import (
    ExecutorLife,
    ResolvedStage,
    RunningStage,
    Stage,
    StageWork,
    SuccessfulStage,
    TaskLedger,
    TaskOutput,
    UnresolvedStage,
)

_REASON_CHARS = 500


def is_streaming(graph: ExecutionGraph, stage: Stage) -> bool:
    """Return whether tasks of *stage* read or write streams, or would if other stages had any to read."""
    return stage.spec.work is StageWork.QUERY and graph.is_streaming


@dataclass(frozen=True, slots=True)
class StreamedInput:
    """A producer whose rows go to its readers while it runs."""

    stage_id: int
    stage_attempt: int
    tasks: tuple[tuple[int, ExecutorLife], ...]
    """By partition: the one attempt that gives its rows, and the life that runs it, or ran it."""


def streams_of(graph: ExecutionGraph, stage_id: int) -> tuple[StreamedInput, ...]:
    """Return what the tasks of a runnable streaming stage read: fixed for as long as the stage's attempt."""
    return tuple(_streamed_input(graph.stages[source.stage_id]) for source in graph.stages[stage_id].spec.inputs)


def _streamed_input(producer: Stage) -> StreamedInput:
    outputs = producer.ledger.outputs
    running = producer.running if isinstance(producer, RunningStage) else {}
    tasks = []
    for partition in range(producer.spec.partitions):
        if (task := running.get(partition)) is not None:
            tasks.append((task.attempt, ExecutorLife(task.executor_id, task.incarnation)))
        elif (output := outputs.get(partition)) is not None:
            tasks.append((output.task_attempt, output.life))
    return StreamedInput(producer.spec.stage_id, producer.attempt, tuple(tasks))


def streamed(output: TaskOutput) -> TaskOutput:
    """Return *output* as that of a task that streamed its rows: it is stored nowhere, and dies with its executor."""
    is_as_said = not (output.is_shared or output.is_inline or output.payload_digest)
    return output if is_as_said else replace(output, is_shared=False, is_inline=False, payload_digest=None)


def has_readers_at_work(graph: ExecutionGraph, stage_id: int) -> bool:
    """Return whether a stage that reads *stage_id* can run, so that its tasks may know the attempts to read from."""
    return any(
        not isinstance(s, UnresolvedStage) and any(i.stage_id == stage_id for i in s.spec.inputs) for s in graph.stages
    )


def find_abandonment(
    graph: ExecutionGraph, executors: Collection[str], streaming: Collection[str], at_ms: int
) -> StreamingAbandoned | None:
    """Return the event that ends streaming if none of *executors*, which take work, is in *streaming*.

    None while no executor takes work at all, or no task waits.
    """
    if not executors or not graph.is_active or not graph.is_streaming or any(e in streaming for e in executors):
        return None
    if not any(_waits(stage) for stage in graph.stages):
        return None
    return StreamingAbandoned(reason="no executor that takes work has an address for streams", at_ms=at_ms)


def _waits(stage: Stage) -> bool:
    is_ready = isinstance(stage, ResolvedStage) or (isinstance(stage, RunningStage) and stage.pending_count > 0)
    return is_ready and stage.spec.work is StageWork.QUERY


def on_streaming_abandoned(graph: ExecutionGraph, event: StreamingAbandoned) -> ExecutionGraph:
    """Continue over the durable exchange; stale once the query itself is done."""
    is_done = all(isinstance(s, SuccessfulStage) for s in graph.stages if s.spec.work is StageWork.QUERY)
    return graph if is_done or not graph.is_streaming else abandoned(graph, event.reason, event.at_ms)


def abandoned(graph: ExecutionGraph, reason: str, at_ms: int) -> ExecutionGraph:
    """Return *graph*, a streaming one, with all stages after planning ready to run over the durable exchange."""
    assert graph.streaming is not None
    stages = tuple(stage if stage.spec.work is StageWork.PLAN else _begun_anew(stage) for stage in graph.stages)
    bound = lives_with_outputs(stages)
    return settled(
        replace(
            graph,
            stages=stages,
            streaming=replace(graph.streaming, reason=reason[:_REASON_CHARS] or "unknown", abandoned_ms=at_ms),
            lost_lives=tuple(life for life in graph.lost_lives if life in bound),
        ),
        at_ms,
    )


def _begun_anew(stage: Stage) -> Stage:
    spec, ledger, attempt = stage.spec, stage.ledger, stage.attempt
    if isinstance(stage, RunningStage | SuccessfulStage):
        attempt += 1
    if isinstance(stage, RunningStage):
        ledger = without_running(stage, ledger)
    return UnresolvedStage(spec=spec, attempt=attempt, ledger=_without_outputs(ledger))


def _without_outputs(ledger: TaskLedger) -> TaskLedger:
    return ledger.without_outputs(frozenset(ledger.outputs.keys())) if ledger.outputs else ledger
