"""Who calls over HTTP: tokens, cookies, hosts and origins."""

import pytest
from starlette.requests import Request

from onager.access_errors import (
    HostRefusedError,
    LoginsLimitedError,
    OriginRefusedError,
    SessionEndedError,
    TokenMissingError,
    TokenRefusedError,
)
from onager.errors import InvalidSettingError
from onager.protocol.security import Role, ServerSecurity, TokenFile, principal
from onager.protocol.security.principal import note_principal
from onager.scheduler.http import attempts
from onager.scheduler.http.access import COOKIE, SAFE_COOKIE, Access
from onager.scheduler.http.cookies import LIFE_S, Cookies

LISTEN = "127.0.0.1:50080"
ANN, BOB, EVE = "a" * 32, "b" * 32, "e" * 32


@pytest.fixture(autouse=True)
def nobody_afterwards():
    yield
    note_principal("")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"ann admin {ANN}\nbob viewer {BOB}\n")
    return path


@pytest.fixture
def access(file, clock):
    return Access(ServerSecurity(auth_token_file=file), LISTEN, [LISTEN], ["onager.example.org"], clock)


@pytest.fixture
def open_access(clock):
    return Access(ServerSecurity(), LISTEN, [LISTEN, "node-7:50050"], ["onager.example.org"], clock)


def request(method="GET", *, address="10.0.0.7", **headers):
    headers = {"host": "127.0.0.1:50080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/", "headers": pairs, "query_string": b"", "scheme": "http"}
    return Request({**scope, "client": (address, 1), "server": ("127.0.0.1", 50080)})


def test_a_token_says_who_calls(access):
    caller = access.identify(request(authorization=f"Bearer {BOB}"))
    assert (caller.principal, caller.role, caller.by, principal()) == ("bob", Role.VIEWER, "token", "bob")
    assert caller.peer() == "ipv4:10.0.0.7:0"
    assert access.identify(request(address="::1", authorization=f"Bearer {BOB}")).peer() == "ipv6:[::1]:0"
    with pytest.raises(TokenMissingError):
        access.identify(request())
    with pytest.raises(TokenRefusedError):
        access.identify(request(authorization=f"Bearer {EVE}"))


def test_where_other_machines_reach_the_page_every_token_needs_a_role_unless_the_operator_says_otherwise(file, clock):
    file.write_text(f"ann admin {ANN}\n{BOB}\n")

    def made(listen, **more):
        return Access(ServerSecurity(auth_token_file=file, **more), listen, [LISTEN], [], clock)

    with pytest.raises(InvalidSettingError, match="line 2 has no role"):
        made("0.0.0.0:50080")
    for open_to in (
        made(LISTEN),
        *(made("0.0.0.0:50080", **{way: True}) for way in ("tokens_without_role", "insecure")),
    ):
        assert open_to.identify(request(authorization=f"Bearer {BOB}")).role is None


def test_a_login_gives_a_cookie_that_any_scheduler_takes_until_it_ends(access, file, clock):
    caller, cookie = access.log_in(request("POST"), ANN)
    assert (caller.principal, caller.by) == ("ann", "cookie")
    elsewhere = Access(ServerSecurity(auth_token_file=file), LISTEN, ["10.0.0.9:1"], [], clock)
    assert elsewhere.identify(request(cookie=f"{COOKIE}={cookie}")).role is Role.ADMIN
    clock.advance(LIFE_S * 1000 - 1000)
    elsewhere.identify(request(cookie=f"{COOKIE}={cookie}"))
    clock.advance(1000)
    with pytest.raises(SessionEndedError):
        access.identify(request(cookie=f"{COOKIE}={cookie}"))


def test_a_line_of_the_file_logs_in_like_its_token(access):
    assert access.log_in(request("POST"), f"  ann admin {ANN}\n")[0].principal == "ann"


def test_a_cookie_ends_with_its_token_and_its_rights_with_its_role(access, file):
    _, cookie = access.log_in(request("POST"), ANN)
    file.write_text(f"ann viewer {ANN}\nbob viewer {BOB} \n")
    assert access.identify(request(cookie=f"{COOKIE}={cookie}")).role is Role.VIEWER
    file.write_text(f"ann admin {EVE}\n")
    with pytest.raises(SessionEndedError):
        access.identify(request(cookie=f"{COOKIE}={cookie}"))
    file.write_text(f"ann admin {EVE}\nann admin {ANN}\n\n")  # while a token is replaced, both are good
    access.identify(request(cookie=f"{COOKIE}={cookie}"))


def test_no_other_cookie_is_taken(access, tmp_path, clock):
    _, cookie = access.log_in(request("POST"), ANN)
    version, expires, name, signature = cookie.split(".")
    theirs = tmp_path / "theirs"
    theirs.write_text(f"ann admin {EVE}\n")
    forged, _ = Cookies(TokenFile(theirs).named, clock).make(TokenFile(theirs).named("ann")[0])
    bobs = access.log_in(request("POST"), BOB)[1].split(".")[2]
    for other in (
        forged,
        f"{version}.{int(expires) + 1}.{name}.{signature}",
        f"{version}.{expires}.{bobs}.{signature}",
        f"2.{expires}.{name}.{signature}",
        f"{version}.{expires}.{name}.{signature[:-2]}",
        f"{version}.{expires}.%.{signature}",
        f"{version}.{expires}..{signature}",
        "",
        ".",
        "x" * 5_000,
        "1.1.1.\xe4",
    ):
        with pytest.raises((SessionEndedError, TokenMissingError)):
            access.identify(request(cookie=f"{COOKIE}={other}"))


def test_the_cookie_has_a_name_of_its_own_under_tls(file, clock, tmp_path):
    security = ServerSecurity(auth_token_file=file, tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    assert Access(security, LISTEN, [], [], clock).cookie == SAFE_COOKIE


def test_only_our_own_pages_may_write_with_a_cookie(access):
    _, cookie = access.log_in(request("POST"), ANN)
    jar = f"{COOKIE}={cookie}"
    for origin in ("http://127.0.0.1:50080", "https://onager.example.org", "https://onager.example.org:8443"):
        access.identify(request("POST", cookie=jar, origin=origin))
    access.identify(request("GET", cookie=jar, origin="https://evil.example"))
    for origin in (
        "https://evil.example",
        "http://127.0.0.1:50081",
        "http://127.0.0.1",
        "null",
        "",
        "http://[",
        "ftp://x",
    ):
        with pytest.raises(OriginRefusedError):
            access.identify(request("POST", cookie=jar, origin=origin))
    with pytest.raises(OriginRefusedError):
        access.identify(request("POST", cookie=jar))
    access.identify(request("POST", authorization=f"Bearer {ANN}"))  # no browser sends that by itself


def test_the_port_of_the_scheme_may_be_left_out(access):
    _, cookie = access.log_in(request("POST"), ANN)
    for host, origin in (
        ("a.example", "https://a.example:443"),
        ("a.example:443", "https://a.example"),
        ("A.example:80", "http://a.example"),
        ("[::1]:50080", "http://[::1]:50080"),
    ):
        access.identify(request("POST", host=host, cookie=f"{COOKIE}={cookie}", origin=origin))


def test_without_tokens_no_name_but_ours_is_answered(open_access):
    for host in ("localhost:50080", "127.0.0.1:50080", "[::1]:50080", "10.1.2.3", "node-7:9", "ONAGER.example.org"):
        assert open_access.identify(request(host=host)).by == "nobody"
    for host in ("evil.example", "evil.example:50080", "", "localhost.evil.example", "[evil]"):
        with pytest.raises(HostRefusedError, match="ONAGER_SCHEDULER_HTTP_NAMES="):
            open_access.identify(request(host=host))
    open_access.identify(request("POST"))
    with pytest.raises(OriginRefusedError, match="ONAGER_SCHEDULER_HTTP_NAMES="):
        open_access.identify(request("POST", origin="http://evil.example"))
    assert open_access.log_in(request("POST"), "whatever")[1] == ""


def test_wrong_logins_have_a_limit_for_each_address_and_in_all(access, clock):
    for _ in range(attempts.MAX_OF_ADDRESS):
        with pytest.raises(TokenRefusedError):
            access.log_in(request("POST"), EVE)
    with pytest.raises(LoginsLimitedError) as caught:
        access.log_in(request("POST"), ANN)
    assert caught.value.again_s == attempts.WINDOW_S
    access.log_in(request("POST", address="10.0.0.8"), ANN)
    access.identify(request(authorization=f"Bearer {ANN}"))  # who is known goes on
    clock.advance(int(attempts.WINDOW_S * 1000))
    access.log_in(request("POST"), ANN)
    for number in range(attempts.MAX_FAILURES):
        with pytest.raises(TokenRefusedError):
            access.log_in(request("POST", address=f"10.1.{number}.1"), EVE)
    with pytest.raises(LoginsLimitedError):
        access.log_in(request("POST", address="10.0.0.9"), ANN)


def test_addresses_of_one_network_count_together_and_few_are_remembered(clock):
    counted = attempts.LoginAttempts(clock)
    for number in range(attempts.MAX_OF_ADDRESS):
        counted.failed(f"2001:db8::{number:x}")
    with pytest.raises(LoginsLimitedError):
        counted.check("2001:db8::ffff")
    counted.check("2001:db8:1::1")
    for number in range(10_000):
        counted.failed(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
        clock.advance(1000)
    assert len(counted._of_address) <= 4_096
