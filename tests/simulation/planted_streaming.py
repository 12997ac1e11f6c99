"""Bugs that jobs whose stages run together could have; see `planted`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from msgspec.structs import replace

from onager.execution_graph import RunningStage, SuccessfulStage
from onager.execution_graph.streaming import _begun_anew
from onager.executor.agent.agent import Agent


def _outputs_are_kept() -> AbstractContextManager[Any]:
    """Streamed outputs count as written after the job has switched to the durable exchange."""
    return mock.patch("onager.execution_graph.streaming._without_outputs", lambda ledger: ledger)


def _attempts_are_not_raised() -> AbstractContextManager[Any]:
    """A stage stays in the attempt in which it streamed, so its old plan is sent again."""

    def begun_anew(stage: Any) -> Any:
        after = _begun_anew(stage)
        return replace(after, attempt=stage.attempt)

    return mock.patch("onager.execution_graph.streaming._begun_anew", begun_anew)


def _readers_start_before_all_are_at_work() -> AbstractContextManager[Any]:
    """A reader starts with the first task of its producer, and knows nothing of the others."""

    def can_be_read(producer: Any, *, may_read_early: bool) -> bool:
        return isinstance(producer, SuccessfulStage) or (
            may_read_early and isinstance(producer, RunningStage) and bool(producer.running)
        )

    return mock.patch("onager.execution_graph.settling._can_be_read", can_be_read)


def _failures_are_tried_again_alone() -> AbstractContextManager[Any]:
    """A failed task is retried, while its readers wait for the attempt that they were given."""
    return mock.patch("onager.execution_graph.outcomes.is_streaming", return_value=False)


def _full_executors_are_silent() -> AbstractContextManager[Any]:
    """An executor without a free slot sends no lists: nothing disproves a launch that its tasks may wait for."""
    return mock.patch.object(Agent, "_next_list_in_s", 3_600.0)


OF_STREAMING: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "streamed-outputs-kept": _outputs_are_kept,
    "streamed-attempts-not-raised": _attempts_are_not_raised,
    "readers-start-early": _readers_start_before_all_are_at_work,
    "streaming-task-tried-alone": _failures_are_tried_again_alone,
    "full-executor-is-silent": _full_executors_are_silent,
}
