"""What is said of an address on which no port could be opened."""

import socket

import pytest

from onager.protocol.ports import unusable_address


def test_a_port_in_use_is_reported_with_how_to_find_who_uses_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = str(unusable_address("--listen", f"127.0.0.1:{port}"))
    assert error.startswith(f"--listen='127.0.0.1:{port}': the address cannot be used: another process listens there")
    assert f"ss -ltnp 'sport = :{port}'" in error


@pytest.mark.parametrize(
    ("listen", "reason"),
    [
        ("192.0.2.7:50050", "this machine has no such address"),
        ("nowhere.invalid:50050", "nowhere.invalid is no name or address that is known here"),
        ("127.0.0.1:0", "try again"),
    ],
)
def test_the_reason_is_the_kernels(listen, reason):
    assert reason in str(unusable_address("--health-listen", listen))
