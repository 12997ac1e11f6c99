"""An executor whose master is a Spark cluster: checks before it starts, and whether the cluster still answers.

The agent's JVM is the driver of that cluster: it plans, binds stages and schedules tasks; the cluster's processes read
and write the files. So all of them must share the exchange directory: a setting must say so, and a test verifies it.
"""

import socket
import time
from collections.abc import Mapping
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from onager.clock import Clock
from onager.errors import InvalidSettingError
from onager.executor.spark.kernel.classes import CLUSTER_PLUGIN
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.work import ClusterAwayError

_STANDALONE = "spark://"
_DEFAULT_PORT = 7077
_CONNECT_S = 2.0
_FIRST_EXECUTOR_S = 60.0
"""How long the cluster may take to start its first process for this executor."""
_ALL_CORES_S = 5.0
"""How long to wait for the other processes after the first."""
_WITHOUT_EXECUTORS_S = 60.0
"""How long the cluster may run no process for this executor before the executor restarts."""
_LOOK_S = 0.1
_DRIVER_MEMORY_MIB = 2048

log = structlog.get_logger()


def is_cluster(master: str) -> bool:
    """Return whether *master* runs tasks in processes other than the driver."""
    return master != "local" and not master.startswith("local[")


def check_exchange(master: str, exchange_dir: str, *, is_shared: bool) -> None:
    """Raise `InvalidSettingError` unless the processes of *master* are said to share *exchange_dir*.

    A path, with or without ``file:``, may name a different directory on each machine.
    """
    if not is_shared:
        raise InvalidSettingError(
            "--exchange-dir",
            exchange_dir,
            f"this is a directory of this machine, and the processes of {master} must read and write it, too: "
            "mount a shared volume at this path on all of the cluster's machines, and give --exchange-shared",
        )


def settings_for(master: str, slots: int, jar: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session on the cluster *master*; *conf* overrides the defaults.

    The kernel's *jar* is added to the jars that *conf* ships to the cluster's processes.
    """
    loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return {
        **(loopback if is_on_loopback(master) else {}),
        "spark.cores.max": str(slots),
        "spark.driver.memory": f"{_DRIVER_MEMORY_MIB}m",
        **conf,
        "spark.jars": _joined(jar, conf.get("spark.jars")),
        "spark.plugins": _joined(CLUSTER_PLUGIN, conf.get("spark.plugins")),
    }


def is_on_loopback(master: str) -> bool:
    """Return whether all masters of the cluster are on the loopback interface."""
    hosts = [host for host, _ in _addresses(master)]
    return bool(hosts) and all(host in {"localhost", "::1"} or host.startswith("127.") for host in hosts)


def await_master(master: str) -> None:
    """Raise `ClusterAwayError` when nothing listens at the address of a standalone cluster's master.

    Spark itself retries for a minute, and its error does not name the cause.
    """
    addresses = _addresses(master)
    problems = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
        except OSError as e:
            problems.append(f"{host}:{port}: {e.strerror or e}")
        else:
            return
    if addresses:
        raise ClusterAwayError(
            f"no master answers at {master} ({'; '.join(problems)}): start the Spark cluster, or correct spark.master"
        )


class SparkCluster:
    """The cluster that runs an executor's tasks, seen from its driver."""

    def __init__(self, spark: SparkSession, kernel: Kernel, master: str, slots: int, clock: Clock) -> None:
        self._kernel = kernel
        self._context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark offers no public way to it
        self._master = master
        self._slots = slots
        self._clock = clock
        self._seen_s = clock.monotonic_s()

    def check_exchange(self, exchange_dir: str) -> None:
        """Raise `InvalidSettingError` when a process of the cluster does not see this executor's *exchange_dir*."""
        problems = self._kernel.exchange_problems(2 * self._slots)
        if problems:
            raise InvalidSettingError(
                "--exchange-dir",
                exchange_dir,
                f"it is not the same directory for this executor and the processes of {self._master} "
                f"({'; '.join(problems)}): mount one shared volume at this path on all machines",
            )

    def is_reached(self) -> bool:
        """Return whether the cluster can still run tasks; it may be without a process for up to a minute."""
        try:
            count = executor_count(self._context)
        except (Py4JError, OSError):
            return False
        if count:
            self._seen_s = self._clock.monotonic_s()
        return count is not None and self._clock.monotonic_s() - self._seen_s < _WITHOUT_EXECUTORS_S


def await_executors(spark: SparkSession, master: str, slots: int) -> None:
    """Wait until the cluster has started processes; raise `ClusterAwayError` when it starts none within a minute."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - as above
    end_s = time.monotonic() + _FIRST_EXECUTOR_S
    while not executor_count(context):
        if context.isStopped() or time.monotonic() > end_s:
            raise ClusterAwayError(
                f"{master} started no process for this executor within {_FIRST_EXECUTOR_S:g} s: are workers alive, "
                "with a free core and the memory that spark.executor.memory asks for (1g by default)?"
            )
        time.sleep(_LOOK_S)
    end_s = time.monotonic() + _ALL_CORES_S
    while (cores := _cores(context)) < slots and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    if cores < slots:
        log.warning("cluster_gave_fewer_cores", master=master, slots=slots, cores=cores)


def executor_count(context: Any) -> int | None:
    """Return how many processes the cluster runs for this session; None when Spark has stopped the context."""
    return None if context.isStopped() else context.statusStore().executorList(True).size() - 1


def _cores(context: Any) -> int:
    executors = context.statusStore().executorList(True)
    found = [executors.apply(i) for i in range(executors.size())]
    return sum(executor.totalCores() for executor in found if executor.id() != "driver")


def _addresses(master: str) -> list[tuple[str, int]]:
    if not master.startswith(_STANDALONE):
        return []
    found = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, str(_DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InvalidSettingError("spark.master", master, "give spark://HOST:PORT[,HOST:PORT]")
        found.append((host.strip("[]"), int(port)))
    return found


def _joined(ours: str, given: str | None) -> str:
    return ",".join(filter(None, [ours, given]))
