"""Writes `store.json` beside this file, with the real processes of release 0.1.

    python -m tests.integration.scheduler.release_0_1.make

Two jobs are submitted to its scheduler, on LevelDB and on etcd, and the scheduler is stopped; all records of the store
are kept as they lie there, and the backup that it took. An executor and a client of it then call a server that only
listens: the first requests of each are kept as bytes.
"""

import base64
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import plyvel

from tests.support.etcd import EtcdCluster
from tests.support.processes import children
from tests.support.processes.earlier_release import EarlierRelease
from tests.support.waiting import until

FILE = Path(__file__).with_name("store.json")
SUBMITTED = ("SELECT 1 AS one", "SELECT id FROM range(3)")
HEARD = ("RegisterExecutor", "SubmitJob")


def text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def fill(release: EarlierRelease, backend: str, directory: Path) -> bytes:
    """Submit jobs to a scheduler on *backend*, stop it, and return the backup that it took."""
    address = f"127.0.0.1:{children.free_port()}"
    exchange = directory / "exchange"
    exchange.mkdir()
    log = directory / "scheduler.log"
    arguments = ["--backend", backend, "--listen", address, "--exchange-dir", str(exchange)]
    scheduler = release.start(log, "scheduler", *arguments)
    try:
        until(lambda: b"scheduler_ready" in log.read_bytes(), "a scheduler of the release before")
        for query in SUBMITTED:
            done = release.run("submit", "--detach", "-e", query, "--scheduler", address)
            assert done.returncode == 0, done.stderr
        backup = directory / "backup.zst"
        done = release.run("state", "backup", str(backup), "--scheduler", address)
        assert done.returncode == 0, done.stderr
    finally:
        children.end(scheduler)
    return backup.read_bytes()


class Listener(grpc.GenericRpcHandler):
    """Keeps the bytes of the first request of each kind, and answers that it does not serve it."""

    def __init__(self) -> None:
        self.heard: dict[str, bytes] = {}

    def service(self, details: Any) -> grpc.RpcMethodHandler:
        def hear(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.heard.setdefault(details.method.rpartition("/")[2], request)
            context.abort(grpc.StatusCode.UNAVAILABLE, "it only listens")
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(hear)


def listen(release: EarlierRelease, directory: Path) -> dict[str, bytes]:
    """Return the first requests of an executor and of a client."""
    listener = Listener()
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([listener])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    exchange = directory / "exchange"
    flags = ["--executor-id", "executor-of-0.1", "--exchange-dir", str(exchange)]
    executor = release.start(directory / "executor.log", "executor", "--scheduler", address, *flags)
    client = release.start(directory / "client.log", "submit", "-e", SUBMITTED[0], "--scheduler", address)
    try:
        until(lambda: set(HEARD) <= set(listener.heard), "the requests")
    finally:
        children.end(executor)
        children.end(client)
        server.stop(None)
    return {name: listener.heard[name] for name in HEARD}


def leveldb_records(path: Path) -> dict[str, str]:
    db = plyvel.DB(str(path))
    try:
        return {text(key): text(value) for key, value in db}
    finally:
        db.close()


def etcd_records(cluster: EtcdCluster) -> dict[str, str]:
    found = json.loads(cluster.etcdctl("get", "", "--prefix", "-w", "json"))
    assert not any(entry.get("lease") for entry in found["kvs"]), "leases of the scheduler have not ended"
    return {entry["key"]: entry.get("value", "") for entry in found["kvs"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as name, EtcdCluster(1) as cluster:
        directory = Path(name)
        release = EarlierRelease(directory / "release")
        for kind in ("leveldb", "etcd"):
            (directory / kind).mkdir()
        state = directory / "state"
        backup = fill(release, f"leveldb:{state}", directory / "leveldb")
        fill(release, cluster.url("onager"), directory / "etcd")
        until(lambda: "lease" not in cluster.etcdctl("get", "", "--prefix", "-w", "json"), "the end of its leases")
        kept = {
            "leveldb": leveldb_records(state),
            "etcd": etcd_records(cluster),
            "backup": text(backup),
            "requests": {name: text(request) for name, request in listen(release, directory / "leveldb").items()},
        }
    FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
