"""Stores, backups and calls of release 0.1 are refused by name, and its store stays as it is, in every part.

`release_0_1/store.json` has what its processes wrote and sent; `release_0_1/make.py` says how it was made. The
processes themselves meet in `tests/e2e/long/test_release_before.py`.
"""

import base64
import json
import uuid
from pathlib import Path

import grpc
import plyvel
import pytest
from aetcd import rpc

from onager.errors import SchemaVersionError
from onager.execution_graph import decode_graph
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub, OnagerSchedulerStub
from onager.scheduler.records import unpack
from onager.state_backend import Keyspace, open_backend
from onager.version import __version__
from tests.integration.scheduler.state_commands import onager, state
from tests.support.processes.children import free_port

KEPT = json.loads(Path(__file__).with_name("release_0_1").joinpath("store.json").read_text())
TO_DO = "use the release of Onager that wrote it (CHANGELOG.md says how to move to a newer one)"


def kept(name: str) -> dict[bytes, bytes]:
    return {base64.b64decode(key): base64.b64decode(value) for key, value in KEPT[name].items()}


class OnLevelDB:
    """Its store in a directory."""

    def __init__(self, directory: Path) -> None:
        self.url = f"leveldb:{directory}"
        self.name = f"state directory {directory}"
        self._directory = directory
        directory.mkdir()
        with self._opened(create_if_missing=True) as db:
            for key, value in kept("leveldb").items():
                db.put(key, value)

    def _opened(self, **options):
        return plyvel.DB(str(self._directory), **options)

    async def content(self):
        db = self._opened()
        try:
            return list(db)
        finally:
            db.close()


class OnEtcd:
    """Its store in a namespace."""

    def __init__(self, cluster) -> None:
        self._namespace = uuid.uuid4().hex
        self.url = cluster.url(self._namespace)
        self.name = f"namespace /{self._namespace} of etcd"
        self._endpoint = cluster.endpoints[0]
        self._prefix = f"/{self._namespace}/".encode()

    async def fill(self) -> None:
        async with grpc.aio.insecure_channel(self._endpoint) as channel:
            for key, value in kept("etcd").items():
                own = self._prefix + key.removeprefix(b"/onager/")
                await rpc.KVStub(channel).Put(rpc.PutRequest(key=own, value=value))

    async def content(self):
        """Return each record with its revisions and its lease."""
        async with grpc.aio.insecure_channel(self._endpoint) as channel:
            request = rpc.RangeRequest(key=self._prefix, range_end=self._prefix[:-1] + b"0")
            found = await rpc.KVStub(channel).Range(request)
            return [kv.SerializeToString() for kv in found.kvs]


@pytest.fixture(params=["leveldb", "etcd"])
async def old_store(request, tmp_path):
    if request.param == "leveldb":
        return OnLevelDB(tmp_path / "state")
    made = OnEtcd(request.getfixturevalue("etcd"))
    await made.fill()
    return made


def refusal(what: str) -> str:
    return (
        f"{what} is of an older release of Onager: it has schema version 1, and Onager {__version__} reads 2; {TO_DO}"
    )


async def test_its_store_is_refused_by_a_scheduler_and_by_every_command(old_store, tmp_path):
    before = await old_store.content()
    assert len(before) > 10
    backup, exchange = tmp_path / "old.zst", tmp_path / "exchange"
    backup.write_bytes(base64.b64decode(KEPT["backup"]))
    exchange.mkdir()
    address = f"127.0.0.1:{free_port()}"
    _, err = await onager(
        "scheduler", "--backend", old_store.url, "--listen", address, "--exchange-dir", exchange, code=2
    )
    assert refusal(old_store.name) in err
    assert list(exchange.iterdir()) == []
    for command in (
        ("ls",),
        ("get", "JobHeads/x"),
        ("watch", "JobHeads/"),
        ("rm", "--yes", "--force", "JobHeads/"),
        ("check",),
        ("backup", tmp_path / "new.zst"),
    ):
        _, err = await state(*command, "--backend", old_store.url, code=1)
        assert refusal(old_store.name) in err, command
    _, err = await state("restore", "--yes", "--replace", backup, "--backend", old_store.url, code=1)
    assert refusal(f"backup {backup}") in err
    assert not (tmp_path / "new.zst").exists()
    assert await old_store.content() == before


async def test_a_backup_of_this_release_does_not_replace_its_store(old_store, tmp_path):
    before, backup, own = await old_store.content(), tmp_path / "new.zst", f"leveldb:{tmp_path / 'own'}"
    async with await open_backend(own) as backend:
        await backend.put(Keyspace.Plans, "digest/0", b"content")
    await state("backup", backup, "--backend", own)
    _, err = await state("restore", "--yes", "--replace", backup, "--backend", old_store.url, code=1)
    assert refusal(old_store.name) in err
    assert await old_store.content() == before


async def test_its_backup_is_restored_nowhere(tmp_path):
    backup = tmp_path / "old.zst"
    backup.write_bytes(base64.b64decode(KEPT["backup"]))
    _, err = await state("restore", "--yes", backup, "--backend", f"leveldb:{tmp_path / 'empty'}", code=1)
    assert refusal(f"backup {backup}") in err
    assert not (tmp_path / "empty").exists()


async def test_its_records_are_refused_where_they_are_met():
    chunk, _ = [value for key, value in kept("etcd").items() if key.startswith(b"/onager/GraphChunks/")]
    with pytest.raises(SchemaVersionError, match=r"is of an older release of Onager: it has schema version \d+\.\d+"):
        decode_graph(unpack(chunk, "a graph"))


def request_of(name: str) -> bytes:
    return base64.b64decode(KEPT["requests"][name])


async def refused_call(method, request) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await method(request, wait_for_ready=True)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return refused.value.details()


async def test_its_executor_its_client_and_its_backup_are_refused_with_both_versions_named(scheduler):
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        gateway, service = OnagerExecutorGatewayStub(channel), OnagerSchedulerStub(channel)
        registration = pb.RegisterExecutorRequest.FromString(request_of("RegisterExecutor"))
        assert (registration.executor_id, registration.protocol_version) == ("executor-of-0.1", 1)
        assert await refused_call(gateway.RegisterExecutor, registration) == (
            "executor executor-of-0.1 speaks version 1 of the protocol, and this scheduler version 2: run the same "
            "Onager on both sides"
        )
        submission = pb.SubmitJobRequest.FromString(request_of("SubmitJob"))
        assert await refused_call(service.SubmitJob, submission) == (
            "the client speaks version 1 of the protocol, and this scheduler version 2: install the same Onager on "
            "both sides"
        )
        assert (await service.ListExecutors(pb.ListExecutorsRequest())).executors == []
        assert (await service.ListJobs(pb.ListJobsRequest())).jobs == []
        with pytest.raises(grpc.aio.AioRpcError, match="the client writes backups of format 1, and this scheduler's"):
            await anext(aiter(service.BackupState(pb.BackupStateRequest())))
