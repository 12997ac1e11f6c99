"""The meaning of etcd URLs, and errors for invalid ones, which never show a password."""

import re

import pytest

from onager.errors import InvalidSettingError
from onager.state_backend import open_backend
from onager.state_backend.etcd import EtcdUrl
from onager.state_backend.etcd.url import PASSWORD_VARIABLE, USER_VARIABLE, without_password
from tests.support.etcd.certificates import Authority

SECRET = "s3cret"


def test_the_least_that_is_needed():
    url = EtcdUrl.parse("etcd://127.0.0.1:2379", {})
    assert url == EtcdUrl(endpoints=("127.0.0.1:2379",))
    assert (url.namespace, url.user, url.tls, url.timeout_s, url.compact_history_s) == (
        "onager",
        None,
        None,
        5.0,
        120.0,
    )


def test_all_that_may_be_said(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("client")
    (tmp_path / "password").write_text(f"{SECRET}\n")
    query = f"cacert={authority.cacert}&cert={pair.cert}&key={pair.key}&password_file={tmp_path}/password&timeout=500ms"
    url = EtcdUrl.parse(f"etcd://al%20ice@h1:1,[::1]:2, h3:3/prod?{query}&compact_history=off", {})
    assert url.endpoints == ("h1:1", "[::1]:2", "h3:3")
    assert (url.namespace, url.user, url.password) == ("prod", "al ice", SECRET)
    assert url.tls is not None
    assert (url.tls.cacert, url.tls.cert, url.tls.key) == (authority.cacert, *pair)
    assert (url.timeout_s, url.compact_history_s) == (0.5, None)
    assert SECRET not in repr(url)
    assert SECRET not in str(url)


def test_the_user_may_be_in_the_environment():
    environ = {USER_VARIABLE: "bob", PASSWORD_VARIABLE: SECRET}
    url = EtcdUrl.parse("etcd://h:1", environ)
    assert (url.user, url.password) == ("bob", SECRET)
    assert EtcdUrl.parse("etcd://alice@h:1", environ).user == "alice"


def test_a_password_without_a_user_is_not_kept():
    assert EtcdUrl.parse("etcd://h:1", {PASSWORD_VARIABLE: SECRET}).password is None


def test_a_path_may_hold_an_at_sign(tmp_path):
    path = tmp_path / "a@b"
    path.write_text(SECRET)
    assert EtcdUrl.parse(f"etcd://u@h:1/n?password_file={path}", {}).password == SECRET


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("etcd://", "'' is not host:port"),
        ("etcd:h:1", "write etcd://HOST:PORT"),
        ("etcd://h", "'h' is not host:port, such as 127.0.0.1:2379"),
        ("etcd://:2379", "':2379' is not host:port"),
        ("etcd://h:", "'h:' is not host:port"),
        ("etcd://h:0", "'h:0' is not host:port"),
        ("etcd://h:65536", "'h:65536' is not host:port"),
        ("etcd://h:2²", "'h:2²' is not host:port"),
        ("etcd://h:1,,g:2", "'' is not host:port"),
        ("etcd://::1:2379", "'::1:2379' is not host:port, such as 127.0.0.1:2379 or [::1]:2379"),
        ("etcd://h:1,h:1", "an endpoint is named twice"),
        ("etcd://h:1/a/b", "namespace 'a/b' must be one printable name without slashes"),
        ("etcd://h:1/a%00", "must be one printable name"),
        ("etcd://h:1?timout=5s", "there is no parameter 'timout'; use cacert, cert, key, tls, password_file, timeout"),
        ("etcd://h:1?timeout", "parameter timeout needs one value"),
        ("etcd://h:1?timeout=1s&timeout=2s", "parameter timeout needs one value"),
        ("etcd://h:1?timeout=5", "timeout=5 must be a duration of at least 0.1s, such as 5s"),
        ("etcd://h:1?timeout=0s", "timeout=0s must be a duration of at least 0.1s"),
        ("etcd://h:1?compact_history=on", "compact_history=on must be a duration of at least 1s"),
        ("etcd://h:1?tls=yes", "tls is on or off"),
        ("etcd://h:1?tls=off&cacert=x", "tls is on or off, and on where cacert, cert or key are given"),
        ("etcd://h:1?cert=x", "cert and key go together"),
        ("etcd://h:1?key=x", "cert and key go together"),
        ("etcd://alice@h:1", f"user alice needs a password: set {PASSWORD_VARIABLE}, or give ?password_file=FILE"),
        (
            "etcd://h:1?password_file=/dev/null",
            f"password_file needs a user: give etcd://USER@…, or set {USER_VARIABLE}",
        ),
        ("etcd://u@h:1?password_file=/nowhere", "password_file /nowhere cannot be read: No such file or directory"),
        ("etcd://h:1?cacert=/nowhere", "cacert /nowhere cannot be read: No such file or directory"),
        ("etcd://h:1?cacert=/", "cacert / cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_used_is_reported(text, why):
    with pytest.raises(InvalidSettingError, match=re.escape(why)) as caught:
        EtcdUrl.parse(text, {})
    assert str(caught.value).startswith("--backend='etcd:")


def test_files_that_hold_something_else_are_reported(tmp_path):
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair, foreign = authority.issue("client"), other.issue("client")
    binary, unreadable = tmp_path / "binary", tmp_path / "missing" / "file"
    binary.write_bytes(b"\xff\xfe\x00")
    for query, why in (
        (f"cacert={pair.key}", f"cacert {pair.key} holds no certificate in PEM form"),
        (f"cert={pair.cert}&key={foreign.key}", f"cert {pair.cert} and key {foreign.key} do not belong together"),
        (f"cert={pair.cert}&key={pair.cert}", "are not both in PEM form, unlocked"),
        (f"cacert={binary}", f"cacert {binary} cannot be read: it is not text"),
        (f"cacert={unreadable}", f"cacert {unreadable} cannot be read: No such file or directory"),
    ):
        with pytest.raises(InvalidSettingError, match=re.escape(why)):
            EtcdUrl.parse(f"etcd://h:1?{query}", {})


@pytest.mark.parametrize(
    "password", [SECRET, f"{SECRET}/x", f"x?{SECRET}", f"a@{SECRET}", f"1234/{SECRET}", f":{SECRET}"]
)
@pytest.mark.parametrize("url", ["etcd://alice:{}@h:1", "etcd://alice:{}@h:1,g:2/ns?timeout=1s", "etcd://:{}@h:1"])
def test_a_password_in_the_url_is_refused_and_not_shown(url, password):
    with pytest.raises(InvalidSettingError) as caught:
        EtcdUrl.parse(url.format(password), {})
    assert "a password does not belong into a URL" in str(caught.value) or "there is no parameter" in str(caught.value)
    for shown in (str(caught.value), repr(caught.value), repr(vars(caught.value))):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "url",
    [
        f"etcd://alice@h:1?password={SECRET}",
        f"etcd://h:1?timout=5s&passwd={SECRET}",
        f"etcd://h:1?passwort={SECRET}",
        f"etcd3://alice:{SECRET}@h:1",
        f"alice:{SECRET}@h:1",
        f"etcd:alice:{SECRET}@h:1",
        f"http://alice:{SECRET}@h:1/",
    ],
)
async def test_a_password_in_another_place_is_not_shown_either(url):
    with pytest.raises(InvalidSettingError) as caught:
        await open_backend(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(vars(caught.value))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("etcd://h:1,g:2/ns", "etcd://h:1,g:2/ns"),
        ("etcd://user@h:1", "etcd://user@h:1"),
        ("etcd://user:pw@h:1/ns", "etcd://user:***@h:1/ns"),
        ("leveldb:/var/state", "leveldb:/var/state"),
        ("user:pw@h:1", "user:***@h:1"),
    ],
)
def test_urls_are_shown_without_their_passwords(url, shown):
    assert without_password(url) == shown
