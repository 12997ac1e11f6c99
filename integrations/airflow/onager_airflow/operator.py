"""Tasks that are jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.configuration import conf as airflow_conf
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException

import onager
from onager.errors import JobConflictError, NotFoundError
from onager_airflow.hook import OnagerHook
from onager_airflow.ids import job_id_of
from onager_airflow.trigger import OnagerTrigger


class OnagerOperator(BaseOperator):
    """Runs SQL as one durable job per try, and gives its id, the rows of its result, and where it wrote.

    *sql* is a text or a ``.sql`` file; one with several statements that write is a script. The other parameters are
    those of `OnagerClient.sql`: *output_path* is its ``output``, *parameters* its ``params``, *job_name* its ``name``.

    A worker that dies leaves the job running, and who takes its try up again waits for the same job. The next try of a
    script that failed goes on behind the last step that was committed, as long as the task is as it was.
    """

    template_fields: Sequence[str] = ("sql", "views", "conf", "output_path", "parameters", "labels", "job_name")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "views": "json", "conf": "json"}  # noqa: RUF012 - as Airflow has it
    ui_color = "#e9d8a6"

    def __init__(
        self,
        *,
        sql: str,
        onager_conn_id: str = OnagerHook.default_conn_name,
        views: Mapping[str, str] | None = None,
        conf: Mapping[str, object] | None = None,
        output_path: str | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's own word for it
        mode: str = "error",
        partition_by: Sequence[str] = (),
        output_options: Mapping[str, str] | None = None,
        parameters: Mapping[str, object] | Sequence[object] | None = None,
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
        job_name: str | None = None,
        deferrable: bool = airflow_conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_s: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.onager_conn_id = onager_conn_id
        self.views = views
        self.conf = conf
        self.output_path = output_path
        self.format = format
        self.mode = mode
        self.partition_by = partition_by
        self.output_options = output_options
        self.parameters = parameters
        self.labels = labels
        self.deadline = deadline
        self.job_name = job_name
        self.deferrable = deferrable
        self.poll_s = poll_s
        self._job_id = ""

    def execute(self, context: Context) -> dict[str, object]:
        """Submit the try's job, or find it, and wait for it, here or in the triggerer."""
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            job = self._submitted(client, context)
            self._job_id = job.id
            self.log.info("Job %s; onager job %s shows it.", job.id, job.id)
            context["ti"].xcom_push(key="job_id", value=job.id)
            if self.deferrable:
                trigger = OnagerTrigger(job.id, self.onager_conn_id, self.poll_s)
                self.defer(trigger=trigger, method_name="execute_complete")
            return self._result(job)

    def execute_complete(self, context: Context, event: Mapping[str, str]) -> dict[str, object]:
        """Go on when the trigger has fired."""
        del context
        if error := event.get("error"):
            raise AirflowException(f"job {event['job_id']}: {error}")
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            return self._result(client.job(event["job_id"]))

    def on_kill(self) -> None:
        """Cancel the job."""
        if self._job_id:
            with OnagerHook(self.onager_conn_id).get_conn() as client:
                client.job(self._job_id).cancel("its task was stopped in Airflow")

    def _submitted(self, client: onager.OnagerClient, context: Context) -> onager.JobHandle:
        ti = context["ti"]
        index = -1 if ti.map_index is None else ti.map_index
        mine, before = (
            job_id_of(ti.dag_id, ti.run_id, ti.task_id, index, number) for number in (ti.try_number, ti.try_number - 1)
        )
        if _exists(client, mine):
            self.log.info("This try has its job already: its worker must have gone.")
            return client.job(mine)
        if ti.try_number > 1 and (failed := self._same(client, before)) is not None:
            return failed.retry(mine)
        return self._submit(client, mine)

    def _same(self, client: onager.OnagerClient, job_id: str) -> onager.JobHandle | None:
        """Return the job of the try before if it failed or was cancelled, and the task is as it was then."""
        if not _exists(client, job_id):
            return None
        state = client.job(job_id).progress().state
        if state not in (onager.JobState.FAILED, onager.JobState.CANCELLED):
            return None
        try:
            return self._submit(client, job_id)
        except JobConflictError:
            return None

    def _submit(self, client: onager.OnagerClient, job_id: str) -> onager.JobHandle:
        return client.sql(
            self.sql,
            views=self.views,
            conf=self.conf,
            name=self.job_name or f"{self.dag_id}.{self.task_id}",
            output=self.output_path,
            format=self.format,
            mode=self.mode,
            partition_by=self.partition_by,
            output_options=self.output_options,
            params=self.parameters,
            labels=self.labels,
            deadline=self.deadline,
            job_id=job_id,
        )

    def _result(self, job: onager.JobHandle) -> dict[str, object]:
        try:
            done = job.wait()
        except (onager.JobFailedError, onager.JobCancelledError) as error:
            raise AirflowException(str(error)) from error
        return {"job_id": job.id, "rows": done.result_rows, "path": done.sink_path}


def _exists(client: onager.OnagerClient, job_id: str) -> bool:
    try:
        client.job(job_id).progress()
    except NotFoundError:
        return False
    return True
