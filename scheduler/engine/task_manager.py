"""Assigns tasks to slots, and passes executors' reports to the drivers of the jobs."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from onager.errors import DiskError
from onager.execution_graph import ExecutorSlot
from onager.ids import ExecutorId, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import Reports, by_job
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_driver import JobDriver, NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.engine.bundles import Env
from onager.scheduler.engine.feasibility import Feasibility, Fits
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.policy.fair_queue import FairQueue
from onager.scheduler.policy.reservations import ExecutorReservation, Filled, Launch, Updated

log = structlog.get_logger(__name__)

_ROUNDS: Final = 4
"""How often slots whose job had less to do than it seemed are offered to others, plus once for each job there is.

Each round skips one job that has nothing fit for the slots; any number of them may come before one that has.
"""


class TaskManager:
    """The tasks of all active jobs, whichever scheduler drives them."""

    def __init__(
        self,
        env: Env,
        local: LocalDriver,
        forwarding: Forwarding,
        queue: FairQueue,
        loads: JobLoads,
        feasibility: Feasibility,
    ) -> None:
        self._env = env
        self._local = local
        self._forwarding = forwarding
        self._queue = queue
        self._loads = loads
        self._feasibility = feasibility

    def _driver_of(self, job_id: JobId) -> JobDriver:
        return self._forwarding.driver_of(job_id) or self._local

    # ---------------------------------------------------------------- filling slots

    async def fill_reservations(self, reservations: Sequence[ExecutorReservation]) -> Filled:
        """Assign tasks to the executors of *reservations*, as many as there are tasks, and commit that.

        A slot goes to its own job while that is fair, else to the job with the fewest running tasks for its weight. A
        job that cannot be worked on now, or cannot use the executor, gets none, and does not hold up other jobs.
        """
        launches: list[Launch] = []
        waiting = list(reservations)
        for _ in range(_ROUNDS + self._queue.jobs):
            assigned, left = self._assign(waiting, self._feasibility.as_of_now())
            if not assigned:
                waiting = left
                break
            positions = {job_id: self._loads.position(job_id) for job_id in assigned}
            results = await asyncio.gather(*(self._fill_job(job, mine) for job, mine in assigned.items()))
            waiting = list(left)
            for job_id, filled in zip(assigned, results, strict=True):
                self._queue.note_granted(job_id, sum(launch.tasks for launch in filled.launches))
                launches += filled.launches
                waiting += filled.unfilled
                for executor_id in {reservation.executor_id for reservation in filled.unfilled}:
                    self._feasibility.found_nothing(job_id, executor_id, positions[job_id])
                if filled.unfilled:
                    self._queue.pass_over(job_id)  # other jobs may be able to use them
            if not waiting or not self._queue.has_runnable:
                break
        self._queue.reconsider()
        return Filled(launches, waiting)

    def _assign(
        self, reservations: Sequence[ExecutorReservation], fits: Fits
    ) -> tuple[dict[JobId, list[ExecutorReservation]], list[ExecutorReservation]]:
        assigned: dict[JobId, list[ExecutorReservation]] = defaultdict(list)
        left: list[ExecutorReservation] = []
        useless: set[ExecutorId] = set()
        for number, reservation in enumerate(reservations):
            executor_id = reservation.executor_id
            if number >= self._env.settings.max_launches_per_append or not self._queue.has_runnable:
                return assigned, left + list(reservations[number:])
            is_useless = executor_id in useless
            job_id = (
                None if is_useless else self._queue.take_job(reservation.job_id, partial(_fits_at, fits, executor_id))
            )
            if job_id is None:
                useless.add(executor_id)
                left.append(reservation)
            else:
                assigned[job_id].append(reservation)
        return assigned, left

    async def _fill_job(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        try:
            return await self._fill_by_driver(job_id, reservations)
        finally:
            self._queue.give_back_slots(job_id, len(reservations))

    async def _fill_by_driver(self, job_id: JobId, reservations: Sequence[ExecutorReservation]) -> Filled:
        driver = self._driver_of(job_id)
        if driver is not self._local:
            try:
                return await driver.fill_reservations(job_id, reservations)
            except NotDrivingError as error:
                log.info("driving_for_another", job_id=job_id, slots=len(reservations), why=str(error))
        try:
            return await self._local.fill_reservations(job_id, reservations)
        except NotDrivingError:
            self._loads.rest_job(job_id)
            return Filled([], reservations)

    # ---------------------------------------------------------------- reports

    async def update_task_statuses(self, executor: ExecutorSlot, reports: Reports, freed_slots: int) -> Updated:
        """Apply the reports of *executor*, and fill freed slots with next tasks of the same jobs.

        What could not be stored is not acknowledged, so that it is sent again.
        """
        by_driver: dict[JobDriver, dict[TaskKey, pb.TaskReport]] = defaultdict(dict)
        for job_id, of_job in by_job(reports).items():
            by_driver[self._driver_of(job_id)].update(of_job)
        work = []
        for driver, mine in by_driver.items():
            freed = min(freed_slots, len(mine))
            freed_slots -= freed
            work.append(self._update_by_driver(driver, executor, mine, freed))
        acknowledged: list[TaskKey] = []
        launches: list[Launch] = []
        left: list[ExecutorReservation] = [ExecutorReservation.of(executor)] * freed_slots
        disk_error: DiskError | None = None
        for updated in await asyncio.gather(*work):
            acknowledged += updated.acknowledged
            launches += updated.launches
            left += updated.reservations
            disk_error = updated.disk_error or disk_error
        return Updated(acknowledged, launches, left, disk_error)

    async def _update_by_driver(
        self, driver: JobDriver, executor: ExecutorSlot, reports: Reports, freed: int
    ) -> Updated:
        if driver is self._local:
            return await self._local.update_task_statuses(executor, reports, freed)
        try:
            updated = await driver.update_task_statuses(executor, reports, freed)
        except NotDrivingError as error:
            log.info("driving_for_another", executor_id=executor.executor_id, reports=len(reports), why=str(error))
            return await self._local.update_task_statuses(executor, reports, freed)
        if len(updated.acknowledged) == len(reports):
            return updated
        stored = set(updated.acknowledged)
        left = {key: report for key, report in reports.items() if key not in stored}
        if not left:
            return updated
        own = await self._local.update_task_statuses(executor, left, 0)
        acknowledged = [*updated.acknowledged, *own.acknowledged]
        return Updated(acknowledged, updated.launches, updated.reservations, own.disk_error)


def _fits_at(fits: Fits, executor_id: ExecutorId, job_id: JobId) -> bool:
    return fits(job_id, executor_id)
