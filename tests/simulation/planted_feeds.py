"""Bugs in growing stages; see `planted`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from onager.execution_graph import Feed, Portion, Stage, replan_changes, replan_rules
from onager.scheduler.engine import stage_coordinator

_last_portion = stage_coordinator._last_portion
_has_begun = replan_changes.has_begun


def _growing_stage_is_done_early() -> AbstractContextManager[Any]:
    """A stage is successful once all tasks that are known are done, whether or not its feed has ended."""

    def is_complete(stage: Stage) -> bool:
        return len(stage.ledger.outputs) == stage.spec.partitions

    return mock.patch("onager.execution_graph.settling.is_complete", is_complete)


def _portion_counts_twice() -> AbstractContextManager[Any]:
    """What a task of a feed found is added to what its stage has been given, and added again."""

    def grown(self: Feed, portion: Portion, *, has_ended: bool) -> Feed:
        return replace(self, portions=(*self.portions, portion, portion), has_ended=has_ended)

    return mock.patch.object(Feed, "grown", grown)


def _feed_begins_anew() -> AbstractContextManager[Any]:
    """Each task of a feed goes on after what planning had found."""

    def last_portion(graph: Any, stage_id: int) -> Any:
        found = _last_portion(graph, stage_id)
        fed = stage_coordinator.stage_fed_by(graph, stage_id)
        if found is not None and fed is not None and fed.spec.feed is not None:
            found.digest = fed.spec.feed.portions[0].digest
        return found

    return mock.patch.object(stage_coordinator, "_last_portion", last_portion)


@contextmanager
def _growing_stage_comes_again() -> Iterator[None]:
    """A new plan has a growing stage once more, fed by the same feed, and nobody looks whether it fits."""

    def has_begun(stage: Any) -> bool:
        return _has_begun(replace(stage, spec=replace(stage.spec, feed=None)))

    with (
        mock.patch.object(replan_changes, "has_begun", has_begun),
        mock.patch.object(replan_rules, "has_begun", has_begun),
        mock.patch.object(replan_changes, "why_not", return_value=None),
    ):
        yield


OF_FEEDS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "growing-stage-done-early": _growing_stage_is_done_early,
    "portion-counts-twice": _portion_counts_twice,
    "feed-begins-anew": _feed_begins_anew,
    "growing-stage-comes-again": _growing_stage_comes_again,
}
