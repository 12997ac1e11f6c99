"""After the faults: checks what remains in the store, in the exchange, and of the processes."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import onager
from onager.errors import OnagerError
from onager.place_files import FOLDER
from tests.chaos.cluster import ChaosCluster
from tests.chaos.oracles import Verdict
from tests.chaos.workload import PATIENCE_S
from tests.support.trees import below

_CLEAN_S: Final = 120.0
_CHECK_S: Final = 120.0
_OF_ACTIVE_JOBS: Final = ("ActiveJobs/", "JobLog/")
_OF_NO_JOB: Final = ("Executors", "Heartbeats", "ExecutorLoads", "Schedulers", "Sessions", "Locks", "Places")
_ORPHANS: Final = "Plans"
"""Blobs of an event that lost its race: they are collected after ten to twenty minutes."""


class Aftermath:
    """Checks what a healed cluster keeps of its past jobs."""

    def __init__(self, cluster: ChaosCluster, patience: float) -> None:
        self._cluster = cluster
        self._patience = patience
        """How many times slower than usual this machine is."""

    def store(self) -> Verdict:
        """Ended jobs keep no log, and `onager state check` finds no error."""
        verdict = Verdict("the store holds what retention keeps, and state check is content")
        with self._client() as client:
            self._await(lambda: not any(self._keys(client, prefix) for prefix in _OF_ACTIVE_JOBS))
            for prefix in _OF_ACTIVE_JOBS:
                verdict.findings += [f"{key} is left" for key in self._keys(client, prefix)]
        self._state_check(verdict)
        return verdict

    def executors(self) -> Verdict:
        """Executors are idle."""
        verdict = Verdict("executors are idle")
        with self._client() as client:
            self._await(lambda: not self._held(client))
            verdict.findings += self._held(client)
        return verdict

    def exchange(self, offering: Collection[str]) -> Verdict:
        """No exchange file is left but of the jobs *offering* outputs: results are small enough to lie in the store."""
        verdict = Verdict("no exchange file is left that is not offered to other jobs")

        def left() -> list[str]:
            return [file for file in self._files() if file.partition("/")[0] not in offering]

        self._await(lambda: not left())
        verdict.findings += [f"{file} is left" for file in left()]
        return verdict

    def retention(self) -> Verdict:
        """Restart schedulers without retention, and check that nothing of the jobs remains."""
        verdict = Verdict("after retention nothing is left of any job")
        for part in self._cluster.local.named("scheduler"):
            part.environment = {
                **part.environment,
                "ONAGER_SCHEDULER_RESULT_RETENTION_S": "0",
                "ONAGER_SCHEDULER_RECORD_RETENTION_S": "0",
                "ONAGER_SCHEDULER_AUDIT_RETENTION_S": "0",
                "ONAGER_SCHEDULER_SWEEP_INTERVAL_MS": "500",
            }
            self._cluster.local.restart(part.name)
        with self._client() as client:
            self._await(lambda: not self._of_jobs(client))
            left = self._of_jobs(client)
            orphans = [key for key in self._keys(client, "") if key.startswith(_ORPHANS)]
        counts = Counter(key.partition("/")[0] for key in left)
        verdict.findings += [f"{n} keys of {keyspace} are left, such as {self._first(left, keyspace)}"
                             for keyspace, n in counts.items()]  # fmt: skip
        if orphans:
            verdict.notes.append(f"{len(orphans)} keys of plans that lost a race wait for their collection")
        names = [path.name for path in self._cluster.local.exchange.iterdir() if path.name != FOLDER]
        verdict.findings += [f"{name} is left in the exchange" for name in names]
        self._state_check(verdict)
        return verdict

    def processes(self) -> Verdict:
        """No process runs but the parts of the cluster and their children."""
        verdict = Verdict("no process is left behind")
        self._await(lambda: not self._cluster.left_behind())
        verdict.findings += [f"{pid}: {command}" for pid, command in self._cluster.left_behind().items()]
        return verdict

    # -- inside

    def _client(self) -> onager.OnagerClient:
        return onager.connect(self._cluster.local.addresses, connect_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S)

    def _await(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + _CLEAN_S * self._patience
        while not condition() and time.monotonic() < end_s:
            time.sleep(0.5)

    def _keys(self, client: onager.OnagerClient, prefix: str) -> list[str]:
        try:
            return [entry.key for entry in client.state.keys(prefix, limit=100_000).entries]
        except OnagerError as error:
            return [f"({prefix}: {error})"]

    def _held(self, client: onager.OnagerClient) -> list[str]:
        """Return in words which executors are not idle."""
        try:
            found = [f"{e.executor_id} is {e.state} and runs {e.running} tasks" for e in client.executors()
                     if e.state != "alive" or e.running]  # fmt: skip
        except OnagerError as error:
            return [str(error)]
        return found

    def _of_jobs(self, client: onager.OnagerClient) -> list[str]:
        return [key for key in self._keys(client, "") if not key.startswith((*_OF_NO_JOB, _ORPHANS))]

    def _first(self, keys: list[str], keyspace: str) -> str:
        return next(key for key in keys if key.startswith(keyspace))

    def _files(self) -> list[str]:
        exchange: Path = self._cluster.local.exchange
        found = (str(path.relative_to(exchange)) for path in below(exchange) if path.is_file())
        return sorted(path for path in found if not path.startswith(FOLDER))

    def _state_check(self, verdict: Verdict) -> None:
        command = [sys.executable, "-m", "onager", "state", "check", "--scheduler", self._cluster.local.addresses]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_CHECK_S * self._patience)
        printed = done.stdout.strip().splitlines()
        verdict.notes.append(f"state check: {printed[-1] if printed else done.stderr.strip()}")
        if done.returncode:
            verdict.findings += [line for line in printed if line.startswith("error")] or [done.stderr.strip()]
