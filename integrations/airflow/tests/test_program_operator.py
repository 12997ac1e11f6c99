"""Tasks that are programs of PySpark, as Airflow runs them."""

import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from cluster import until
from onager_airflow.ids import job_id_of
from onager_airflow.program import OnagerProgramOperator

import onager
from tests.dags import onager_dags
from tests.test_operator import Try, jobs_of, run

pytestmark = pytest.mark.usefixtures("airflow", "cluster")
PROGRAM = str(Path(onager_dags.__file__).with_name("program.py"))


def operator(*args: str, **kwargs: Any) -> OnagerProgramOperator:
    return OnagerProgramOperator(task_id="load", application=PROGRAM, application_args=["today", *args], **kwargs)


def test_a_program_is_a_task_whose_log_shows_what_it_prints(client, capsys):
    done = run("program")
    assert capsys.readouterr().out.count("2026-03-01 step 2 20") == 2, "in the log of each"
    assert done.state == "success"
    for task in ("waits", "defers"):
        (job,) = jobs_of(client, f"program.{task}")
        assert job.job_id == job_id_of("program", done.run_id, task, -1, 1)
        assert dict(job.labels) == {"team": "sales"}
        printed = b"".join(each.text for each in client.program(job.job_id).output() if not each.is_error)
        assert printed.decode().splitlines() == [f"2026-03-01 step {n} {10 * n}" for n in range(3)]


def test_its_result_and_its_log_are_those_of_the_program(client, capsys):
    attempt = Try(1, map_index=10)
    done = operator("2").execute(attempt.context)
    assert done == {"job_id": attempt.pushed["job_id"], "exit_code": 0}
    logged = capsys.readouterr().out
    assert logged.index("today step 0 0") < logged.index("today step 1 10")
    assert logged.count("today step") == 2


def test_a_try_that_is_taken_up_again_shows_the_same_program(client):
    attempt = Try(1, map_index=11)
    gone = threading.Thread(target=operator("15").execute, args=[attempt.context])
    gone.start()
    until(lambda: attempt.pushed.get("job_id"), "its program")
    again = operator("15").execute(Try(1, map_index=11).context)
    gone.join(60)
    assert again["job_id"] == attempt.pushed["job_id"]
    assert client.program(again["job_id"]).info().attempt == 1, "it was not begun again"


def test_a_program_that_fails_fails_its_try_and_the_next_try_is_a_new_one(client):
    with pytest.raises(AirflowException, match="-1 ended with exit code 5"):
        operator("1", "5").execute(Try(1, map_index=12).context)
    done = operator("1").execute(Try(2, map_index=12).context)
    assert done["job_id"].endswith("-2")
    assert client.job(done["job_id"]).progress().retry_of == ""


def test_a_task_that_is_stopped_cancels_its_program(client):
    attempt = Try(1, map_index=13)
    task = operator("100000")
    found: list[Exception] = []

    def execute() -> None:
        try:
            task.execute(attempt.context)
        except AirflowException as error:
            found.append(error)

    running = threading.Thread(target=execute)
    running.start()
    program_id = str(until(lambda: attempt.pushed.get("job_id"), "its program"))
    until(lambda: client.program(program_id).info().attempt, "its first attempt")
    task.on_kill()
    running.join(60)
    assert "cancelled" in str(found[0])
    assert client.job(program_id).progress().state is onager.JobState.CANCELLED
    assert client.program(program_id).info().ended
