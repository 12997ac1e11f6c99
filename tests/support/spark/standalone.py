"""A Spark standalone cluster of the installed PySpark: a master and workers on loopback, ended by their process ids."""

import os
import subprocess
from pathlib import Path

import psutil
import pyspark

from onager.cli.java import ADVICE, find_java_home
from tests.support.processes.children import free_port
from tests.support.waiting import until

SPARK_HOME = Path(pyspark.__file__).parent
_ENVIRONMENT = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
_EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """One master and any number of workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []

    def start(self, *, workers: int = 1, cores: int = 2) -> None:
        self.start_master()
        for _ in range(workers):
            self.start_worker(cores)

    def start_master(self) -> subprocess.Popen[bytes]:
        return self._run("master.Master", "--port", str(self.port))

    def start_worker(self, cores: int) -> subprocess.Popen[bytes]:
        work = self.directory / f"work-{len(self.processes)}"
        return self._run(
            "worker.Worker",
            "--cores",
            str(cores),
            "--memory",
            "2g",
            "--work-dir",
            str(work),
            "--port",
            "0",
            self.master,
        )

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = find_java_home()
        assert home is not None, ADVICE
        java = home / "bin" / "java"
        command = [java, "-Xmx256m", "-cp", f"{SPARK_HOME}/jars/*", f"org.apache.spark.deploy.{name}"]
        log = self.directory / f"{name}-{len(self.processes)}.log"
        self._logs.append(log)
        with log.open("wb") as out:
            started = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT, "JAVA_HOME": str(home)},
            )
        self.processes.append(started)
        ready = "I have been elected leader" if name == "master.Master" else "Successfully registered with master"

        def is_ready() -> bool:
            assert started.poll() is None, f"{name} ended:\n{log.read_text()}"
            return ready in log.read_text()

        until(is_ready, f"{name} is ready")
        return started

    def executors(self) -> list[psutil.Process]:
        """Return the processes that the cluster runs for its applications."""
        found = []
        for process in self.processes:
            if process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                found += [child for child in below if _is_executor(child)]
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in self._logs)

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                process.wait()
                for child in below:
                    _kill(child)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return process.name() == "java" and _EXECUTOR_CLASS in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
