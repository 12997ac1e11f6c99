"""Checks that every scheduler soon knows what was stored about schedulers, executors and jobs.

Schedulers learn of it by watches. What one of those loses, turns round or keeps to itself shows here,
whatever comes of it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onager.scheduler.app import SchedulerApp
from onager.state_backend import Keyspace

if TYPE_CHECKING:
    from tests.simulation.world import World

WATCHED = (
    Keyspace.Schedulers,
    Keyspace.Executors,
    Keyspace.Heartbeats,
    Keyspace.ExecutorLoads,
    Keyspace.JobHeads,
)


class Views:
    """Holds what schedulers believe against what is stored."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def differences(self) -> Iterator[tuple[str, object]]:
        """Yield what each scheduler that runs does not know, or believes and is not so."""
        for place in self._world.schedulers:
            is_running = place.process is not None and not place.process.is_paused and not place.is_store_down
            if place.scheduler is None or not is_running or place.is_leaving:
                continue
            known = {keyspace: _known(place.scheduler, keyspace) for keyspace in WATCHED}
            for keyspace, stored in self._world.observer.stored.items():
                for key, revision in stored.items():
                    if known[keyspace].get(key, 0) < revision:
                        yield f"{place.name}#{place.lives}", f"{keyspace}/{key} of r{revision}"
                for key in known[keyspace]:
                    if key not in stored and not (keyspace is Keyspace.Schedulers and key == place.name):
                        yield f"{place.name}#{place.lives}", f"that {keyspace}/{key} is gone"

    def agree(self) -> bool:
        """Return whether all know all."""
        return next(self.differences(), None) is None


def _known(scheduler: SchedulerApp, keyspace: Keyspace) -> Mapping[str, float]:
    """Return what the scheduler believes to be stored, and as of which revision."""
    registry = scheduler.executors.registry
    match keyspace:
        case Keyspace.Schedulers:
            return scheduler.schedulers._records.revisions()
        case Keyspace.Executors:
            return registry.revisions()
        case Keyspace.Heartbeats:
            return {key: float("inf") for key in registry._hearts if registry.is_beating(key)}  # not since when
        case Keyspace.ExecutorLoads:
            return scheduler.executors.loads.known.revisions()
        case _:
            return {head.job_id: scheduler.heads.revision(head.job_id) for head in scheduler.heads}
