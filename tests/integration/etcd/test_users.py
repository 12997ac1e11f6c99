"""Users of a real etcd: permissions, expired tokens, and passwords, which are never shown."""

import asyncio
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from structlog.testing import capture_logs

from onager.errors import OnagerError, StateAccessError
from onager.state_backend import ABSENT, Committed, Keyspace, Put, StateBackendClient, open_backend
from onager.state_backend.etcd import EtcdBackend
from onager.state_backend.etcd.url import PASSWORD_VARIABLE, USER_VARIABLE
from tests.integration.etcd.access import PATIENT, QUICK, refused, works
from tests.support.etcd import EtcdCluster, TlsFiles
from tests.support.etcd.certificates import Authority, Pair
from tests.support.processes.children import free_ports
from tests.support.waiting import HANGS_S

PASSWORD = "s3cret-of-alice"
ROOT = Path(__file__).resolve().parents[3]


def add_user(cluster: EtcdCluster, name: str, namespace: str | None) -> None:
    """Make a user who may do everything in *namespace*, and nothing else."""
    cluster.etcdctl("user", "add", f"{name}:{PASSWORD}")
    if namespace is not None:
        cluster.etcdctl("role", "add", name)
        cluster.etcdctl("role", "grant-permission", name, "--prefix=true", "readwrite", f"/{namespace}/")
        cluster.etcdctl("user", "grant-role", name, name)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdCluster]:
    """One member; alice may use the namespace ours, bob nothing."""
    with EtcdCluster(1) as cluster:
        add_user(cluster, "alice", "ours")
        add_user(cluster, "bob", None)
        cluster.enable_auth("root's")
        yield cluster


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    monkeypatch.delenv(USER_VARIABLE, raising=False)


def url(cluster: EtcdCluster, user: str = "alice", namespace: str = "ours", query: str = PATIENT) -> str:
    return f"etcd://{user}@{cluster.endpoints[0]}/{namespace}?{query}"


# ---------------------------------------------------------------- who may


@pytest.mark.parametrize("password_from", ["variable", "file"])
@pytest.mark.parametrize("user_from", ["url", "variable"])
async def test_a_user_may_come_from_url_or_environment_and_the_password_from_environment_or_file(
    guarded, monkeypatch, tmp_path, user_from, password_from
):
    address = guarded.endpoints[0]
    where = f"etcd://alice@{address}/ours" if user_from == "url" else f"etcd://{address}/ours"
    if user_from == "variable":
        monkeypatch.setenv(USER_VARIABLE, "alice")
    if password_from == "file":
        monkeypatch.setenv(PASSWORD_VARIABLE, "another's")
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        where += f"?password_file={tmp_path / 'password'}"
    await works(where)


async def test_a_role_for_the_namespace_is_enough_for_everything(guarded):
    # With the compaction of history, which is not about any key.
    async with await open_backend(url(guarded, query="compact_history=1s")) as backend:
        lease = await backend.lease(30)
        async with backend.lock(Keyspace.Sessions, "all", lease.id) as token:
            put = Put(Keyspace.Executors, "all", b"1", lease.id)
            done = await backend.put_txn([put], expect={(Keyspace.Executors, "all"): ABSENT}, fence=[token])
            assert isinstance(done, Committed)
        await backend.keep_alive(lease.id)
        assert [found.key for found in await backend.scan(Keyspace.Executors, limit=9)] == ["all"]
        assert list(await backend.scan_keys(Keyspace.Executors, limit=9)) == ["all"]
        await backend.revoke(lease.id)
        assert await backend.delete_range(Keyspace.Executors, "") == 0
        marker = "/ours/compaction"
        await asyncio.to_thread(
            guarded._until, lambda: marker in guarded.etcdctl("get", marker), "a compaction of ours", 60.0
        )


async def test_a_password_is_not_sent_where_there_are_no_users(etcd):
    with capture_logs() as logs:
        await works(url(etcd, namespace="no-users"))
    (warning,) = [entry for entry in logs if entry["event"] == "etcd_has_no_users"]
    assert (warning["user"], warning["log_level"]) == ("alice", "warning")


async def test_users_that_are_switched_on_later_are_asked_for(tmp_path):
    with EtcdCluster(1) as cluster:
        add_user(cluster, "alice", "ours")
        async with await open_backend(url(cluster)) as backend:
            await backend.put(Keyspace.Sessions, "a", b"1")
            await asyncio.to_thread(cluster.enable_auth, "root's")
            await backend.put(Keyspace.Sessions, "a", b"2")
            found = await backend.get(Keyspace.Sessions, "a")
            assert found is not None
            assert found.value == b"2"


async def test_a_password_goes_through_tls(tmp_path):
    authority = Authority(tmp_path)
    with EtcdCluster(1, tls=TlsFiles(authority.cacert, *authority.issue("server", "127.0.0.1"))) as cluster:
        add_user(cluster, "alice", "ours")
        cluster.enable_auth("root's")
        await works(url(cluster, query=f"cacert={authority.cacert}"))
        error = await refused(url(cluster, user="carol", query=f"{QUICK}&cacert={authority.cacert}"), StateAccessError)
        assert "does not accept user carol with this password" in error


async def test_a_certificate_may_say_who_one_is(tmp_path):
    authority = Authority(tmp_path)
    server, admin = authority.issue("server", "127.0.0.1"), authority.issue("etcdctl", user="root")

    def of(pair: Pair) -> str:
        files = f"cacert={authority.cacert}&cert={pair.cert}&key={pair.key}"
        return f"etcd://{cluster.endpoints[0]}/ours?{QUICK}&{files}"

    tls = TlsFiles(authority.cacert, *server, client_cert_auth=True, client_cert=admin.cert, client_key=admin.key)
    with EtcdCluster(1, tls=tls) as cluster:
        add_user(cluster, "alice", "ours")
        add_user(cluster, "bob", None)
        cluster.enable_auth("root's")
        await works(of(authority.issue("alice", user="alice")))
        error = await refused(of(authority.issue("bob", user="bob")), StateAccessError)
        assert "etcdserver: permission denied" in error


# ---------------------------------------------------------------- who may not


async def test_a_wrong_password(guarded, monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, "wr0ng")
    error = await refused(url(guarded), StateAccessError)
    assert error == (
        f"etcd at {guarded.endpoints[0]} does not accept user alice with this password: "
        "etcdserver: authentication failed, invalid user ID or password"
    )


async def test_a_user_that_is_not_known(guarded):
    error = await refused(url(guarded, user="carol"), StateAccessError)
    assert "does not accept user carol with this password" in error


async def test_a_client_without_credentials(guarded):
    error = await refused(f"etcd://{guarded.endpoints[0]}/ours?{QUICK}", StateAccessError)
    assert error == (
        f"etcd at {guarded.endpoints[0]} wants to know who asks (etcdserver: user name is empty): "
        "give etcd://USER@… and the password in ONAGER_ETCD_PASSWORD or ?password_file=FILE"
    )


@pytest.mark.parametrize(("user", "namespace"), [("bob", "ours"), ("alice", "theirs"), ("alice", "ours2")])
async def test_a_user_without_rights_to_the_namespace(guarded, user, namespace):
    error = await refused(url(guarded, user=user, namespace=namespace), StateAccessError)
    assert error == (
        f"etcd at {guarded.endpoints[0]} does not let user {user} do that (etcdserver: permission denied): its role "
        f"needs readwrite on the namespace's keys (etcdctl role grant-permission ROLE --prefix=true readwrite "
        f"/{namespace}/)"
    )


async def test_rights_that_are_taken_away_are_missed_at_once():
    with EtcdCluster(1) as cluster:
        add_user(cluster, "alice", "ours")
        cluster.enable_auth("root's")
        async with await open_backend(url(cluster)) as backend:
            await backend.put(Keyspace.Sessions, "a", b"1")
            await asyncio.to_thread(cluster.etcdctl, "role", "revoke-permission", "alice", "--prefix=true", "/ours/")
            with pytest.raises(StateAccessError, match="does not let user alice do that"):
                await backend.put(Keyspace.Sessions, "a", b"2")
            with pytest.raises(StateAccessError, match="does not let user alice do that"):
                await backend.get(Keyspace.Sessions, "a")


# ---------------------------------------------------------------- tokens


@asynccontextmanager
async def watched(cluster: EtcdCluster) -> AsyncIterator[tuple[StateBackendClient, "asyncio.Queue[tuple[str, bytes]]"]]:
    """Yield a client, and what its watch, open all the time, tells."""
    reported: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    async with (
        await open_backend(url(cluster, query="timeout=20s&compact_history=off")) as backend,
        backend.watch(Keyspace.Sessions) as events,
    ):

        async def follow() -> None:
            async for event in events:
                reported.put_nowait((event.key, event.value))

        following = asyncio.create_task(follow())
        try:
            yield backend, reported
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def write_and_see(backend: StateBackendClient, reported: "asyncio.Queue[tuple[str, bytes]]", key: str) -> None:
    """Write *key* by several tasks, and see each write in the watch."""
    puts = [backend.put(Keyspace.Sessions, f"{key}/{number}", key.encode()) for number in range(20)]
    await asyncio.gather(*puts)
    async with asyncio.timeout(HANGS_S):
        seen = {await reported.get() for _ in range(20)}
    assert seen == {(f"{key}/{number}", key.encode()) for number in range(20)}
    assert reported.empty()


@pytest.mark.parametrize("how", ["users switched off and on", "member started again"])
async def test_a_forgotten_token_is_replaced_and_the_watch_goes_on(how):
    with EtcdCluster(1) as cluster:
        add_user(cluster, "alice", "ours")
        cluster.enable_auth("root's")
        async with watched(cluster) as (backend, reported):
            await write_and_see(backend, reported, "before")
            if how == "member started again":
                await asyncio.to_thread(cluster.kill, 0)
                await asyncio.to_thread(cluster.restart, 0)
                assert await backend.get(Keyspace.Sessions, "missing") is None
            else:
                await asyncio.to_thread(cluster.disable_auth)
                await asyncio.to_thread(cluster.etcdctl, "auth", "enable")
            await write_and_see(backend, reported, "after")


async def test_an_expired_token_is_replaced_and_the_watch_goes_on():
    with EtcdCluster(1, flags=["--auth-token-ttl=1"]) as cluster:
        add_user(cluster, "alice", "ours")
        cluster.enable_auth("root's")
        async with watched(cluster) as (backend, reported):
            assert isinstance(backend, EtcdBackend)
            await write_and_see(backend, reported, "before")
            old = backend._calls._metadata
            for wait_s in (3, 6, 12, 24):
                # Not used for so long it is forgotten; each use gives it its time again.
                await asyncio.sleep(wait_s)
                await backend.get(Keyspace.Sessions, "a")
                if backend._calls._metadata is not old:
                    break
            assert backend._calls._metadata["token"] != old["token"]
            await write_and_see(backend, reported, "after")


async def test_a_signed_token_of_before_a_change_of_users_is_replaced(tmp_path):
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key, public = tmp_path / "key", tmp_path / "public"
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    public.write_bytes(made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    signing = f"jwt,pub-key={public},priv-key={key},sign-method=RS256,ttl=10m"
    with EtcdCluster(1, flags=["--auth-token", signing]) as cluster:
        add_user(cluster, "alice", "ours")
        cluster.enable_auth("root's")
        async with watched(cluster) as (backend, reported):
            await write_and_see(backend, reported, "before")
            await asyncio.to_thread(add_user, cluster, "dave", "his")
            await write_and_see(backend, reported, "after")


# ---------------------------------------------------------------- what is never shown


async def test_the_password_is_in_no_log_error_or_representation(guarded, monkeypatch, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    (dead,) = free_ports(1)
    with capture_logs() as logs:
        backend = await open_backend(url(guarded, query="timeout=3s&compact_history=off"))
        async with backend:
            shown += [repr(backend), repr(vars(backend)), str(backend.url), repr(vars(backend._calls))]
            await asyncio.to_thread(guarded.kill, 0)
            await _fails(backend.put(Keyspace.Sessions, "a", b""), shown)
            await asyncio.to_thread(guarded.restart, 0)
            await backend.get(Keyspace.Sessions, "a")
        for bad in (
            url(guarded, user="carol"),
            url(guarded, namespace="theirs"),
            url(guarded, query="timeout=1"),
            f"etcd://alice@127.0.0.1:{dead}?{QUICK}",
            f"etcd://alice:{PASSWORD}@{guarded.endpoints[0]}",
            f"etcd://alice@{guarded.endpoints[0]}?password={PASSWORD}",
        ):
            await _fails(open_backend(bad), shown)
    out, err = capfd.readouterr()
    for text in (*shown, repr(logs), caplog.text, out, err, guarded.logs(10_000)):
        assert PASSWORD not in text
    assert len(shown) == 4 + 2 * 7


async def _fails(call, shown: list[str]) -> None:
    try:
        await call
    except OnagerError as error:
        shown += ["".join(traceback.format_exception(error)), repr(error)]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_a_scheduler_tells_the_password_to_nobody(guarded, tmp_path, level):
    def run(backend: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "onager", "scheduler", "--backend", backend, "--listen", "127.0.0.1:0"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ONAGER_SCHEDULER_LOG_LEVEL": level, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_S,
        )
        assert done.returncode == 2
        return done.stdout + done.stderr

    printed = run(url(guarded, user="carol"))
    assert "onager scheduler: etcd at" in printed
    assert "does not accept user carol with this password" in printed
    assert PASSWORD not in printed
    printed = run(f"etcd://alice:{PASSWORD}@{guarded.endpoints[0]}/ours")
    assert "a password does not belong into a URL: set ONAGER_ETCD_PASSWORD" in printed
    assert PASSWORD not in printed
