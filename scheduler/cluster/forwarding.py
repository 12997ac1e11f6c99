"""The other schedulers as drivers of jobs, for as long as they live."""

import asyncio
from collections.abc import Mapping

from onager.ids import Incarnation, JobId, SchedulerId
from onager.scheduler import timing
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.cluster.remote_driver import RemoteDriver
from onager.scheduler.cluster.scheduler_calls import SchedulerCalls
from onager.supervision import Background


class Forwarding:
    """One `RemoteDriver` for each life of another scheduler."""

    def __init__(
        self, schedulers: LiveSchedulers, ownership: Ownership, loads: JobLoads, calls: SchedulerCalls
    ) -> None:
        self._schedulers = schedulers
        self._ownership = ownership
        self._loads = loads
        self.calls = calls
        self._drivers: dict[SchedulerId, tuple[Incarnation, RemoteDriver]] = {}
        self._background = Background()

    def driver_of(self, job_id: JobId) -> RemoteDriver | None:
        """Return the scheduler that drives the job; None when this one does, or when the driver does not answer."""
        scheduler_id = self._ownership.scheduler_of(job_id)
        if scheduler_id == self._schedulers.id:
            return None
        driver = self._driver(scheduler_id)
        return driver if driver is not None and driver.answers else None

    def drivers(self) -> Mapping[SchedulerId, RemoteDriver]:
        """Return the drivers of all live schedulers, by id."""
        found = {scheduler_id: self._driver(scheduler_id) for scheduler_id in self._ownership.others}
        return {scheduler_id: driver for scheduler_id, driver in found.items() if driver is not None}

    def _driver(self, scheduler_id: SchedulerId) -> RemoteDriver | None:
        record = self._schedulers.find(scheduler_id)
        if record is None:
            return None
        incarnation, driver = self._drivers.get(scheduler_id, (None, None))
        if driver is None or incarnation != record.incarnation:
            driver = RemoteDriver(scheduler_id, self._schedulers.id, self.calls, self._loads)
            self._drivers[scheduler_id] = (Incarnation(record.incarnation), driver)
        return driver

    async def run(self) -> None:
        """Tell the other schedulers the loads of jobs, for as long as this one lives."""
        await self._background.run(telling_others=self._tell())

    async def _tell(self) -> None:
        telling: dict[SchedulerId, asyncio.Task[None]] = {}
        while True:
            await asyncio.sleep(timing.LOADS_REPORTED_EVERY_S)
            for scheduler_id, driver in self.drivers().items():
                if driver.answers and (scheduler_id not in telling or telling[scheduler_id].done()):
                    telling[scheduler_id] = self._background.start(f"telling {scheduler_id}", driver.tell())
            for scheduler_id in [s for s in self._drivers if s not in self._ownership.others]:
                del self._drivers[scheduler_id]
            await self.calls.close_gone()

    async def close(self) -> None:
        """Close the connections."""
        await self.calls.close()
