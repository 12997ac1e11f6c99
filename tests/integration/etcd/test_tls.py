"""TLS to a real etcd: valid certificates work, and each invalid one gives its own error."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onager.errors import StateUnavailableError
from tests.integration.etcd.access import QUICK, refused, works
from tests.support.etcd import EtcdCluster, TlsFiles
from tests.support.etcd.certificates import Authority
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "other")


@pytest.fixture(scope="module")
def of_server(authority) -> TlsFiles:
    return TlsFiles(authority.cacert, *authority.issue("server", "127.0.0.1", "localhost"))


@pytest.fixture(scope="module")
def tls(of_server) -> Iterator[EtcdCluster]:
    """One member that speaks TLS, to whomever."""
    with EtcdCluster(1, tls=of_server) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mutual(of_server, authority) -> Iterator[EtcdCluster]:
    """One member that speaks TLS with those who have a certificate of its authority."""
    client = authority.issue("etcdctl")
    wanting = TlsFiles(
        of_server.cacert,
        of_server.cert,
        of_server.key,
        client_cert_auth=True,
        client_cert=client.cert,
        client_key=client.key,
    )
    with EtcdCluster(1, tls=wanting) as cluster:
        yield cluster


def url(cluster: EtcdCluster, query: str = "") -> str:
    return f"etcd://{cluster.endpoints[0]}/n?{QUICK}{query}"


async def test_the_servers_certificate_is_checked_by_cacert(tls, authority):
    await works(tls.url("n", cacert=str(authority.cacert)))


async def test_the_host_may_have_a_name(tls, authority):
    port = tls.members[0].client_port
    await works(f"etcd://localhost:{port}/n?cacert={authority.cacert}&compact_history=off")


async def test_a_certificate_is_shown_where_it_is_wanted(mutual, authority):
    pair = authority.issue("client")
    await works(mutual.url("n", cacert=str(authority.cacert), cert=str(pair.cert), key=str(pair.key)))


async def test_a_certificate_of_another_authority(tls, other):
    error = await refused(url(tls, f"&cacert={other.cacert}"), StateUnavailableError)
    assert f"{tls.endpoints[0]}: its certificate is of an authority that is not in cacert" in error


async def test_an_authority_that_is_not_of_this_machine(tls):
    error = await refused(url(tls, "&tls=on"), StateUnavailableError)
    assert f"{tls.endpoints[0]}: its certificate is of an authority that is not in cacert" in error


async def test_an_expired_certificate(authority):
    files = TlsFiles(authority.cacert, *authority.issue("expired", "127.0.0.1", is_expired=True))
    with EtcdCluster(1, tls=files) as cluster:
        error = await refused(url(cluster, f"&cacert={authority.cacert}"), StateUnavailableError)
        assert f"{cluster.endpoints[0]}: its certificate has expired; renew it, or compare the clocks" in error


async def test_a_certificate_for_another_host(authority):
    files = TlsFiles(authority.cacert, *authority.issue("elsewhere", "elsewhere.example"))
    with EtcdCluster(1, tls=files) as cluster:
        error = await refused(url(cluster, f"&cacert={authority.cacert}"), StateUnavailableError)
        assert f"{cluster.endpoints[0]}: its certificate is for another host name" in error


async def test_no_certificate_of_ours_where_one_is_wanted(mutual, authority):
    error = await refused(url(mutual, f"&cacert={authority.cacert}"), StateUnavailableError)
    assert "it ended the TLS handshake; if it wants to see a certificate of ours, give cert=FILE and key=FILE" in error


@pytest.mark.parametrize("what", ["of another authority", "expired"])
async def test_a_certificate_of_ours_that_is_not_taken(mutual, authority, other, what):
    pair = other.issue("stranger") if what == "of another authority" else authority.issue("late", is_expired=True)
    error = await refused(
        url(mutual, f"&cacert={authority.cacert}&cert={pair.cert}&key={pair.key}"), StateUnavailableError
    )
    assert "our certificate may have expired, or be of an authority that it does not trust" in error


async def test_plain_text_to_a_port_that_wants_tls(tls):
    error = await refused(url(tls), StateUnavailableError)
    assert f"{tls.endpoints[0]}: it closed the connection; if it wants TLS, give cacert=FILE (or tls=on)" in error


async def test_tls_to_a_port_that_speaks_plain_text(etcd, authority):
    error = await refused(url(etcd, f"&cacert={authority.cacert}"), StateUnavailableError)
    assert "it does not speak TLS, it seems; leave cacert, cert, key and tls out of the URL" in error


def test_a_scheduler_that_cannot_connect_says_so_once_and_in_words(tls, other, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "onager", "scheduler", "--backend", url(tls, f"&cacert={other.cacert}")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ONAGER_SCHEDULER_LOG_LEVEL": "error"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"onager scheduler: no etcd answered within 1 s: {tls.endpoints[0]}: its certificate is of an"
    )
