"""Channels whose certificates are read again."""

import pytest

from onager.errors import InvalidSettingError
from onager.protocol.security import renewal
from onager.protocol.security.renewal import RenewedChannel, RenewedCredentials


class Channel:
    """Remembers with which credentials it was opened, and what was called."""

    def __init__(self, credentials: str) -> None:
        self.credentials = credentials
        self.is_closed = False

    def unary_unary(self, method: str):
        return lambda request: (method, request, self.credentials)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def now(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(renewal.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("first")
    return path


def read(path) -> str:
    if not path.exists() or not path.read_text():
        raise InvalidSettingError("--tls-ca", str(path), "there is no certificate in it")
    return path.read_text()


def test_calls_go_to_a_new_channel_when_a_file_has_changed_and_the_old_one_stays_open(now, file):
    opened = []
    credentials = RenewedCredentials([file], lambda: read(file))
    channel = RenewedChannel(credentials, lambda given: opened.append(Channel(given)) or opened[-1])
    call = channel.unary_unary("Poll")
    assert call(1) == ("Poll", 1, "first")
    file.write_text("second")
    assert call(2) == ("Poll", 2, "first")  # it is not looked at with each call
    now[0] += 2
    assert call(3) == ("Poll", 3, "second")
    assert [made.is_closed for made in opened] == [False, False]
    file.write_text("")  # it is being written
    now[0] += 2
    assert call(4) == ("Poll", 4, "second")
    file.unlink()
    now[0] += 2
    assert call(5) == ("Poll", 5, "second")
    file.write_text("third")
    now[0] += 2
    assert call(6) == ("Poll", 6, "third")
    channel.close()
    assert [made.is_closed for made in opened] == [True] * 3
