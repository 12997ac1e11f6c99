"""Bugs in scripts; see `planted`."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from onager.execution_graph import ExecutionGraph, Stage
from onager.ids import JobId
from onager.scheduler.engine.steps import Steps
from tests.simulation.scripts import FALSE_IDS


def _step_id_is_drawn() -> AbstractContextManager[Any]:
    """The job of a step gets an id that its scheduler draws, and knows for as long as it lives."""
    known: dict[tuple[Steps, str, int], JobId] = {}

    def child_id(self: Steps, graph: ExecutionGraph, stage: Stage) -> JobId:
        key = (self, graph.job_id, stage.spec.stage_id)
        if key not in known:
            known[key] = JobId(f"{graph.job_id}.{FALSE_IDS * (1 + secrets.randbelow(9)) + stage.spec.stage_id}")
        return known[key]

    return mock.patch.object(Steps, "_child_id", child_id)


def _retry_does_all_again() -> AbstractContextManager[Any]:
    """A retried script runs the steps that were done, too."""

    async def done_before(_: Steps, __: Any, ___: Any) -> None:
        return None

    return mock.patch.object(Steps, "_done_before", done_before)


OF_SCRIPTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "step-id-is-drawn": _step_id_is_drawn,
    "retry-does-all-again": _retry_does_all_again,
}
