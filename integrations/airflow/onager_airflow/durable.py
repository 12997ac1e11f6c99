"""What operators have in common whose tasks are jobs."""

from typing import Any

from airflow.configuration import conf as airflow_conf
from airflow.sdk import BaseOperator, Context

import onager
from onager.errors import NotFoundError
from onager_airflow.hook import OnagerHook
from onager_airflow.ids import job_id_of
from onager_airflow.trigger import OnagerTrigger


class DurableOperator(BaseOperator):
    """The base of operators whose tasks are jobs: one for each try, which goes on without its worker."""

    ui_color = "#e9d8a6"

    def __init__(
        self,
        *,
        onager_conn_id: str = OnagerHook.default_conn_name,
        deferrable: bool = airflow_conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.onager_conn_id = onager_conn_id
        self.deferrable = deferrable
        self.poll_s = poll_s
        self._job_id = ""

    def on_kill(self) -> None:
        """Cancel the job."""
        if self._job_id:
            with OnagerHook(self.onager_conn_id).get_conn() as client:
                client.job(self._job_id).cancel("its task was stopped in Airflow")

    def id_of_try(self, context: Context, *, before: int = 0) -> str:
        """Return the id of the job of this try, or of one so many tries before it."""
        ti = context["ti"]
        index = -1 if ti.map_index is None else ti.map_index
        return job_id_of(ti.dag_id, ti.run_id, ti.task_id, index, ti.try_number - before)

    def is_taken_up(self, client: onager.OnagerClient, job_id: str) -> bool:
        """Return whether this try has a job already."""
        if not exists(client, job_id):
            return False
        self.log.info("This try has its job already: its worker must have gone.")
        return True

    def note(self, context: Context, job_id: str) -> None:
        """Tell Airflow of the job, and wait for it in the triggerer if that is wanted."""
        self._job_id = job_id
        self.log.info("Job %s; onager job %s shows it.", job_id, job_id)
        context["ti"].xcom_push(key="job_id", value=job_id)
        if self.deferrable:
            trigger = OnagerTrigger(job_id, self.onager_conn_id, self.poll_s)
            self.defer(trigger=trigger, method_name="execute_complete")


def exists(client: onager.OnagerClient, job_id: str) -> bool:
    """Return whether there is a job of that id."""
    try:
        client.job(job_id).progress()
    except NotFoundError:
        return False
    return True
