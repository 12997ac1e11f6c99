"""One interface for driving jobs, whether this scheduler drives them or another one."""

from collections.abc import Sequence
from typing import Protocol

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, TaskKey
from onager.protocol.task_keys import Reports
from onager.scheduler.policy.reservations import Compared, ExecutorReservation, Filled, Updated


class NotDrivingError(Exception):
    """The job's driver did not do the work: the caller does it itself."""


class JobDriver(Protocol):
    """Drives jobs; a method may raise `NotDrivingError`, and then it is unknown whether the call took effect.

    `LocalDriver` is this scheduler, `RemoteDriver` another one; `TaskManager` chooses.
    """

    async def update_task_statuses(self, executor: ExecutorSlot, reports: Reports, freed: int) -> Updated:
        """Apply the reports of *executor*, and assign up to *freed* next tasks of the same jobs to it."""
        ...

    async def fill_reservations(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Assign tasks of the job to the executors of *reservations*, and commit that."""
        ...

    async def compare_tasks(self, slot: ExecutorSlot, held: Sequence[TaskKey], *, disproves: bool) -> Compared:
        """Return what follows from the list of tasks that an executor *held* of the driver's jobs.

        With *disproves*, launches that are older than the list and missing from it never arrived.
        """
        ...
