"""A real cluster on this machine, and the notebook, which a process of its own executes."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import onager

NOTEBOOK = Path(__file__).parents[1] / "first.ipynb"
PRINTED = "127.0.0.1:50050"
"""The address in the notebook."""
EXECUTE = Path(sys.executable).with_name("jupyter-execute")


class Cluster:
    """``onager standalone``: a scheduler and an executor, which it starts again when they die."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = Path(os.environ["ONAGER_ROOT"], ".venv", "bin", "onager")
        self._path = directory / "standalone.log"
        self._log = self._path.open("wb")
        self._process = subprocess.Popen(
            [command, "standalone", "--listen", self.address, "--state-dir", directory / "state", "--no-http"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        until(lambda: f"onager is ready at {self.address}" in self.told(), "readiness", 240.0)

    def told(self) -> str:
        """Return what it printed."""
        return self._path.read_text(errors="replace")

    def child(self, name: str) -> psutil.Process:
        """Return the process *name*: scheduler or executor."""
        children = psutil.Process(self._process.pid).children()
        return next(child for child in children if name in child.cmdline()[:5])

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


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
        told, _ = self._process.communicate(timeout=500)
        assert self._process.returncode == 0, told
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


def until(holds: Callable[[], Any], what: str, within_s: float = 120.0) -> Any:
    """Wait until *holds* gives something, and return it."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:g} s: {what}")
