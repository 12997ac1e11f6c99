"""A real Airflow with a database of its own, and a real cluster on this machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster

HOME = tempfile.TemporaryDirectory(prefix="onager-airflow-")
"""Airflow reads its settings when it is imported."""
os.environ |= {
    "AIRFLOW_HOME": HOME.name,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
}

import onager  # noqa: E402


@pytest.fixture(scope="session")
def airflow() -> None:
    """Make Airflow's database."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster, and Airflow's connection to it."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    os.environ["AIRFLOW_CONN_ONAGER_DEFAULT"] = json.dumps({"conn_type": "onager", "host": made.address})
    yield made
    made.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[onager.OnagerClient]:
    """A client of the cluster."""
    with onager.connect(cluster.address) as made:
        yield made
