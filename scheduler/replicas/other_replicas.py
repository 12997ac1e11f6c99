"""The other replicas as actors on jobs, for as long as they live."""

import asyncio
from collections.abc import Mapping
from typing import Final

from onager.ids import Incarnation, JobId, SchedulerId
from onager.supervision import Background
from scheduler.replicas.acting import Acting
from scheduler.replicas.peer_calls import PeerCalls
from scheduler.replicas.peers import Peers
from scheduler.replicas.remote_actor import RemoteActor
from scheduler.tasks.job_loads import JobLoads

_TELL_EVERY_S: Final = 0.2
"""How often other replicas are told how much the jobs of this one have to do, where that has changed."""


class OtherReplicas:
    """One `RemoteActor` for each life of another replica."""

    def __init__(self, peers: Peers, acting: Acting, loads: JobLoads, calls: PeerCalls) -> None:
        self._peers = peers
        self._acting = acting
        self._loads = loads
        self._calls = calls
        self._actors: dict[SchedulerId, tuple[Incarnation, RemoteActor]] = {}
        self._background = Background()

    def actor_of(self, job_id: JobId) -> RemoteActor | None:
        """Return the other replica that acts on the job; None when it is this one, or that one is silent."""
        scheduler_id = self._acting.who(job_id)
        if scheduler_id == self._peers.id:
            return None
        actor = self._actor(scheduler_id)
        return actor if actor is not None and actor.answers else None

    def actors(self) -> Mapping[SchedulerId, RemoteActor]:
        """Return all that live, by id."""
        found = {scheduler_id: self._actor(scheduler_id) for scheduler_id in self._acting.others}
        return {scheduler_id: actor for scheduler_id, actor in found.items() if actor is not None}

    def _actor(self, scheduler_id: SchedulerId) -> RemoteActor | None:
        record = self._peers.find(scheduler_id)
        if record is None:
            return None
        incarnation, actor = self._actors.get(scheduler_id, (None, None))
        if actor is None or incarnation != record.incarnation:
            actor = RemoteActor(scheduler_id, self._peers.id, self._calls, self._loads)
            self._actors[scheduler_id] = (Incarnation(record.incarnation), actor)
        return actor

    async def run(self) -> None:
        """Tell the others what they have to know, for as long as the scheduler lives."""
        await self._background.run(telling_others=self._tell())

    async def _tell(self) -> None:
        telling: dict[SchedulerId, asyncio.Task[None]] = {}
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            for scheduler_id, actor in self.actors().items():
                if actor.answers and (scheduler_id not in telling or telling[scheduler_id].done()):
                    telling[scheduler_id] = self._background.start(f"telling {scheduler_id}", actor.tell())
            for scheduler_id in [s for s in self._actors if s not in self._acting.others]:
                del self._actors[scheduler_id]
            await self._calls.close_gone()

    async def close(self) -> None:
        """Close the connections."""
        await self._calls.close()
