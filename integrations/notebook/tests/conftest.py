"""A real cluster on this machine, and the notebook, which a process of its own executes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

import onager

NOTEBOOK = Path(__file__).parents[1] / "first.ipynb"
PRINTED = "127.0.0.1:50050"
"""The address in the notebook."""
EXECUTE = Path(sys.executable).with_name("jupyter-execute")


class Execution:
    """The notebook, executed against a cluster: its kernel is a process of Jupyter's."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        text = NOTEBOOK.read_text()
        assert text.count(PRINTED) == 1, f"{NOTEBOOK.name} connects to {PRINTED}"
        notebook = directory / NOTEBOOK.name
        notebook.write_text(text.replace(PRINTED, cluster.address))
        self._executed = directory / "executed.ipynb"
        self._process = subprocess.Popen(
            [EXECUTE, notebook, "--output", self._executed],
            env={**os.environ, "ONAGER_SCHEDULER": cluster.address, "JUPYTER_PLATFORM_DIRS": "1"},
            cwd=directory,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @property
    def is_running(self) -> bool:
        """Whether some cells are still to come."""
        return self._process.poll() is None

    def outputs(self) -> dict[str, list[dict[str, Any]]]:
        """Wait for the last cell, and return what each cell's outputs are, by the cell's id."""
        reported, _ = self._process.communicate(timeout=500)
        assert self._process.returncode == 0, reported
        cells = json.loads(self._executed.read_text())["cells"]
        return {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}

    def close(self) -> None:
        """Stop Jupyter, if it still runs: its kernel ends with it."""
        if self.is_running:
            self._process.terminate()
            self._process.wait(60)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[onager.OnagerClient]:
    """A client of the cluster, to look at what the notebook does."""
    with onager.connect(cluster.address) as made:
        yield made


@pytest.fixture
def execution(cluster: Cluster, tmp_path: Path) -> Iterator[Execution]:
    """The notebook, which has been started."""
    made = Execution(cluster, tmp_path)
    yield made
    made.close()
