"""A real cluster on this machine, or a server of Spark Connect that runs, and a dbt that knows only its address."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1] / "project"
DBT = Path(sys.executable).with_name("dbt")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | None]:
    """A cluster of Onager's; None where another server is named."""
    if os.environ.get("ONAGER_DBT_REMOTE"):
        yield None
        return
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def remote(cluster: Cluster | None) -> str:
    """Where Spark Connect is served."""
    return os.environ["ONAGER_DBT_REMOTE"] if cluster is None else f"sc://{cluster.address}"


@pytest.fixture(scope="session")
def spark(remote: str) -> Iterator[SparkSession]:
    """A session to make what dbt reads, and to look at what it made."""
    made = SparkSession.builder.remote(remote).getOrCreate()
    yield made
    made.stop()


class Shop:
    """Tables of orders and customers in a database of their own, and dbt over them."""

    def __init__(self, spark: SparkSession, remote: str, directory: Path) -> None:
        self.spark = spark
        name = uuid.uuid4().hex[:8]
        self.raw, self.schema = f"raw_{name}", f"shop_{name}"
        self.directory = directory
        self.environment = {
            **os.environ,
            "SPARK_REMOTE": remote,
            "DBT_RAW_SCHEMA": self.raw,
            "DBT_SCHEMA": self.schema,
            "DBT_TARGET_PATH": str(directory / "target"),
            "DBT_LOG_PATH": str(directory / "logs"),
        }
        spark.sql(f"CREATE DATABASE {self.raw}")
        spark.sql(
            f"CREATE TABLE {self.raw}.orders (id BIGINT, customer INT, day STRING, price DECIMAL(10,2)) USING parquet"
        )
        spark.sql(f"CREATE TABLE {self.raw}.customers (customer INT, name STRING, country STRING) USING parquet")
        spark.sql(
            f"INSERT INTO {self.raw}.customers SELECT cast(id AS int), concat('customer ', id), "
            "element_at(array('DE', 'FR', 'NZ', 'PE'), cast(id % 4 AS int) + 1) FROM range(20)"
        )
        self.order(0, 200)

    def order(self, first: int, last: int) -> None:
        """Add orders *first* to *last*, 40 a day, of which every tenth has no price."""
        self.spark.sql(
            f"INSERT INTO {self.raw}.orders SELECT id, cast(id % 20 AS int), "
            "cast(date_add(DATE'2026-03-01', cast(id div 40 AS int)) AS string), "
            f"if(id % 10 = 9, NULL, cast(id AS decimal(10, 2))) FROM range({first}, {last})"
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start dbt."""
        command = [DBT, *arguments, "--profiles-dir", PROJECT, "--project-dir", PROJECT]
        return subprocess.Popen(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def dbt(self, *arguments: str) -> dict[str, str]:
        """Run dbt; return how each model, seed and test went, by name."""
        return self.results(self.start(*arguments))

    def results(self, process: subprocess.Popen[str]) -> dict[str, str]:
        """Wait for dbt, and return the same."""
        reported, _ = process.communicate(timeout=280)
        assert process.returncode in (0, 1), reported
        results = json.loads((self.directory / "target" / "run_results.json").read_text())["results"]
        troubles = [result["message"] for result in results if result["status"] == "error"]
        assert not troubles, "\n".join(troubles)
        return {result["unique_id"].split(".")[2]: result["status"] for result in results}

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, with the databases in braces."""
        # By a session of its own: one of Spark's own server remembers which files a table had.
        session = SparkSession.builder.remote(self.environment["SPARK_REMOTE"]).create()
        try:
            return [tuple(row) for row in session.sql(text.format(raw=self.raw, shop=self.schema)).collect()]
        finally:
            session.stop()


@pytest.fixture
def shop(spark: SparkSession, remote: str, tmp_path: Path) -> Shop:
    """A shop with 200 orders."""
    return Shop(spark, remote, tmp_path)
