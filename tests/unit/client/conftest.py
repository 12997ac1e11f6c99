"""Schedulers for tests, and clients with short timeouts."""

from collections.abc import Callable, Iterator

import pytest

import onager
from onager.client import OnagerClient
from tests.support.fakes.scheduler import FakeScheduler


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    fake = FakeScheduler()
    fake.address = fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., OnagerClient]]:
    clients = []

    def open_client(*addresses: str, **options: float) -> OnagerClient:
        options = {"connect_timeout_s": 0.5, "retry_timeout_s": 5.0, **options}
        clients.append(onager.connect(",".join(addresses), **options))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()
