"""The DAGs of the tests, in a folder as Airflow reads it."""

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG
from onager_airflow.operator import OnagerOperator
from onager_airflow.program import OnagerProgramOperator

START = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("query", schedule=None, start_date=START) as query:
    for name, deferrable in (("waits", False), ("defers", True)):
        OnagerOperator(
            task_id=name,
            sql="SELECT '{{ ds }}' AS day, :n AS n FROM range(3)",
            parameters={"n": 7},
            labels={"team": "sales"},
            deferrable=deferrable,
            poll_s=0.2,
        )

with DAG("fails", schedule=None, start_date=START) as fails:
    for name, deferrable in (("waits", False), ("defers", True)):
        OnagerOperator(task_id=name, sql="SELECT 1 / 0", deferrable=deferrable, poll_s=0.2)

with DAG("mapped", schedule=None, start_date=START) as mapped:
    OnagerOperator.partial(task_id="each", sql="SELECT :n AS n").expand(parameters=[{"n": 1}, {"n": 2}])

with DAG("long", schedule=None, start_date=START) as long:
    for name, deferrable in (("waits", False), ("defers", True)):
        OnagerOperator(
            task_id=name,
            sql="SELECT sum(crc32(sha2(repeat(CAST(id AS STRING), 200), 512))) AS s FROM range(0, 1500000, 1, 6)",
            conf={"onager.fusion.maxBytes": 0},
            deferrable=deferrable,
            poll_s=0.2,
        )

with DAG("program", schedule=None, start_date=START) as program:
    for name, deferrable in (("waits", False), ("defers", True)):
        OnagerProgramOperator(
            task_id=name,
            application=str(Path(__file__).with_name("program.py")),
            application_args=["{{ ds }}", "3"],
            labels={"team": "sales"},
            deferrable=deferrable,
            poll_s=0.2,
        )
