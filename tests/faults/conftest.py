"""Failing stores: proxies before the shared etcd, and clusters for faults."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.etcd import EtcdCluster
from tests.support.processes.tcp_proxy import TcpProxy

_NUMBERS = itertools.count()


@pytest.fixture
def namespace() -> str:
    """Return a namespace for one test."""
    return f"faults{next(_NUMBERS)}"


@pytest.fixture
async def proxy(etcd: EtcdCluster) -> AsyncIterator[TcpProxy]:
    """Return a proxy before the one member that all share, which itself stays well."""
    async with TcpProxy(etcd.endpoints[0]) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _three() -> Iterator[EtcdCluster]:
    with EtcdCluster(3) as cluster:
        yield cluster


@pytest.fixture
def three(_three: EtcdCluster) -> Iterator[EtcdCluster]:
    """Return three members that a test may hurt: they are made well before and after."""
    _three.heal()
    yield _three
    _three.heal()
