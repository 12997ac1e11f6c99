"""Bugs in how the rest of a job is planned again; see `planted`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from onager.execution_graph import ExecutionGraph, RunningStage, StageWork
from onager.execution_graph.settling import superseded as _superseded


@contextmanager
def _superseded_stage_counts() -> Iterator[None]:
    """A stage that the new plan does without goes on if it runs, and late reports of it count."""

    def superseded(stage: Any, at_ms: int) -> Any:
        is_running = isinstance(stage, RunningStage) and stage.running and stage.spec.work is StageWork.QUERY
        return stage if is_running else _superseded(stage, at_ms)

    with mock.patch("onager.execution_graph.replanned.superseded", superseded):
        yield


@contextmanager
def _changed_basis_counts() -> Iterator[None]:
    """A new plan is taken whatever became of the stages that it is based on."""
    with (
        mock.patch("onager.execution_graph.replanned.is_as_it_was", return_value=True),
        mock.patch("onager.execution_graph.replanning.is_as_it_was", return_value=True),
    ):
        yield


def _re_plan_waits_for_ever() -> AbstractContextManager[Any]:
    """Nobody gives up a re-plan that takes too long."""

    def is_in_time(graph: ExecutionGraph, _: int) -> bool:
        return graph.replan is not None

    return mock.patch("onager.execution_graph.replanning.is_in_time", is_in_time)


OF_REPLANS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "superseded-stage-counts": _superseded_stage_counts,
    "changed-basis-counts": _changed_basis_counts,
    "re-plan-waits-for-ever": _re_plan_waits_for_ever,
}
