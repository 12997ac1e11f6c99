"""Decide and commit: all decisions about a job that are made while one append is in flight share the next.

One append costs the store a synchronous write, whatever its size. So deciders of one job queue up, see each other's
events, and are committed together: all of a round, or none if another scheduler was first, and then they decide again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from onager.clock import Clock
from onager.errors import CatalogConflictError, StateUnavailableError
from onager.execution_graph import Event, ExecutionGraph, apply, apply_all, refusal, revive
from onager.ids import JobId
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import Committed, JobStore, Lost, Refused
from onager.supervision import is_cancelled

log = structlog.get_logger(__name__)


class Decision(NamedTuple):
    """Events, and the graph that they lead to if the decider has computed it already."""

    events: Sequence[Event]
    after: ExecutionGraph | None = None


class Recorded(NamedTuple):
    """The result of a decision."""

    graph: ExecutionGraph
    """The graph as stored."""
    events: Sequence[Event]
    """The committed events of this decision."""


Decide = Callable[[ExecutionGraph], Decision]
"""Looks at a committed graph and returns what happened; `QueryCoordinator` makes most of them.

Pure; may be called again, and then its last answer counts."""

MAX_EVENTS_PER_APPEND: Final = 4_096
"""A round with this many events is committed before more is decided."""


@dataclass(slots=True)
class _Asked:
    decide: Decide
    done: "asyncio.Future[Recorded]"
    events: Sequence[Event] = ()
    """The decider's last answer."""


class JobWriters:
    """One queue of deciders for each job that is being worked on."""

    def __init__(self, jobs: JobStore, clock: Clock, is_followed: Callable[[JobId], bool] = lambda _: True) -> None:
        """Begin with the cached job if *is_followed* says so, else with the stored one."""
        self._jobs = jobs
        self._is_followed = is_followed
        self._clock = clock
        self._queues: dict[JobId, deque[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.appends = 0
        """The number of appends tried, for metrics."""
        self.conflicts = 0
        """The number of appends lost to another scheduler."""

    async def record_decision(self, job_id: JobId, decide: Decide) -> Recorded:
        """Decide on the job's graph, commit the events, and return them with the graph that is stored then.

        The same append starts resolved stages. Raises what loading or storing raises, and what *decide* raises; then
        nothing of the decision is stored.
        """
        done: asyncio.Future[Recorded] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(job_id)
        asked = _Asked(decide, done)
        if queue is None:
            self._queues[job_id] = queue = deque([asked])
            task = asyncio.create_task(self._work_off(job_id, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            queue.append(asked)
        return await done

    def is_writing(self, job_id: JobId) -> bool:
        """Return whether a decision or write for the job is in progress."""
        return job_id in self._queues

    async def close(self) -> None:
        """Wait for the writes in flight."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_off(self, job_id: JobId, queue: deque[_Asked]) -> None:
        taken: list[_Asked] = []
        try:
            while queue:
                taken = []
                await self._round(job_id, queue, taken)
        except (Exception, asyncio.CancelledError) as error:
            # The cancellation of this task must not cancel the callers.
            raised = error if isinstance(error, Exception) else StateUnavailableError("the writing was broken off")
            for asked in (*taken, *queue):
                if not asked.done.done():
                    asked.done.set_exception(raised)
            if is_cancelled():
                raise
        finally:
            del self._queues[job_id]

    async def _round(self, job_id: JobId, queue: deque[_Asked], taken: list[_Asked]) -> None:
        may_be_cached = self._is_followed(job_id)
        while True:
            job = await (self._jobs.get(job_id) if may_be_cached else self._jobs.fresh(job_id))
            may_be_cached = False
            graph, events = self._decide(job, queue, taken)
            if not events:
                break
            self.appends += 1
            match await self._jobs.commit(job, tuple(events), graph):
                case Committed():
                    break
                case Lost():
                    self.conflicts += 1
                case Refused() as refused:
                    await self._refuse(job, events, refused)
        for asked in taken:
            if not asked.done.done():
                asked.done.set_result(Recorded(graph, asked.events))

    async def _refuse(self, job: StoredJob, events: Sequence[Event], refused: Refused) -> None:
        """Commit that the task fails whose success would have ended the job; then all is decided again."""
        event = refusal(job.graph, events, refused.why, self._clock.now_ms(), is_conflict=refused.is_conflict)
        graph = apply(job.graph, event)
        log.info("catalog_changes_refused", job_id=job.graph.job_id, why=refused.why, fails=not graph.is_active)
        if graph is job.graph:
            raise CatalogConflictError("the catalog", refused.why)
        await self._jobs.commit(job, (event,), graph)

    def _decide(self, job: StoredJob, queue: deque[_Asked], taken: list[_Asked]) -> tuple[ExecutionGraph, list[Event]]:
        """Ask the deciders in *taken* again, then more of *queue* until the round is full."""
        graph, events = job.graph, list[Event]()
        waiting = deque(taken)
        while waiting or (queue and len(events) < MAX_EVENTS_PER_APPEND):
            if waiting:
                asked = waiting.popleft()
            else:
                asked = queue.popleft()
                taken.append(asked)
            if asked.done.done():
                continue
            try:
                decided = asked.decide(graph)
            except Exception as error:  # noqa: BLE001 - the caller gets it; the others of the round go on
                asked.done.set_exception(error)
                continue
            after = apply_all(graph, decided.events) if decided.after is None else decided.after
            asked.events = () if after is graph else decided.events
            events += asked.events
            graph = after
        started = revive(graph, self._clock.now_ms()) if events else None
        if started is not None:
            events.append(started)
            graph = apply_all(graph, (started,))
        return graph, events
