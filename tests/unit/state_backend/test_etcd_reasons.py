"""Translates gRPC's errors for members that do not answer."""

from pathlib import Path

import grpc
import pytest

from onager.state_backend.etcd.reasons import reason
from onager.state_backend.etcd.url import Tls

SERVER_ONLY = Tls(Path("ca"), None, None)
MUTUAL = Tls(Path("ca"), Path("cert"), Path("key"))
LAST = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2379: "
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def text_of(words: str, tls: Tls | None = None, code: grpc.StatusCode = UNAVAILABLE) -> str:
    return reason(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=words), tls)


@pytest.mark.parametrize(
    ("words", "tls", "meaning"),
    [
        ("Failed to connect to remote host: Connection refused", None, "nobody listens there"),
        ("Failed to connect to remote host: Connection refused", MUTUAL, "nobody listens there"),
        ("Socket closed", None, "it closed the connection; if it wants TLS, give cacert=FILE (or tls=on)"),
        (
            "Socket closed",
            SERVER_ONLY,
            "it ended the TLS handshake; if it wants to see a certificate of ours, give cert",
        ),
        ("Unwrap failed (TSI_DATA_CORRUPTED)", MUTUAL, "it ended the TLS handshake; our certificate may have expired"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", MUTUAL, "it ended the TLS handshake; our certificate may have expired"),
        (
            "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            SERVER_ONLY,
            "its certificate has expired; renew it",
        ),
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", SERVER_ONLY, "its certificate is not valid yet"),
        (
            "CERTIFICATE_VERIFY_FAILED: self signed",
            SERVER_ONLY,
            "its certificate is of an authority that is not in cacert",
        ),
        ("SSL_ERROR_SSL: WRONG_VERSION_NUMBER", SERVER_ONLY, "it does not speak TLS; leave cacert"),
        ("Trying to connect an http1.x server", None, "it is not an etcd, or not the port for its clients"),
        ("etcdserver: no leader", None, "it has no leader, as when a majority of the members is away"),
    ],
)
def test_what_is_known_is_reported_with_what_to_do(words, tls, meaning):
    assert text_of(LAST + words, tls).startswith(meaning)
    assert text_of(words, tls).startswith(meaning)


def test_grpcs_own_words_follow_without_what_is_said_of_every_failure():
    assert text_of(f"{LAST}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", SERVER_ONLY).endswith(
        "(CERTIFICATE_VERIFY_FAILED: certificate has expired)"
    )


def test_what_is_not_known_is_reported_as_it_is():
    assert text_of(f"{LAST}the moon is full") == "UNAVAILABLE: the moon is full"
    assert text_of("", code=grpc.StatusCode.INTERNAL) == "INTERNAL: no reason given"


def test_silence_is_reported_as_that():
    assert text_of("Deadline Exceeded", code=grpc.StatusCode.DEADLINE_EXCEEDED) == "it did not answer in time"
