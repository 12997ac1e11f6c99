"""Spark's own Connect server, from the installed PySpark: the other side of what Onager serves at ``sc://``."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import pyspark

from deploy.parts import HOST, free_ports, start_child
from onager.cli.java import ADVICE, find_java_home
from onager.executor.spark.session import default_heap

_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SPARK_HOME: Final = Path(pyspark.__file__).parent
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 20.0
_SLOTS: Final = 2


class SparkConnectServer:
    """One server, ``local[2]`` with the heap of an executor of two slots, in a directory that is removed with it."""

    def __init__(self, conf: Mapping[str, str] | None = None) -> None:
        port = free_ports(1)[0]
        self.address = f"{HOST}:{port}"
        self._conf = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": f"{default_heap(_SLOTS) >> 20}m",
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            **(conf or {}),
        }
        self._directory = Path(tempfile.mkdtemp(prefix="onager-spark-connect-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        java = find_java_home()
        if java is None:
            raise RuntimeError(ADVICE)
        flags = [flag for name, value in self._conf.items() for flag in ("--conf", f"{name}={value}")]
        own = {"SPARK_HOME": str(_SPARK_HOME), "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable}
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
        self._process = start_child(
            [_SPARK_HOME / "bin" / "spark-submit", "--class", _CLASS, "--master", f"local[{_SLOTS}]", *flags],
            self.log,
            {**environment, **own, "SPARK_CONNECT_MODE": "0"},
            cwd=self._directory,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def remote(self) -> str:
        """What ``SparkSession.builder.remote`` takes."""
        return f"sc://{self.address}"

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self._directory / "server.log"

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        host, _, port = self.address.rpartition(":")
        end_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                socket.create_connection((host, int(port)), 1.0).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    raise RuntimeError(f"Spark's Connect server did not start:\n{self.log.read_text()}") from None
                time.sleep(0.1)
            else:
                return

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
