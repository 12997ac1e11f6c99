"""Tokens in files, addresses of this machine, and gRPC's words about TLS."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from onager.errors import InvalidSettingError
from onager.protocol.security import ClientAccess, ClientSecurity, ServerAccess, ServerSecurity, TokenFile
from onager.protocol.security.places import is_loopback, leads_nowhere_else
from onager.protocol.security.reasons import reason_of
from onager.protocol.security.servers import token_file
from tests.support.etcd.certificates import Authority

_TOKEN = "0123456789abcdef"
_OTHER = "fedcba9876543210"
_LAST = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:50050: "


def test_the_first_token_is_sent_and_every_one_is_taken(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"\n  {_TOKEN}  \n{_OTHER}\n")
    tokens = TokenFile(path)
    assert tokens.metadata() == (("authorization", f"Bearer {_TOKEN}"),)
    assert tokens.find(f"Bearer {_TOKEN}") is not None
    assert tokens.find(f"Bearer {_OTHER}") is not None


@pytest.mark.parametrize(
    "shown", ["", "Bearer ", _TOKEN, f"bearer {_TOKEN}", f"Bearer {_TOKEN} ", f"Bearer {_TOKEN[:-1]}", "Bearer ü"]
)
def test_nothing_else_is_taken(tmp_path, shown):
    path = tmp_path / "token"
    path.write_text(_TOKEN)
    assert TokenFile(path).find(shown) is None


def test_a_file_that_was_replaced_is_read_again_and_one_that_is_gone_leaves_what_was_read(tmp_path):
    path, new = tmp_path / "token", tmp_path / "new"
    path.write_text(_TOKEN)
    tokens = TokenFile(path)
    new.write_text(_OTHER)
    new.replace(path)
    assert tokens.find(f"Bearer {_TOKEN}") is None
    assert tokens.find(f"Bearer {_OTHER}") is not None
    path.unlink()
    assert tokens.find(f"Bearer {_OTHER}") is not None


@pytest.mark.parametrize("content", [b"", b" \n", b"too-short", b"0123456789 abcdefgh", "schlüssel-schlüssel".encode()])
def test_no_token_is_reported_without_telling_what_is_there(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(InvalidSettingError, match="openssl rand -hex 32") as raised:
        TokenFile(path)
    assert not content.strip() or content.decode() not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("short", "the token of line 4 has less than 16 characters"),
        ("a" * 5000, "the token of line 4 has less than 16 characters, or more than 4096"),
        ("0123456789\x01abcdef", "the token of line 4 has a character that cannot be printed"),
        ("name client two words", "line 4 is neither a token nor"),
        ("name nobody 0123456789abcdef", "line 4 has a role that is none"),
        ("na\x01me client 0123456789abcdef", "line 4 has a name of more than 128 characters, or with one that cannot"),
    ],
)
def test_what_is_wrong_with_a_line_is_reported_with_its_number_in_the_file(tmp_path, line, why):
    (tmp_path / "token").write_text(f"{_OTHER}\n\n  \n{line}\n")
    with pytest.raises(InvalidSettingError, match=why):
        TokenFile(tmp_path / "token")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "localhost:1", "LOCALHOST:1"])
def test_loopback_is_of_this_machine(address):
    assert is_loopback(address)
    assert leads_nowhere_else(address)


@pytest.mark.parametrize("address", ["10.0.0.1:1", "example:1", "localhost.example:1", "[fe80::1]:1", "127.0.0.1.x:1"])
def test_other_addresses_are_not(address):
    assert not is_loopback(address)
    assert not leads_nowhere_else(address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1"])
def test_the_unspecified_address_is_reached_by_all_but_leads_here(address):
    assert not is_loopback(address)
    assert leads_nowhere_else(address)


def test_one_address_elsewhere_is_enough_to_be_refused():
    with pytest.raises(InvalidSettingError, match="b:1"):
        ClientAccess(ClientSecurity(), ["127.0.0.1:1", "b:1"])
    ClientAccess(ClientSecurity(insecure=True), ["127.0.0.1:1", "b:1"])


def test_a_token_alone_does_not_open_a_port_to_other_machines(tmp_path):
    path = tmp_path / "token"
    path.write_text(_TOKEN)
    with pytest.raises(InvalidSettingError, match="not encrypted"):
        ServerAccess(ServerSecurity(auth_token_file=path), "[::]:50050")
    ServerAccess(ServerSecurity(auth_token_file=path), "[::1]:50050")


def test_where_other_machines_call_every_token_needs_a_role_unless_the_operator_says_otherwise(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"ann client {_TOKEN}\n\n{_TOKEN}\n")
    pair = Authority(tmp_path).issue("server", "127.0.0.1")
    safe = ServerSecurity(auth_token_file=path, tls_cert=pair.cert, tls_key=pair.key)
    with pytest.raises(InvalidSettingError, match=r"line 3 has no role.*TOKENS_WITHOUT_ROLE=true"):
        ServerAccess(safe, "0.0.0.0:50050")
    ServerAccess(safe, "127.0.0.1:50050")
    for allowed in ({"tokens_without_role": True}, {"insecure": True}):
        assert token_file(replace(safe, **allowed), "0.0.0.0:50050").find(f"Bearer {_TOKEN}") is not None


def test_a_line_without_a_role_that_is_added_later_does_not_count_either(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"ann client {_TOKEN}\n")
    tokens = token_file(ServerSecurity(auth_token_file=path), "0.0.0.0:50050")
    path.write_text(f"ann client {_TOKEN}\n{'x' * 32}\n")
    with capture_logs() as logs:
        assert tokens.find(f"Bearer {'x' * 32}") is None
        assert tokens.find(f"Bearer {_TOKEN}").name == "ann"
    assert [log["event"] for log in logs] == ["tokens_not_read_again"]


def test_variables_say_what_flags_say():
    assert ClientSecurity.from_environment({"ONAGER_TLS_CA": "", "ONAGER_INSECURE": "0"}) == ClientSecurity()
    found = ClientSecurity.from_environment({"ONAGER_AUTH_TOKEN_FILE": "t", "ONAGER_INSECURE": "True"})
    assert (str(found.auth_token_file), found.insecure) == ("t", True)


@pytest.mark.parametrize("details", ["", "Socket closed", f"{_LAST}Connection refused", "the scheduler leaves"])
@pytest.mark.parametrize("has_tls", [True, False])
def test_other_trouble_is_not_taken_for_tls(details, has_tls):
    assert reason_of(details, has_tls=has_tls, has_certificate=False) is None
