"""A JVM whose work does not stop: ``python -m benchmarks.deaf_jvm [--json FILE]``.

``levenshtein`` of long texts looks at no interrupt. On one executor of two slots it runs in every slot and is
cancelled; then four clients of Spark Connect ask at once to explain a constant one, which the optimizer computes. Both
end with the end of the JVM.

| figure | what it is |
|---|---|
| ``until_new_jvm_s`` | from the cancellation, or the first `explain()`, until Spark is there in the next JVM |
| ``next_job_s`` | from there to the rows of the next job, which has waited for it |
| ``beside_s`` | how long a job takes beside the four |
| ``reported_s``, ``raised`` | after what time the clients got an error, and which one |
"""

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil
from pyspark.sql.connect.session import SparkSession

import onager
from benchmarks.cluster import Cluster
from benchmarks.state.machine import describe
from onager.client import JobHandle
from onager.clock import SystemClock

_SLOTS: Final = 2
_EXPLAINS: Final = 4
_PATIENCE_S: Final = 600.0
_ONE_A_ROW: Final = "SELECT levenshtein(repeat('ab', 150000 + id), repeat('ba', 150000)) AS d FROM range(1)"
_CONSTANT: Final = "SELECT levenshtein(repeat('ab', 150000), repeat('ba', 150000)) AS d"
_NEXT: Final = "SELECT count(*) AS n FROM range({})"
_CLOCK: Final = SystemClock()


def cancelled(cluster: Cluster, client: onager.OnagerClient) -> dict[str, Any]:
    """Cancel one in every slot."""
    jvm, life = _jvm(cluster), _life(client)
    used_s = jvm.cpu_times().user
    deaf = [client.sql(_ONE_A_ROW) for _ in range(_SLOTS)]
    _until(lambda: jvm.cpu_times().user > used_s + 4.0 * _SLOTS)
    began_s = _CLOCK.now_ms() / 1000
    for job in deaf:
        job.cancel()
    return _next_job(client, client.sql(_NEXT.format(10)), began_s, life)


def explained(cluster: Cluster, client: onager.OnagerClient) -> dict[str, Any]:
    """Have four clients explain one."""
    jvm, life = _jvm(cluster), _life(client)
    used_s = jvm.cpu_times().user
    sessions = [SparkSession.builder.remote(f"sc://{cluster.address}").create() for _ in range(_EXPLAINS)]
    with ThreadPoolExecutor(_EXPLAINS) as threads:
        began_s = _CLOCK.now_ms() / 1000
        asked = [threads.submit(session.sql(_CONSTANT).explain) for session in sessions]
        _until(lambda: jvm.cpu_times().user > used_s + 4.0)
        beside_s = _CLOCK.now_ms() / 1000
        assert client.sql(_NEXT.format(9)).to_arrow().to_pylist() == [{"n": 9}]
        beside_s = _CLOCK.now_ms() / 1000 - beside_s
    reported_s = _CLOCK.now_ms() / 1000 - began_s
    _until(lambda: not jvm.is_running())
    figures = _next_job(client, client.sql(_NEXT.format(11)), began_s, life)
    for session in sessions:
        session.stop()
    return {
        **figures,
        "beside_s": round(beside_s, 2),
        "reported_s": round(reported_s, 2),
        "raised": sorted({_error_text(future) for future in asked}),
    }


def _next_job(client: onager.OnagerClient, job: JobHandle, began_s: float, before: str) -> dict[str, Any]:
    """Wait for *job*; *before*: the life of the executor whose JVM ends."""
    job.to_arrow()
    ended_s = _CLOCK.now_ms() / 1000
    (now,) = (each for each in client.executors() if each.state == "alive")
    assert now.incarnation != before
    started_s = now.registered_ms / 1000
    return {"until_new_jvm_s": round(started_s - began_s, 2), "next_job_s": round(ended_s - started_s, 2)}


def _jvm(cluster: Cluster) -> psutil.Process:
    children = psutil.Process(cluster.pids["executor-0"]).children(recursive=True)
    (jvm,) = (child for child in children if child.name() == "java")
    return jvm


def _life(client: onager.OnagerClient) -> str:
    (executor,) = client.executors()
    return executor.incarnation


def _until(condition: Any) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {_PATIENCE_S:g} s")
        time.sleep(0.1)


def _error_text(future: Future[None]) -> str:
    error = future.exception()
    return "nothing" if error is None else f"{type(error).__name__}: {str(error)[:200]}"


def main() -> int:
    """Run both, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deaf_jvm", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go as JSON (default: printed)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as directory:
        machine = describe(Path(directory))
    with Cluster((_SLOTS,)) as cluster, onager.connect(cluster.address) as client:
        report = {
            "machine": {**machine, "load": round(os.getloadavg()[0], 2)},
            "cancelled": cancelled(cluster, client),
            "explained": explained(cluster, client),
        }
    text = json.dumps(report, indent=1)
    if options.json is None:
        print(text)
    else:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
