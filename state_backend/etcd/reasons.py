"""Why a member does not answer, in words that tell what to change."""

import re
from typing import Final

import grpc
from aetcd import rpc

from onager.state_backend.etcd.url import Tls

# Such as "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2379: Connection refused".
_PREFIX: Final = re.compile(r"(?s)failed to connect to all addresses; last error: \w+: \S+: (.*)")

_OF_ANY: Final = {
    "Connection refused": "nobody listens there",
    "address lookup failed": "the host's name is not known",
    "Failed parsing HTTP/2": "it is not an etcd, or not the port for its clients",
    "Trying to connect an http1": "it is not an etcd, or not the port for its clients",
    "etcdserver: no leader": "it has no leader, as when a majority of the members is away",
    "etcdserver: request timed out": "it got no answer from a majority of the members",
}
_OF_PLAIN: Final = {
    "Socket closed": "it closed the connection; if it wants TLS, give cacert=FILE (or tls=on)",
    "before receiving SETTINGS": "it says nothing: it hangs, or wants TLS (cacert=FILE, or tls=on), or is no etcd",
}
_OF_TLS: Final = {
    "certificate has expired": "its certificate has expired; renew it, or compare the clocks",
    "certificate is not yet valid": "its certificate is not valid yet; compare the clocks",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is of an authority that is not in cacert",
    "Hostname Verification Check failed": "its certificate is for another host name",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; leave cacert, cert, key and tls out of the URL",
    "Handshake read failed": "it does not speak TLS, it seems; leave cacert, cert, key and tls out of the URL",
    "before receiving SETTINGS": "it says nothing: it hangs, or is no etcd",
}
_OF_CERTIFICATE: Final = ("Unwrap failed", "_ALERT_", "Socket closed")
"""The errors seen when the other side ends the handshake: it does so after ours is over, and its reason is lost."""


def reason(error: rpc.AioRpcError, tls: Tls | None) -> str:
    """Return what *error* means to the person who configured the connection, with gRPC's own words."""
    text = error.details() or ""
    found = _PREFIX.fullmatch(text)
    words = (found[1] if found else text).removesuffix(": OK") or "no reason given"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it did not answer in time"
    advice = _advice(words, tls)
    return f"{error.code().name}: {words}" if advice is None else f"{advice} ({words})"


def _advice(words: str, tls: Tls | None) -> str | None:
    for part, advice in {**_OF_ANY, **(_OF_PLAIN if tls is None else _OF_TLS)}.items():
        if part in words:
            return advice
    if tls is None or not any(part in words for part in _OF_CERTIFICATE):
        return None
    if tls.cert is None:
        return "it ended the TLS handshake; if it wants to see a certificate of ours, give cert=FILE and key=FILE"
    return "it ended the TLS handshake; our certificate may have expired, or be of an authority that it does not trust"
