"""A running store for the contract suite, which provides clients and lets time pass."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import grpc
from aetcd import rpc
from prometheus_client import CollectorRegistry

from onager.clock import ManualClock
from onager.state_backend import Keyspace, StateBackendClient
from onager.state_backend.etcd import EtcdBackend
from onager.state_backend.faulty import FaultyBackend, scripted
from onager.state_backend.leveldb import LevelDBBackend
from onager.state_backend.local.hub import HISTORY_BYTES
from onager.state_backend.memory import MemoryBackend, MemoryStore
from onager.state_backend.observed import ObservedBackend, StateMetrics
from tests.support.etcd import EtcdCluster
from tests.support.waiting import HANGS_S, eventually

_LARGE_BYTES = 1024 * 1024


class Harness(ABC):
    has_manual_clock: ClassVar[bool] = False
    """Whether time passes at once, and only when it is let."""

    survives_restart: ClassVar[bool] = False
    """Whether it can be stopped, and then connected to again, with all that was acknowledged."""

    ttl_s: float
    """A time to live that is granted as it is, and is no longer to wait for than it must be."""

    @abstractmethod
    async def connect(self) -> StateBackendClient:
        """Return a client; where the store has only one at a time, the same again until it is closed."""

    @abstractmethod
    async def let_pass(self, seconds: float) -> None:
        """Return when the store's clock is *seconds* further, and leases that then are a second too old are gone."""

    @abstractmethod
    async def compact(self, keyspace: Keyspace) -> None:
        """Return when a watch from any revision up to now has lost the events of *keyspace*."""

    @abstractmethod
    async def stop(self) -> None: ...


class _OnManualClock(Harness):
    has_manual_clock = True

    ttl_s = 10.0

    def __init__(self) -> None:
        self.clock = ManualClock()

    async def let_pass(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))
        await (await self.connect()).get(Keyspace.Sessions, "nothing")

    async def compact(self, keyspace: Keyspace) -> None:
        client = await self.connect()
        for _ in range(HISTORY_BYTES // _LARGE_BYTES + 1):
            await client.put(keyspace, "compacting", bytes(_LARGE_BYTES))
        await client.delete(keyspace, "compacting")


class MemoryHarness(_OnManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(self.clock)
        self.clients: list[MemoryBackend] = []

    async def connect(self) -> StateBackendClient:
        self.clients.append(MemoryBackend(self.store))
        return self.clients[-1]

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()


class WrappedHarness(MemoryHarness):
    """The same through all wrappers: what they add must change nothing."""

    async def connect(self) -> StateBackendClient:
        honest = FaultyBackend(await super().connect(), scripted({}), self.clock)
        return ObservedBackend(honest, StateMetrics(CollectorRegistry()), self.clock)


class LevelDBHarness(_OnManualClock):
    survives_restart = True

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.client: LevelDBBackend | None = None

    async def connect(self) -> StateBackendClient:
        if self.client is None or self.client._is_closed:
            self.client = await LevelDBBackend.open(self.path, clock=self.clock)
        return self.client

    async def stop(self) -> None:
        if self.client is not None:
            await self.client.close()
            self.client = None


class EtcdHarness(Harness):
    """A namespace of its own in a cluster that others use before and after; the clients ask different members first."""

    ttl_s = 2.0  # etcd's shortest, with its default times of election
    _numbers = itertools.count()

    def __init__(self, cluster: EtcdCluster) -> None:
        self.cluster = cluster
        self.namespace = f"contract{next(self._numbers)}"
        self.clients: list[EtcdBackend] = []
        self._channel = grpc.aio.insecure_channel(cluster.endpoints[0])
        self._kv = rpc.KVStub(self._channel)
        self._lease = rpc.LeaseStub(self._channel)

    async def connect(self) -> StateBackendClient:
        turn = len(self.clients) % self.cluster.size
        endpoints = self.cluster.endpoints[turn:] + self.cluster.endpoints[:turn]
        # There are no faults here, so a long wait means a busy machine.
        self.clients.append(
            await EtcdBackend.open(self.cluster.url(self.namespace, endpoints=endpoints, timeout=f"{HANGS_S:g}s"))
        )
        return self.clients[-1]

    async def let_pass(self, seconds: float) -> None:
        ending = {lease for lease, left_s in (await self._leases()).items() if left_s + 1 <= seconds}
        await asyncio.sleep(seconds)

        # They end later than they may, by their whole time when another leader was elected. None is kept alive here.
        async def have_ended() -> bool:
            return not ending & (await self._leases()).keys()

        await eventually(have_ended)

    async def compact(self, keyspace: Keyspace) -> None:
        client = await self.connect()
        await client.put(keyspace, "compacting", b"")
        await client.delete(keyspace, "compacting")
        # The last commit before stays, so one more is needed.
        revision = await client.put(Keyspace.Sessions, "compacting", b"")
        await client.delete(Keyspace.Sessions, "compacting")
        await self._kv.Compact(rpc.CompactionRequest(revision=revision, physical=True), timeout=HANGS_S)

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()
        for lease in await self._leases():
            await self._lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=HANGS_S)
        first = f"/{self.namespace}/".encode()
        await self._kv.DeleteRange(rpc.DeleteRangeRequest(key=first, range_end=first[:-1] + b"0"), timeout=HANGS_S)
        await self._channel.close()

    async def _leases(self) -> dict[int, int]:
        """Return how many seconds each lease of the cluster has left, rounded towards zero; gone ones are left out."""
        found = await self._lease.LeaseLeases(rpc.LeaseLeasesRequest(), timeout=HANGS_S)
        answers = [
            await self._lease.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease.ID), timeout=HANGS_S)
            for lease in found.leases
        ]
        return {answer.ID: answer.TTL for answer in answers if answer.grantedTTL}


@dataclass(frozen=True)
class Kind:
    """A kind of store. Where calls take longer, tests make fewer examples; the gate makes half of them."""

    harness: Callable[..., Harness]
    examples: int
    """Sequences of calls that are compared with a dictionary."""
    histories: int
    """Histories of concurrent clients that are checked for linearizability."""
    needs: str | None = None
    """What *harness* is given: a `directory` of its own, or the fixture of that name."""


KINDS = {
    "memory": Kind(MemoryHarness, 40, 30),
    "wrapped": Kind(WrappedHarness, 20, 20),
    "leveldb": Kind(LevelDBHarness, 20, 15, "directory"),
    "etcd": Kind(EtcdHarness, 15, 8, "etcd"),
    "etcd3": Kind(EtcdHarness, 10, 8, "etcd3"),
}
"""The stores of the contract suite: memory also with all wrappers, etcd with one and with three members."""
