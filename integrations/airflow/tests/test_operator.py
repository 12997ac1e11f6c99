"""Tasks that are jobs, as Airflow runs them."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from cluster import Cluster, until
from onager_airflow.ids import job_id_of
from onager_airflow.operator import OnagerOperator

import onager
from tests.dags import onager_dags

pytestmark = pytest.mark.usefixtures("airflow", "cluster")


def run(name: str) -> Any:
    """Run a DAG to its end, and return the run."""
    return getattr(onager_dags, name).test(logical_date=datetime(2026, 3, 1, tzinfo=UTC))


def jobs_of(client: onager.OnagerClient, task: str) -> list[onager.JobProgress]:
    return [job for job in client.jobs() if job.name == task]


def test_a_query_is_a_job_and_tells_its_rows(client):
    done = run("query")
    assert done.state == "success"
    for task in ("waits", "defers"):
        (job,) = jobs_of(client, f"query.{task}")
        assert job.job_id == job_id_of("query", done.run_id, task, -1, 1)
        assert job.result_rows == 3
        assert dict(job.labels) == {"team": "sales"}
        assert client.job(job.job_id).to_arrow().to_pylist()[0] == {"day": "2026-03-01", "n": 7}


def test_a_query_that_fails_fails_its_task(client):
    done = run("fails")
    assert done.state == "failed"
    assert [ti.state for ti in done.get_task_instances()] == ["failed", "failed"]
    assert [job.state for task in ("waits", "defers") for job in jobs_of(client, f"fails.{task}")] == [
        onager.JobState.FAILED
    ] * 2


def test_each_mapped_task_has_a_job(client):
    assert run("mapped").state == "success"
    assert len({job.job_id for job in jobs_of(client, "mapped.each")}) == 2


def test_tasks_succeed_whose_scheduler_is_killed_meanwhile(client, cluster: Cluster):
    def kill() -> None:
        for task in ("waits", "defers"):
            until(lambda: jobs_of(client, f"long.{task}"), f"the job of {task}")  # noqa: B023
            cluster.child("scheduler").kill()

    killing = threading.Thread(target=kill)
    killing.start()
    done = run("long")
    killing.join()
    assert done.state == "success"
    assert [len(jobs_of(client, f"long.{task}")) for task in ("waits", "defers")] == [1, 1]


# ---------------------------------------------------------------- tries, one by one


class Try:
    """A try of a task instance, as an operator sees it."""

    def __init__(self, number: int, map_index: int = -1) -> None:
        self.pushed: dict[str, object] = {}
        self.ti = SimpleNamespace(
            dag_id="Über Tries!",
            run_id="manual__2026-03-01T00:00:00+00:00",
            task_id="load.all",
            map_index=map_index,
            try_number=number,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
        )

    @property
    def context(self) -> Mapping[str, Any]:
        return {"ti": self.ti}

    def run(self, sql: str, **kwargs: Any) -> Any:
        return OnagerOperator(task_id="load", sql=sql, **kwargs).execute(self.context)


def test_a_try_that_is_taken_up_again_waits_for_the_same_job(client):
    first, again = (Try(1, map_index=5).run("SELECT uuid() AS u") for _ in range(2))
    assert first == again
    cleared = Try(2, map_index=5).run("SELECT uuid() AS u")
    assert cleared["job_id"].endswith("-2"), "it had succeeded, and runs anew"
    assert client.job(cleared["job_id"]).progress().retry_of == ""
    assert len([job for job in client.jobs() if job.job_id == first["job_id"]]) == 1
    assert first["job_id"].startswith("af-ber-tries-load-all-")


def test_the_next_try_of_a_script_goes_on_behind_its_last_good_step(client, tmp_path):
    sql = (
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/a' USING json SELECT uuid() AS u;"
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/b' USING json SELECT * FROM json.`{tmp_path}/late`"
    )
    with pytest.raises(AirflowException, match="PATH_NOT_FOUND"):
        Try(1).run(sql)
    before = (tmp_path / "a").stat()
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "x.json").write_text('{"k": 1}\n')
    done = Try(2).run(sql)
    assert done["job_id"].endswith("-2")
    assert client.job(done["job_id"]).progress().retry_of.endswith("-1")
    assert (tmp_path / "a").stat().st_ino == before.st_ino, "the first step was not run again"


def test_the_next_try_of_another_text_is_a_job_of_its_own(client):
    with pytest.raises(AirflowException, match="DIVIDE_BY_ZERO"):
        Try(1, map_index=1).run("SELECT 1 / 0")
    done = Try(2, map_index=1).run("SELECT 1 / 1")
    assert done["rows"] == 1
    assert client.job(done["job_id"]).progress().retry_of == ""


def test_a_task_that_is_stopped_cancels_its_job(client):
    attempt = Try(1, map_index=2)
    endless = "SELECT count(*) FROM range(1000000000000) WHERE crc32(string(id)) = 1"
    operator = OnagerOperator(task_id="load", sql=endless)
    found: list[Exception] = []

    def execute() -> None:
        try:
            operator.execute(attempt.context)
        except AirflowException as error:
            found.append(error)

    running = threading.Thread(target=execute)
    running.start()
    job_id = until(lambda: attempt.pushed.get("job_id"), "its job")
    operator.on_kill()
    running.join(60)
    assert "cancelled" in str(found[0])
    assert client.job(str(job_id)).progress().state is onager.JobState.CANCELLED


def test_an_extra_that_is_not_known_is_named(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_ODD", '{"conn_type": "onager", "host": "127.0.0.1:1", "extra": {"tls": "x"}}')
    with pytest.raises(ValueError, match="connection odd has tls: it may have tls_ca, "):
        Try(1, map_index=3).run("SELECT 1", onager_conn_id="odd")


def test_the_dag_of_the_documentation_runs_as_printed(client, tmp_path):
    text = Path(os.environ["ONAGER_ROOT"], "docs", "airflow.md").read_text()
    (dag,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "sales.py").write_text(dag)
    subprocess.run(
        [sys.executable, "-m", "airflow", "dags", "test", "sales", "2026-03-01"],
        check=True,
        capture_output=True,
        env={**os.environ, "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)},
    )
    (job,) = jobs_of(client, "sales.load")
    assert client.job(job.job_id).to_arrow().to_pylist() == [{"day": "2026-03-01", "n": 100}]
