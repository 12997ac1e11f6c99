"""Two releases in one cluster: the newer one has a feature that the older one lacks.

All processes of a simulation run the same modules, so the process that runs decides what differs. Second attempts stand
for any feature of a later release: the older one has never learned of them, refuses records with them, and writes none.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from onager.errors import FeatureMissingError
from onager.execution_graph import EventBatch, ExecutionGraph, RunningStage, TasksSpeculated
from onager.execution_graph.events import StragglersFound
from onager.scheduler.cluster.live_schedulers import LiveSchedulers, SchedulerRecord
from onager.scheduler.engine import query_coordinator
from tests.simulation.loop import current

FEATURE = "second-attempts"

_find_stragglers = query_coordinator.find_stragglers


def registration(record: SchedulerRecord, *, is_old: bool) -> SchedulerRecord:
    """Return how a scheduler of that release registers."""
    return record.model_copy(update={"version": "0.0"} if is_old else {"features": (FEATURE,)})


def needs_feature(record: ExecutionGraph | EventBatch) -> bool:
    """Return whether the older release would misread a record."""
    if isinstance(record, EventBatch):
        return any(isinstance(event, StragglersFound | TasksSpeculated) for event in record.events)
    return any(
        stage.ledger.speculated or (isinstance(stage, RunningStage) and stage.speculatable) for stage in record.stages
    )


@contextmanager
def two_releases(schedulers: Callable[[], LiveSchedulers | None], fail: Callable[[str], None]) -> Iterator[None]:
    """Give processes their release; *schedulers* returns those of the scheduler that runs.

    Calls *fail* when one of the older release writes what it does not know.
    """

    def uses(record: ExecutionGraph | EventBatch) -> bool:
        if found := needs_feature(record):
            _ = _features() or fail(f"{current()} is of the older release, and writes a record with {FEATURE}")
        return found

    def find_stragglers(*given: Any) -> list[StragglersFound]:
        known = schedulers()
        return _find_stragglers(*given) if known is not None and FEATURE in known.features else []

    with ExitStack() as stack:
        for target, replacement in (
            ("onager.execution_graph.codec.NEEDS", {FEATURE: uses}),
            ("onager.execution_graph.codec.check_features", _check_features),
            ("onager.scheduler.engine.reports.check_features", _check_features),
            ("onager.scheduler.cluster.live_schedulers.shared_features", _shared_features),
            ("onager.scheduler.engine.query_coordinator.find_stragglers", find_stragglers),
        ):
            stack.enter_context(mock.patch(target, replacement))
        yield


def _features() -> frozenset[str]:
    return frozenset() if current().is_old else frozenset({FEATURE})


def _shared_features(registered: Iterable[Iterable[str]]) -> frozenset[str]:
    return _features().intersection(*registered)


def _check_features(needed: Iterable[str], what: str) -> None:
    if missing := set(needed) - _features():
        raise FeatureMissingError(what, missing)
