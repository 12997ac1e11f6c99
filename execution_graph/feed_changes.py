"""What it changes that a task of a feed succeeds: the stage that it feeds grows, or has all of its partitions.

One event is both, like that of planning: there is no graph in which a portion was found and its partitions are not
there, and none in which they are there twice.
"""

from msgspec.structs import replace

from onager.execution_graph.attempts import held, running_stage
from onager.execution_graph.events import FeedEnded, FeedEvent
from onager.execution_graph.feed_records import Portion
from onager.execution_graph.graph import ExecutionGraph
from onager.execution_graph.settling import bound, settled, with_stage, with_successes
from onager.execution_graph.stages import FailedStage, FusedStage, Stage, StageWork, SuccessfulStage


def stage_fed_by(graph: ExecutionGraph, stage_id: int) -> Stage | None:
    """Return the stage that gets its partitions from *stage_id*, if there is one."""
    return next((s for s in graph.stages if s.spec.feed is not None and s.spec.feed.stage_id == stage_id), None)


def on_fed(graph: ExecutionGraph, event: FeedEvent) -> ExecutionGraph:
    """Give the stage its partitions, unless the task is not the one that the graph waits for."""
    feeding = running_stage(graph, event.stage_id, event.stage_attempt)
    stage = stage_fed_by(graph, event.stage_id)
    if feeding is None or stage is None or isinstance(stage, SuccessfulStage | FailedStage | FusedStage):
        return graph
    task = held(feeding, event.partition, event.task_attempt, event.executor_id)
    digest, feed = event.output.payload_digest, stage.spec.feed
    if task is None or feed is None or digest is None or event.added < 0 or feeding.spec.work is not StageWork.FEED:
        return graph
    has_ended = isinstance(event, FeedEnded)
    done = with_successes(feeding, {event.partition: bound(event.output, task)}, {event.partition: event.metrics})
    if not has_ended:
        done = replace(done, spec=replace(done.spec, partitions=done.spec.partitions + 1))
    grown = replace(
        stage.spec,
        partitions=stage.spec.partitions + event.added,
        feed=feed.grown(Portion(digest=digest, partitions=event.added), has_ended=has_ended),
    )
    return settled(with_stage(with_stage(graph, done), replace(stage, spec=grown)), event.at_ms)
