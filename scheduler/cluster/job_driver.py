"""Driving jobs: whoever does it, this scheduler or another one, by one interface."""

from collections.abc import Sequence
from typing import Protocol

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.scheduler.policy.reservations import Compared, ExecutorReservation, Filled, Updated


class NotDrivingError(Exception):
    """Who should act on a job does not: whoever has the work in hand acts itself."""


class JobDriver(Protocol):
    """Acts on jobs. Each method may raise `NotDrivingError`, and then it is unknown what became of the call."""

    async def update(self, executor: ExecutorSlot, reports: Sequence[pb.TaskReport], freed: int) -> Updated:
        """Apply what *executor* reports, and hand it up to *freed* next tasks of the same jobs."""
        ...

    async def fill(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Hand tasks of the job to the executors of *reservations*, and commit that."""
        ...

    async def compare(self, slot: ExecutorSlot, held: Sequence[TaskKey], *, disproves: bool) -> Compared:
        """Say what follows from the list of what an executor *held* of the actor's jobs.

        With *disproves*, launches that are known to be older than the list and are not in it never arrived.
        """
        ...
