"""A real Airflow with a database of its own, and a real cluster on this machine."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

HOME = tempfile.TemporaryDirectory(prefix="onager-airflow-")
"""Airflow reads its settings when it is imported."""
os.environ |= {
    "AIRFLOW_HOME": HOME.name,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags"),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
}

import onager  # noqa: E402


class Cluster:
    """``onager standalone``: a scheduler and an executor, which it starts again when they die."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = Path(os.environ["ONAGER_ROOT"], ".venv", "bin", "onager")
        self._log = (directory / "standalone.log").open("wb")
        self._process = subprocess.Popen(
            [command, "standalone", "--listen", self.address, "--state-dir", directory / "state", "--no-http"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        with onager.connect(self.address, connect_timeout_s=120) as client:
            client.sql("SELECT 1").wait()

    def kill(self, name: str) -> None:
        """Kill the process *name* (scheduler, executor) as `kill -9` does."""
        for child in psutil.Process(self._process.pid).children():
            if name in child.cmdline():
                child.kill()
                return
        raise AssertionError(f"no {name} runs")

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


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


def until(holds: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    """Wait until *holds* gives something, and return it."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:g} s: {what}")
