"""TLS and tokens between real processes: valid ones work, and each invalid one gives its own error."""

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from onager.access_errors import TokenMissingError, TokenRefusedError
from onager.errors import OnagerError, SchedulerUnreachableError, TlsError
from onager.executor.agent.gateway import SchedulerGateway
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.onager_pb2_grpc import OnagerSchedulerStub
from onager.protocol.security import ClientAccess, ClientSecurity
from tests.integration.security.parts import ROOT, Scheduler, ask, cli, environment, new_token, scheduler
from tests.support.etcd.certificates import Authority
from tests.support.processes.children import end, free_ports, start
from tests.support.waiting import HANGS_S


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def authority(files) -> Authority:
    return Authority(files)


@pytest.fixture(scope="module")
def other(files) -> Authority:
    return Authority(files, "other")


@pytest.fixture(scope="module")
def token_file(files) -> Path:
    new_token(files / "token")
    return files / "token"


@pytest.fixture(scope="module")
def plain(files):
    with scheduler(files) as started:
        yield started


@pytest.fixture(scope="module")
def guarded(files, authority, token_file):
    """A scheduler with TLS and tokens, which answers health checks of anyone at another address."""
    pair = authority.issue("server", "127.0.0.1", "localhost")
    health = f"127.0.0.1:{free_ports(1)[0]}"
    flags = ("--tls-cert", pair.cert, "--tls-key", pair.key, "--auth-token-file", token_file, "--health-listen", health)
    with scheduler(files, *flags) as started:
        started.health = health
        started.address()  # it serves from now on
        yield started


@pytest.fixture(scope="module")
def mutual(files, authority):
    """A scheduler that wants a certificate of its callers."""
    pair = authority.issue("mutual", "127.0.0.1")
    with scheduler(files, "--tls-cert", pair.cert, "--tls-key", pair.key, "--tls-client-ca", authority.cacert) as it:
        yield it


def refused(address: str, error: type[OnagerError], **security: Path | bool) -> OnagerError:
    with pytest.raises(error) as raised:
        ask(address, **security)
    assert type(raised.value) is error
    return raised.value


async def register(address: str, **security: Path | bool) -> None:
    """Do what an executor does first."""
    access = ClientAccess(ClientSecurity(**security), [address])
    request = pb.RegisterExecutorRequest(
        executor_id="e-1", incarnation="life", host="here", slots=1, protocol_version=PROTOCOL_VERSION,
        spark_version="4.3.0", python_version="3.11", exchange_dir="/nowhere",
    )  # fmt: skip
    async with SchedulerGateway((address,), access) as gateway:
        await gateway.register(request, 30.0)
        await gateway.deregister(pb.DeregisterExecutorRequest(executor_id="e-1", incarnation="life"), 30.0)


# ---------------------------------------------------------------- what works


async def test_clients_and_executors_with_the_authority_and_the_token_are_served(guarded, authority, token_file):
    ask(guarded.address(), tls_ca=authority.cacert, auth_token_file=token_file)
    await register(guarded.address(), tls_ca=authority.cacert, auth_token_file=token_file)


async def test_a_certificate_is_shown_where_it_is_wanted(mutual, authority):
    mine = authority.issue("mine")
    ask(mutual.address(), tls_ca=authority.cacert, tls_cert=mine.cert, tls_key=mine.key)
    await register(mutual.address(), tls_ca=authority.cacert, tls_cert=mine.cert, tls_key=mine.key)


def test_the_command_line_takes_flags_and_variables(guarded, authority, token_file):
    done = cli("jobs", "--scheduler", guarded.address(), "--tls-ca", authority.cacert, "--auth-token-file", token_file)
    assert (done.returncode, done.stderr) == (0, "")
    variables = {"ONAGER_TLS_CA": str(authority.cacert), "ONAGER_AUTH_TOKEN_FILE": str(token_file)}
    done = cli("state", "ls", "--scheduler", guarded.address(), **variables)
    assert (done.returncode, done.stderr) == (0, "")


def test_health_is_reported_to_anybody_without_a_token_and_in_plaintext_where_that_is_asked_for(guarded, authority):
    request = health_pb2.HealthCheckRequest()
    for channel in (
        ClientAccess(ClientSecurity(tls_ca=authority.cacert), []).channel(guarded.address()),
        ClientAccess(ClientSecurity(), []).channel(guarded.health),
    ):
        with channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=HANGS_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_only_health_is_reported_at_the_address_for_health(guarded):
    channel = ClientAccess(ClientSecurity(), []).channel(guarded.health)
    with channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/onager.v1.OnagerScheduler/ListJobs")(b"", timeout=HANGS_S)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_containers_ask_for_health_by_a_script(guarded, authority, token_file):
    variables = {"ONAGER_TLS_CA": str(authority.cacert), "ONAGER_AUTH_TOKEN_FILE": str(token_file)}
    variables |= {"ONAGER_SCHEDULER": guarded.address(), "PYTHONPATH": str(ROOT)}

    def code(*arguments: str) -> int:
        script = [sys.executable, ROOT / "deploy" / "healthy.py", *arguments]
        return subprocess.run(script, env=environment() | variables, check=False, capture_output=True).returncode

    assert code("scheduler", guarded.health) == 0
    assert code("scheduler", f"127.0.0.1:{free_ports(1)[0]}") == 1
    assert code("executor", "nobody-of-this-name") == 1


# ---------------------------------------------------------------- tokens


def test_a_token_is_wanted(guarded, authority):
    error = refused(guarded.address(), TokenMissingError, tls_ca=authority.cacert)
    assert "give --auth-token-file FILE" in str(error)


def test_a_token_that_the_scheduler_does_not_have_is_refused_and_never_logged(guarded, authority, files):
    wrong = new_token(files / "wrong")
    error = refused(guarded.address(), TokenRefusedError, tls_ca=authority.cacert, auth_token_file=files / "wrong")
    assert wrong not in str(error)
    guarded.said('"why": "TokenRefusedError"')
    right = (files / "token").read_text().strip()
    assert wrong not in guarded.text
    assert right not in guarded.text


async def test_an_executor_without_the_right_token_is_refused(guarded, authority, files):
    with pytest.raises(TokenMissingError):
        await register(guarded.address(), tls_ca=authority.cacert)
    new_token(files / "another")
    with pytest.raises(TokenRefusedError):
        await register(guarded.address(), tls_ca=authority.cacert, auth_token_file=files / "another")


def test_the_command_line_says_what_a_refusal_means(guarded, authority):
    done = cli("jobs", "--scheduler", guarded.address(), "--tls-ca", authority.cacert)
    assert done.returncode == 2
    assert done.stderr.startswith("onager: the scheduler wants a token: give --auth-token-file FILE")


@pytest.mark.parametrize("method", ["GetJob", "WatchJob", "SubmitJob", "ListState"])
def test_nothing_but_health_is_served_without_a_token(guarded, authority, method):
    channel = ClientAccess(ClientSecurity(tls_ca=authority.cacert), []).channel(guarded.address())
    with channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(f"/onager.v1.OnagerScheduler/{method}")(b"", timeout=HANGS_S)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_tokens_are_replaced_without_a_restart_and_without_a_pause(files):
    there, here = files / "rotating", files / "mine"
    old = new_token(there)
    here.write_text(old)
    with scheduler(files, "--auth-token-file", there) as running:
        connection_files = {"auth_token_file": here}
        ask(running.address(), **connection_files)
        new = "the-new-token-of-the-cluster"
        there.write_text(f"{old}\n{new}\n")
        ask(running.address(), **connection_files)
        here.write_text(f"{new}\n")
        ask(running.address(), **connection_files)
        there.write_text(f"{new}\n")
        ask(running.address(), **connection_files)
        here.write_text(old)
        refused(running.address(), TokenRefusedError, **connection_files)
        there.write_text("")  # caught while it is being written
        here.write_text(new)
        ask(running.address(), **connection_files)
        running.said("tokens_not_read_again")


# ---------------------------------------------------------------- certificates


def reason(address: str, **security: Path | bool) -> str:
    error = refused(address, TlsError, **security)
    assert isinstance(error, TlsError)
    assert str(error).startswith(f"no safe connection to {address}: ")
    return error.reason


async def test_a_scheduler_of_another_authority_is_not_trusted(guarded, other, token_file):
    assert reason(guarded.address(), tls_ca=other.cacert, auth_token_file=token_file) == "wrong_authority"
    with pytest.raises(TlsError, match="its certificate is of an authority that is not in --tls-ca"):
        await register(guarded.address(), tls_ca=other.cacert, auth_token_file=token_file)


def test_an_expired_certificate(files, authority):
    pair = authority.issue("expired", "127.0.0.1", is_expired=True)
    with scheduler(files, "--tls-cert", pair.cert, "--tls-key", pair.key) as running:
        assert reason(running.address(), tls_ca=authority.cacert) == "expired"


def test_a_certificate_for_another_host(files, authority):
    pair = authority.issue("elsewhere", "elsewhere.example")
    with scheduler(files, "--tls-cert", pair.cert, "--tls-key", pair.key) as running:
        assert reason(running.address(), tls_ca=authority.cacert) == "wrong_host"


def test_a_renewed_certificate_and_other_authorities_of_callers_count_without_a_restart(files, authority, other):
    served, callers = authority.issue("renewed", "127.0.0.1", is_expired=True), files / "callers.pem"
    callers.write_bytes(other.cacert.read_bytes())
    mine = authority.issue("caller")
    shown = {"tls_ca": authority.cacert, "tls_cert": mine.cert, "tls_key": mine.key}
    flags = ("--tls-cert", served.cert, "--tls-key", served.key, "--tls-client-ca", callers)
    with scheduler(files, *flags) as running:
        assert reason(running.address(), **shown) == "expired"
        fresh = authority.issue("fresh", "127.0.0.1")
        served.key.write_bytes(fresh.key.read_bytes())
        # The old certificate is still served.
        assert reason(running.address(), **shown) == "expired"
        served.cert.write_bytes(fresh.cert.read_bytes())
        assert reason(running.address(), **shown) == "certificate_refused"
        callers.write_bytes(other.cacert.read_bytes() + authority.cacert.read_bytes())
        ask(running.address(), **shown)


async def test_an_authority_that_is_added_is_trusted_without_a_restart(guarded, authority, other, files, token_file):
    trusted = files / "trusted.pem"
    trusted.write_bytes(other.cacert.read_bytes())
    address, request = guarded.address(), pb.ListSchedulersRequest()
    access = ClientAccess(ClientSecurity(tls_ca=trusted, auth_token_file=token_file), [address])
    blocking = access.channel(address)
    async with access.aio_channel(address) as channel:
        calls = [
            lambda: OnagerSchedulerStub(channel).ListSchedulers(request, timeout=HANGS_S, metadata=access.metadata()),
            lambda: asyncio.to_thread(OnagerSchedulerStub(blocking).ListSchedulers, request, timeout=HANGS_S),
        ]

        async def answers() -> list[bool]:
            results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
            assert all(isinstance(t, pb.ListSchedulersResponse | grpc.RpcError) for t in results), results
            return [isinstance(t, pb.ListSchedulersResponse) for t in results]

        assert await answers() == [False, False]
        trusted.write_text("half of it")
        assert await answers() == [False, False]
        trusted.write_bytes(other.cacert.read_bytes() + authority.cacert.read_bytes())
        end_s = asyncio.get_running_loop().time() + 60
        while await answers() != [True, True]:
            assert asyncio.get_running_loop().time() < end_s
            await asyncio.sleep(0.1)
    blocking.close()


def test_plaintext_to_a_scheduler_that_speaks_tls(guarded):
    assert reason(guarded.address()) == "wants_tls"


def test_tls_to_a_scheduler_that_speaks_plaintext(plain, authority):
    assert reason(plain.address(), tls_ca=authority.cacert) == "not_tls"


def test_a_certificate_of_ours_that_lacks_or_is_of_another_authority_or_has_expired(mutual, authority, other):
    assert reason(mutual.address(), tls_ca=authority.cacert) == "certificate_wanted"
    for wrong in (other.issue("caller"), authority.issue("late", is_expired=True)):
        kept = {"tls_ca": authority.cacert, "tls_cert": wrong.cert, "tls_key": wrong.key}
        assert reason(mutual.address(), **kept) == "certificate_refused"


def test_nobody_there_is_no_matter_of_tls(authority):
    refused(f"127.0.0.1:{free_ports(1)[0]}", SchedulerUnreachableError, tls_ca=authority.cacert)


# ---------------------------------------------------------------- at the start


def ended(started: Scheduler) -> str:
    try:
        assert started.process.wait(HANGS_S) == 2, started.text
    finally:
        end(started.process)
    return started.text


def test_a_scheduler_does_not_open_itself_to_other_machines_unless_asked_to(files, authority, token_file):
    port = free_ports(1)[0]
    address = f"0.0.0.0:{port}"
    error = ended(Scheduler(files, listen=address))
    assert f"onager scheduler: --listen='{address}': other machines reach this address" in error
    assert "--tls-cert FILE and --tls-key FILE" in error
    assert "--auth-token-file FILE, or --tls-client-ca FILE" in error
    assert "--insecure" in error
    error = ended(Scheduler(files, "--auth-token-file", token_file, listen=address))
    assert "connections are not encrypted" in error
    assert "callers need not say who they are" not in error
    pair = authority.issue("open", "127.0.0.1")
    error = ended(Scheduler(files, "--tls-cert", pair.cert, "--tls-key", pair.key, listen=address))
    assert "callers need not say who they are" in error
    with scheduler(files, "--insecure", listen=address) as running:
        running.address()
        ask(f"127.0.0.1:{port}")


def test_files_that_cannot_be_used_are_reported_at_the_start(files, authority, token_file):
    pair, stranger = authority.issue("pair", "127.0.0.1"), authority.issue("stranger", "127.0.0.1")
    empty, short = files / "empty", files / "short"
    empty.write_text("\n")
    short.write_text("secret\n")
    cases = {
        ("--tls-cert", pair.cert): "--tls-key belongs to it",
        ("--tls-cert", pair.cert, "--tls-key", stranger.key): "it is not the key of the certificate",
        ("--tls-cert", token_file, "--tls-key", pair.key): "PEM without a pass phrase is expected",
        ("--tls-cert", files / "none.pem", "--tls-key", pair.key): "none.pem': the file cannot be read (No such file",
        ("--tls-client-ca", authority.cacert): "it needs --tls-cert and --tls-key",
        ("--auth-token-file", empty): "there is no token in it",
        ("--auth-token-file", short): "less than 16 characters",
        ("--auth-token-file", files / "none"): "the file cannot be read (No such file or directory)",
    }
    started = {flags: Scheduler(files, *flags) for flags in cases}
    errors_of = {flags: ended(one) for flags, one in started.items()}
    for flags, words in cases.items():
        assert words in errors_of[flags], errors_of[flags]
        assert "secret" not in errors_of[flags]


def test_clients_and_executors_do_not_send_plaintext_to_other_machines_unless_asked_to(files):
    done = cli("jobs", "--scheduler", "scheduler.example:50050")
    assert done.returncode == 2
    assert "it is on another machine, and the connection would not be encrypted; give --tls-ca FILE" in done.stderr
    log = files / "executor.log"
    command = [sys.executable, "-m", "onager", "executor", "--scheduler", "192.0.2.1:50050", "--exchange-dir", files]
    process = start(command, log, environment())
    try:
        assert process.wait(HANGS_S) == 2
    finally:
        end(process)
    assert "--scheduler='192.0.2.1:50050': it is on another machine" in log.read_text()
