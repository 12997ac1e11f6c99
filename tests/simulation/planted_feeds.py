"""Bugs in growing stages; see `planted`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from onager.execution_graph import RunningStage, RunningTask, Stage, attempts
from onager.execution_graph.feeds import Feed
from onager.scheduler.engine import stage_coordinator

_held = attempts.held
_last_portion = stage_coordinator._last_portion


def _growing_stage_is_done_early() -> AbstractContextManager[Any]:
    """A stage is successful once all tasks that are known are done, whether or not its feed has ended."""

    def is_complete(stage: Stage) -> bool:
        return len(stage.ledger.outputs) == stage.spec.partitions

    return mock.patch("onager.execution_graph.settling.is_complete", is_complete)


def _portion_counts_twice() -> AbstractContextManager[Any]:
    """Nobody asks whether the attempt that found a portion is the one that the feed waits for."""

    def held(stage: RunningStage, partition: int, attempt: int, executor_id: str) -> RunningTask | None:
        found = _held(stage, partition, attempt, executor_id)
        return found or RunningTask(
            attempt=attempt, executor_id=executor_id, incarnation="", launched_ms=0, list_number=0
        )

    return mock.patch("onager.execution_graph.fed.held", held)


def _feed_begins_anew() -> AbstractContextManager[Any]:
    """Each task of a feed goes on after what planning had found."""

    def last_portion(graph: Any, stage_id: int) -> Any:
        found = _last_portion(graph, stage_id)
        fed = stage_coordinator.stage_fed_by(graph, stage_id)
        if found is not None and fed is not None and fed.spec.feed is not None:
            found.digest = fed.spec.feed.portions[0].digest
        return found

    return mock.patch.object(stage_coordinator, "_last_portion", last_portion)


def _portions_are_one_off() -> AbstractContextManager[Any]:
    """The first partition of a portion is taken for the last one of the portion before."""

    def portion_of(self: Feed, partition: int) -> Any:
        first = 0
        for portion in self.portions:
            if partition <= first + portion.partitions:
                return first, portion
            first += portion.partitions
        raise IndexError(partition)

    return mock.patch.object(Feed, "portion_of", portion_of)


OF_FEEDS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "growing-stage-done-early": _growing_stage_is_done_early,
    "portion-counts-twice": _portion_counts_twice,
    "feed-begins-anew": _feed_begins_anew,
    "portions-one-off": _portions_are_one_off,
}
