"""What a token allows: every method of every service, for every role."""

import asyncio
import secrets
from pathlib import Path

import grpc
import pytest

from onager.access_errors import RoleRefusedError, TokenRefusedError
from onager.errors import InvalidSettingError
from onager.protocol import onager_pb2 as pb
from onager.protocol import onager_pb2_grpc as rpc
from onager.protocol.security import ClientAccess, ClientSecurity, Role, ServerAccess, ServerSecurity, TokenFile
from onager.protocol.security.roles import ROLES
from onager.protocol.spark_connect import METHODS, SERVICE
from onager.protocol.status import from_rpc_error
from tests.integration.security.parts import ask, cli, scheduler
from tests.support.waiting import HANGS_S

SERVICES = pb.DESCRIPTOR.services_by_name


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Files with the token of each role, one with all of them, and one with a token that has no role."""
    directory = tmp_path_factory.mktemp("roles")
    lines = [f"its-{role} {role} {secrets.token_hex(32)}" for role in Role]
    for role, line in zip(Role, lines, strict=True):
        (directory / role).write_text(f"{line}\n")
    (directory / "alone").write_text(f"{secrets.token_hex(32)}\n")
    (directory / "all").write_text("\n".join([*lines, (directory / "alone").read_text()]))
    return directory


@pytest.fixture(scope="module")
def guarded(files):
    with scheduler(files, "--auth-token-file", files / "all") as started:
        yield started


def test_every_method_says_which_roles_may_call_it():
    methods = {f"/{s.full_name}/{m.name}" for s in SERVICES.values() for m in s.methods}
    methods |= {f"/{SERVICE}/{name}" for name in METHODS}
    assert set(ROLES) == methods
    assert all(ROLES.values())


async def test_every_method_takes_tokens_of_its_roles_and_no_others(files):
    access = ServerAccess(ServerSecurity(auth_token_file=files / "all"), "127.0.0.1:0")
    server = grpc.aio.server(interceptors=access.interceptors)
    for name in SERVICES:
        getattr(rpc, f"add_{name}Servicer_to_server")(getattr(rpc, f"{name}Servicer")(), server)
    port = access.add_port(server, "127.0.0.1:0")
    await server.start()

    async def answer(channel: grpc.aio.Channel, method: str, token: str) -> grpc.StatusCode:
        shown = TokenFile(files / token).metadata()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(method)(b"", metadata=shown, timeout=HANGS_S)
        if raised.value.code() is grpc.StatusCode.PERMISSION_DENIED:
            refusal = from_rpc_error(raised.value, "here")
            assert isinstance(refusal, RoleRefusedError)
            assert f"its-{token} has the role {token}, and {method.rpartition('.')[2]} takes " in str(refusal)
        return raised.value.code()

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method, roles in {**ROLES, "/onager.v1.OnagerScheduler/Unknown": frozenset()}.items():
            names = [*Role, "alone"]
            codes = await asyncio.gather(*(answer(channel, method, name) for name in names))
            may = {name for name, code in zip(names, codes, strict=True) if code is grpc.StatusCode.UNIMPLEMENTED}
            assert may == {*roles, "alone"}, method
            assert {*codes} <= {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}
    await server.stop(None)


def test_admins_look_into_the_state_and_clients_do_not(guarded, files):
    for name in ("admin", "alone"):
        ask(guarded.address(), auth_token_file=files / name)
    with pytest.raises(
        RoleRefusedError, match="the token its-client has the role client, and OnagerScheduler/CheckState takes admin"
    ):
        ask(guarded.address(), auth_token_file=files / "client")
    done = cli("jobs", "--scheduler", guarded.address(), "--auth-token-file", files / "client")
    assert (done.returncode, done.stderr) == (0, "")
    done = cli("state", "ls", "--scheduler", guarded.address(), "--auth-token-file", files / "client")
    assert done.returncode == 2
    assert "the token its-client has the role client, and OnagerScheduler/ListState takes admin" in done.stderr
    assert '"caller": "its-client"' in guarded.text


def test_tokens_without_a_role_are_warned_about(guarded, files):
    assert "tokens_without_role" in guarded.text
    with scheduler(files, "--auth-token-file", files / "scheduler") as started:
        started.address()
        assert "tokens_without_role" not in started.text


def shown(file: Path, *roles: Role) -> bytes:
    ((_, value),) = TokenFile(file).metadata(*roles)
    return value.removeprefix("Bearer ").encode()


def test_of_several_lines_everybody_sends_the_one_that_is_for_it(files, tmp_path):
    own = {role: (files / role).read_text().split()[-1].encode() for role in Role}
    file = tmp_path / "several"
    file.write_text("".join((files / role).read_text() for role in Role))
    assert {role: shown(file, role) for role in Role} == own
    assert shown(file, Role.CLIENT, Role.ADMIN) == own[Role.CLIENT]
    assert shown(files / "executor", Role.CLIENT) == own[Role.EXECUTOR]  # a single line counts whatever its role
    file.write_text((files / "executor").read_text() + (files / "scheduler").read_text())
    with pytest.raises(InvalidSettingError, match="none of its 2 lines is for the role client or admin"):
        ClientAccess(ClientSecurity(auth_token_file=file), [])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("me client", "is neither a token nor NAME ROLE TOKEN"),
        ("me client 0123456789abcdef more", "is neither a token nor NAME ROLE TOKEN"),
        ("me root 0123456789abcdef", "has a role that is none: give viewer, operator, client, executor, "),
        ("me client short", "has less than 16 characters"),
    ],
)
def test_a_line_that_is_none_is_reported_without_its_token(tmp_path, line, why):
    (tmp_path / "tokens").write_text(f"{line}\n")
    with pytest.raises(InvalidSettingError, match=why) as raised:
        TokenFile(tmp_path / "tokens")
    assert "0123456789abcdef" not in str(raised.value)


def test_a_role_is_part_of_no_token(files):
    whole = (files / "client").read_text().strip()
    assert TokenFile(files / "all").find(f"Bearer {whole}") is None
    assert "Bearer" not in repr(TokenFile(files / "all").find(f"Bearer {whole.split()[-1]}"))
    assert whole.split()[-1] not in repr(TokenFile(files / "all").find(f"Bearer {whole.split()[-1]}"))


def test_a_wrong_token_is_still_reported_as_such(guarded, tmp_path):
    (tmp_path / "wrong").write_text(f"me admin {secrets.token_hex(32)}\n")
    with pytest.raises(TokenRefusedError):
        ask(guarded.address(), auth_token_file=tmp_path / "wrong")
