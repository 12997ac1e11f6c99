"""Who names blobs that jobs name, too, and soon not any more: submissions that break off, in a few seeds many of them.

So blobs are collected all the time while jobs begin to name them, as happens where jobs come and go for days.
"""

import asyncio
import random  # noqa: TID251 seeded
from typing import TYPE_CHECKING

from onager.ids import JobId
from onager.scheduler.engine.planning import explanation
from onager.scheduler.jobs.blobs import BlobStore, digest_of
from onager.state_backend.memory import MemoryBackend
from tests.simulation.data import JobPlan, outcome_of
from tests.simulation.processes import SimulatedBackend

if TYPE_CHECKING:
    from tests.simulation.world import World

_DIGIT = 8
"""Seeds that end so have them: one in ten, and known from afar."""
_AT_ONCE = 2


class Passers:
    """They come for as long as jobs are submitted."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"passers {world.seed}")
        self._is_due = world.seed % 10 == _DIGIT
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, shapes: list[JobPlan]) -> None:
        """Name and release what jobs of these *shapes* name, again and again."""
        if not self._is_due:
            return
        outcomes = [outcome_of(plan) for plan in shapes]
        contents = {blob.content for outcome in outcomes for blob in outcome.blobs}
        contents |= {explanation(outcome) for outcome in outcomes}
        for number in range(_AT_ONCE):
            self._tasks.append(self._world.loop.spawn(self._world.loop.world, self._pass(number, sorted(contents))))

    def end(self) -> None:
        """Let no more come; those that are there leave."""
        self._is_due = False

    @property
    def are_gone(self) -> bool:
        """Return whether all have left."""
        return all(task.done() for task in self._tasks)

    async def _pass(self, number: int, contents: list[bytes]) -> None:
        store = MemoryBackend(self._world.store)
        backend = SimulatedBackend(self._world, store, lambda _: None, lambda: self._rng.uniform(0.0, 0.02))
        turn = 0
        while self._is_due:
            turn += 1
            job_id, blobs = JobId(f"passer-{number}-{turn}"), BlobStore(backend)
            named = self._rng.sample(contents, min(len(contents), 3))
            await blobs.put(job_id, named)
            await asyncio.sleep(self._rng.uniform(0.0, 0.1))
            await blobs.release(job_id, [digest_of(content) for content in named])
        await store.close()
