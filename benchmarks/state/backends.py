"""The two sides of each backend, over stores of their own kind below one directory."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import aetcd
import plyvel

from benchmarks.etcd_server import EtcdServer
from benchmarks.state.ours import PortSide
from benchmarks.state.raw_etcd import AetcdSide
from benchmarks.state.raw_leveldb import PlyvelSide
from benchmarks.state.side import Side
from onager.clock import SystemClock
from onager.state_backend import StateBackendClient, keep_lease, open_backend

_LEASE_TTL_S: Final = 60.0

Sides = tuple[Side, Side]


@asynccontextmanager
async def leveldb(directory: Path) -> AsyncIterator[Sides]:
    """Yield the port over one LevelDB, and plyvel over another beside it."""
    async with await open_backend(f"leveldb:{directory / 'port'}") as backend, _ours(backend) as ours:
        raw = plyvel.DB(str(directory / "raw"), create_if_missing=True, paranoid_checks=True, bloom_filter_bits=10)
        try:
            yield ours, PlyvelSide(raw)
        finally:
            raw.close()


@asynccontextmanager
async def etcd(directory: Path) -> AsyncIterator[Sides]:
    """Yield the port and aetcd over one member, below different prefixes."""
    with EtcdServer(directory) as server:
        host, _, port = server.address.rpartition(":")
        async with (
            await open_backend(server.url) as backend,
            _ours(backend) as ours,
            aetcd.Client(host, int(port)) as client,
            # One lease is as good as another; it holds the raw side's locks, too.
            keep_lease(backend, _LEASE_TTL_S, SystemClock()) as lease,
        ):
            yield ours, AetcdSide(client, lease.id)


@asynccontextmanager
async def _ours(backend: StateBackendClient) -> AsyncIterator[PortSide]:
    async with keep_lease(backend, _LEASE_TTL_S, SystemClock()) as lease:
        yield PortSide(backend, lease.id)


BACKENDS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Sides]]]] = {"leveldb": leveldb, "etcd": etcd}
