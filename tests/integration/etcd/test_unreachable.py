"""Endpoints that do not answer or are not etcd, and namespaces of other programs."""

import http.server
import json
import re
import socket
import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from onager.errors import SchemaVersionError, StateCorruptError, StateUnavailableError
from onager.state_backend import Keyspace, open_backend
from onager.version import __version__
from tests.integration.etcd.access import QUICK, refused
from tests.support.etcd import EtcdCluster
from tests.support.processes.children import free_ports


@pytest.fixture
def web_server() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def silence() -> Iterator[int]:
    """A port that takes connections, and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


async def test_each_endpoint_is_named_with_its_reason(silence):
    dead, deader = free_ports(2)
    error = await refused(
        f"etcd://127.0.0.1:{dead},127.0.0.1:{deader},no-such-host.invalid:2379,127.0.0.1:{silence}?timeout=3s",
        StateUnavailableError,
    )
    assert error.startswith("no etcd answered within 3 s: ")
    assert f"127.0.0.1:{dead}: nobody listens there" in error
    assert f"127.0.0.1:{deader}: nobody listens there" in error
    assert "no-such-host.invalid:2379: the host's name is not known" in error
    assert re.search(rf"127.0.0.1:{silence}: it (did not answer in time|says nothing)", error)


async def test_a_web_server_is_no_etcd(web_server):
    error = await refused(f"etcd://127.0.0.1:{web_server}?{QUICK}", StateUnavailableError)
    assert f"127.0.0.1:{web_server}: it is not an etcd, or not the port for its clients" in error


async def test_one_dead_endpoint_of_three_is_named_once_and_does_not_matter():
    with EtcdCluster(3) as cluster:
        cluster.kill(1)
        cluster.wait_healthy()
        dead = cluster.endpoints[1]
        with capture_logs() as logs:
            # Whichever a process starts with, the dead one is the first for this one.
            for first in range(3):
                turned = cluster.endpoints[first:] + cluster.endpoints[:first]
                async with await open_backend(cluster.url("n", endpoints=turned)) as backend:
                    for number in range(10):
                        await backend.put(Keyspace.Sessions, f"{first}/{number}", b"")
                    assert len(await backend.get_from_prefix(Keyspace.Sessions, f"{first}/")) == 10
        failed = [entry for entry in logs if entry["event"] == "etcd_endpoint_failed"]
        assert [entry["endpoint"] for entry in failed] == [dead]
        assert failed[0]["log_level"] == "warning"
        assert "nobody listens there" in failed[0]["error"]


@pytest.mark.parametrize(("major", "age"), [(1, "an older"), (3, "a newer")])
async def test_a_namespace_that_another_release_wrote_stays_as_it_is(etcd, major, age):
    etcd.etcdctl("put", "/other/schema", json.dumps({"schema_version": f"{major}.0"}))
    error = await refused(etcd.url("other"), SchemaVersionError)
    assert error == (
        f"namespace /other of etcd is of {age} release of Onager: it has schema version {major}, and Onager "
        f"{__version__} reads 2; use the release of Onager that wrote it (CHANGELOG.md says how to move to a newer one)"
    )
    assert etcd.etcdctl("get", "/other/", "--prefix", "--keys-only").split() == ["/other/schema"]


async def test_a_namespace_of_a_newer_minor_version_is_read(etcd):
    etcd.etcdctl("put", "/minor/schema", json.dumps({"schema_version": "2.9", "more": True}))
    async with await open_backend(etcd.url("minor")) as backend:
        assert await backend.get(Keyspace.Sessions, "s") is None


@pytest.mark.parametrize("value", ["[]", "not JSON", "{}", '{"schema_version": 1}', '{"schema_version": "x"}'])
async def test_a_namespace_of_something_else(etcd, value):
    etcd.etcdctl("put", "/foreign/schema", value)
    error = await refused(etcd.url("foreign"), StateCorruptError)
    assert error == "namespace /foreign of etcd has no schema version at /foreign/schema: is it Onager's?"
