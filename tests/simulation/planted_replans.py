"""Bugs in how the rest of a job is planned again; see `planted`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from onager.scheduler.engine import job_checks


def _dropped_stages_stay() -> AbstractContextManager[Any]:
    """Stages that the new plan does without go on."""
    return mock.patch("onager.execution_graph.replan_changes.superseded", lambda stage, _: stage)


@contextmanager
def _changed_basis_counts() -> Iterator[None]:
    """A new plan is taken whatever became of the stages that it is based on."""
    with (
        mock.patch("onager.execution_graph.replan_changes.is_as_it_was", return_value=True),
        mock.patch("onager.execution_graph.replan_rules.is_as_it_was", return_value=True),
    ):
        yield


def _replans_have_no_limit() -> AbstractContextManager[Any]:
    """What has not begun waits for a re-plan for as long as that takes, and one that hangs never ends."""
    return mock.patch("onager.execution_graph.replan_rules.limit_ms", return_value=86_400_000)


def _hung_replan_keeps_the_slots() -> AbstractContextManager[Any]:
    """Nobody looks for re-plans that have had their time, so one that holds the only slot is never given up."""

    needs_checks = job_checks._needs_checks
    return mock.patch.object(job_checks, "_needs_checks", lambda job: job.graph.replan is None and needs_checks(job))


OF_REPLANS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "dropped-stages-stay": _dropped_stages_stay,
    "changed-basis-counts": _changed_basis_counts,
    "replans-have-no-limit": _replans_have_no_limit,
    "hung-replan-keeps-slots": _hung_replan_keeps_the_slots,
}
