"""What waits for a job in the triggerer, so that no worker has to."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

import onager
from onager_airflow.hook import client_of


class OnagerTrigger(BaseTrigger):
    """Fires when a job has ended. Any triggerer may go on with it: all that it knows is the job's id."""

    def __init__(self, job_id: str, onager_conn_id: str, poll_s: float) -> None:
        super().__init__()
        self.job_id = job_id
        self.onager_conn_id = onager_conn_id
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the trigger is made of again elsewhere."""
        fields = {"job_id": self.job_id, "onager_conn_id": self.onager_conn_id, "poll_s": self.poll_s}
        return "onager_airflow.trigger.OnagerTrigger", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask for the job's state now and then, in a thread: schedulers may take a while to be back."""
        with await self._client() as client:
            job = client.job(self.job_id)
            while True:
                try:
                    progress = await asyncio.to_thread(job.progress)
                except onager.SchedulerUnreachableError as error:
                    self.log.warning("Job %s goes on; no scheduler tells how: %s", self.job_id, error)
                except onager.OnagerError as error:
                    yield TriggerEvent({"job_id": self.job_id, "error": str(error)})
                    return
                else:
                    if progress.state.is_final:
                        yield TriggerEvent({"job_id": self.job_id})
                        return
                await asyncio.sleep(self.poll_s)

    async def on_kill(self) -> None:
        """Cancel the job: somebody has marked or cleared its task."""
        with await self._client() as client:
            await asyncio.to_thread(client.job(self.job_id).cancel, "its task was marked or cleared in Airflow")

    async def _client(self) -> onager.OnagerClient:
        return client_of(await BaseHook.aget_connection(self.onager_conn_id))
