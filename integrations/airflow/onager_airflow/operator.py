"""Tasks that are jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

import onager
from onager.errors import JobConflictError
from onager_airflow.durable import DurableOperator, exists
from onager_airflow.hook import OnagerHook


class OnagerOperator(DurableOperator):
    """Runs SQL as one durable job per try, and gives its id, the rows of its result, and where it wrote.

    *sql* is a text or a ``.sql`` file; one with several statements that write is a script. The other parameters are
    those of `OnagerClient.sql`: *output_path* is its ``output``, *parameters* its ``params``, *job_name* its ``name``.

    A worker that dies leaves the job running, and who takes its try up again waits for the same job. The next try of a
    script that failed goes on behind the last step that was committed, as long as the task is as it was.
    """

    template_fields: Sequence[str] = ("sql", "views", "conf", "output_path", "parameters", "labels", "job_name")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql", "views": "json", "conf": "json"}  # noqa: RUF012 - as Airflow has it

    def __init__(
        self,
        *,
        sql: str,
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
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

    def execute(self, context: Context) -> dict[str, object]:
        """Submit the try's job, or find it, and wait for it, here or in the triggerer."""
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            job = self._submitted(client, context)
            self.note(context, job.id)
            return self._result(job)

    def execute_complete(self, context: Context, event: Mapping[str, str]) -> dict[str, object]:
        """Go on when the trigger has fired."""
        del context
        if error := event.get("error"):
            raise AirflowException(f"job {event['job_id']}: {error}")
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            return self._result(client.job(event["job_id"]))

    def _submitted(self, client: onager.OnagerClient, context: Context) -> onager.JobHandle:
        mine, before = self.id_of_try(context), self.id_of_try(context, before=1)
        if self.is_taken_up(client, mine):
            return client.job(mine)
        if context["ti"].try_number > 1 and (failed := self._same(client, before)) is not None:
            return failed.retry(mine)
        return self._submit(client, mine)

    def _same(self, client: onager.OnagerClient, job_id: str) -> onager.JobHandle | None:
        """Return the job of the try before if it failed or was cancelled, and the task is as it was then."""
        if not exists(client, job_id):
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
