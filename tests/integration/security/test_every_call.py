"""Every call to a scheduler with TLS and tokens, once with a role that may not make it and once with one that may."""

import asyncio
import secrets

import grpc
import pytest
from grpc import StatusCode

from onager.protocol.security import ClientAccess, ClientSecurity, Role
from onager.protocol.security.roles import ROLES
from tests.integration.security.parts import scheduler
from tests.support.etcd.certificates import Authority
from tests.support.waiting import HANGS_S

SERVED = {method: roles for method, roles in ROLES.items() if not method.startswith("/onager.v1.OnagerExecutor/")}
"""Without the service of executors in push mode."""
ANSWERED = {StatusCode.OK, StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION}
"""The ends of calls with an empty request that have reached their methods."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokens")
    lines = {role: f"its-{role} {role} {secrets.token_hex(32)}\n" for role in Role}
    for role, line in lines.items():
        (directory / role).write_text(line)
    (directory / "all").write_text("".join(lines.values()))
    return directory


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, authority, tokens):
    pair = authority.issue("server", "127.0.0.1")
    flags = ("--tls-cert", pair.cert, "--tls-key", pair.key, "--auth-token-file", tokens / "all")
    with scheduler(tmp_path_factory.mktemp("guarded"), *flags) as started:
        yield started


async def ends(address: str, security: ClientSecurity, methods: set[str]) -> dict[str, StatusCode]:
    """Return how each method answers an empty request: with its first message, or with an error."""

    async def end(channel: grpc.aio.Channel, method: str) -> StatusCode:
        call = channel.unary_stream(method)(b"", timeout=HANGS_S, metadata=access.metadata())
        try:
            first = await call.read()
            return StatusCode.OK if first is not grpc.aio.EOF else await call.code()
        except grpc.aio.AioRpcError as error:
            return error.code()
        finally:
            call.cancel()

    access = ClientAccess(security, [address])
    async with access.aio_channel(address) as channel:
        found = await asyncio.gather(*(end(channel, method) for method in methods))
    return dict(zip(methods, found, strict=True))


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_make_its_calls_and_no_others(guarded, authority, tokens, role):
    security = ClientSecurity(tls_ca=authority.cacert, auth_token_file=tokens / role)
    found = await ends(guarded.address(), security, set(SERVED))
    refused = {method for method, code in found.items() if code is StatusCode.PERMISSION_DENIED}
    assert refused == {method for method, roles in SERVED.items() if role not in roles}
    assert {found[method] for method in SERVED if method not in refused} <= ANSWERED, found
