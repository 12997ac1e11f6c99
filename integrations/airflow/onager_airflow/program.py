"""Tasks that are programs of PySpark."""

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

import onager
from onager.client.program import ProgramHandle
from onager_airflow.durable import DurableOperator
from onager_airflow.hook import OnagerHook


class OnagerProgramOperator(DurableOperator):
    """Runs a program of PySpark in the cluster, one for each try, and gives its id and its exit code.

    *application* is the program's file, *application_args* its arguments, *env_vars* variables of its environment. The
    other parameters are those of `OnagerClient.run`; *job_name* is its ``name``.

    What the program prints is in the task's log. A worker that dies leaves the program running, and who takes its try
    up again shows the same program. The next try is a new program: the one before has ended, or was cancelled.
    """

    template_fields: Sequence[str] = (
        *("application", "application_args", "py_files", "files", "archives", "env_vars", "conf", "labels", "job_name"),
    )
    template_fields_renderers = {"conf": "json"}  # noqa: RUF012 - as Airflow has it

    def __init__(
        self,
        *,
        application: str,
        application_args: Sequence[str] = (),
        py_files: Sequence[str] = (),
        files: Sequence[str] = (),
        archives: Sequence[str] = (),
        env_vars: Mapping[str, str] | None = None,
        conf: Mapping[str, object] | None = None,
        labels: Mapping[str, str] | None = None,
        deadline: str | None = None,
        job_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.application_args = application_args
        self.py_files = py_files
        self.files = files
        self.archives = archives
        self.env_vars = env_vars
        self.conf = conf
        self.labels = labels
        self.deadline = deadline
        self.job_name = job_name

    def execute(self, context: Context) -> dict[str, object]:
        """Hand in the try's program, or find it, and show it until it has ended, here or in the triggerer."""
        mine = self.id_of_try(context)
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            program = client.program(mine) if self.is_taken_up(client, mine) else self._handed_in(client, mine)
            self.note(context, mine)
            return self._result(program)

    def execute_complete(self, context: Context, event: Mapping[str, str]) -> dict[str, object]:
        """Go on when the trigger has fired."""
        del context
        if error := event.get("error"):
            raise AirflowException(f"program {event['job_id']}: {error}")
        with OnagerHook(self.onager_conn_id).get_conn() as client:
            return self._result(client.program(event["job_id"]))

    def _handed_in(self, client: onager.OnagerClient, program_id: str) -> ProgramHandle:
        return client.run(
            self.application,
            args=self.application_args,
            py_files=self.py_files,
            files=self.files,
            archives=self.archives,
            environment=self.env_vars,
            conf=self.conf,
            name=self.job_name or f"{self.dag_id}.{self.task_id}",
            labels=self.labels,
            deadline=self.deadline,
            program_id=program_id,
        )

    def _result(self, program: ProgramHandle) -> dict[str, object]:
        self._show(program)
        try:
            code = program.wait()
        except (onager.JobFailedError, onager.JobCancelledError) as error:
            raise AirflowException(str(error)) from error
        if code:
            raise AirflowException(f"program {program.id} ended with exit code {code}")
        return {"job_id": program.id, "exit_code": code}

    def _show(self, program: ProgramHandle) -> None:
        """Log what the program prints, line by line, until it has ended."""
        begun = {False: b"", True: b""}
        for printed in program.output(follow=True):
            if printed.left_out:
                self.log.warning("%s bytes of its output were not kept", f"{printed.left_out:,}")
            *lines, begun[printed.is_error] = (begun[printed.is_error] + printed.text).split(b"\n")
            for line in lines:
                self.log.info("%s", line.decode(errors="replace"))
        for rest in filter(None, begun.values()):
            self.log.info("%s", rest.decode(errors="replace"))
