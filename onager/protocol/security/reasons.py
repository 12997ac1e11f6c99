"""Why no safe connection was made, derived from gRPC's words."""

import re
from typing import Final, NamedTuple

# Such as "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:50050: Connection refused".
_CONNECTING: Final = re.compile(r"(?s)failed to connect to all addresses; last error: \w+: \S+: (.*)")


class Reason(NamedTuple):
    """The kind of failure, for programs, and what to do about it, for people."""

    kind: str
    advice: str


_WANTS_TLS: Final = Reason("wants_tls", "it closes the connection; if it wants TLS, give --tls-ca FILE")
_NOT_TLS: Final = Reason(
    "not_tls", "it does not speak TLS; leave out --tls-ca, or start it with --tls-cert and --tls-key"
)
_WRONG_AUTHORITY: Final = Reason("wrong_authority", "its certificate is of an authority that is not in --tls-ca")
_EXPIRED: Final = Reason("expired", "its certificate has expired; renew it, or compare the clocks")
_NOT_YET_VALID: Final = Reason("not_yet_valid", "its certificate is not valid yet; compare the clocks")
_WRONG_HOST: Final = Reason("wrong_host", "its certificate is for another host; call it by a name that it is for")
_NO_CERTIFICATE: Final = Reason(
    "certificate_wanted",
    "it ended the handshake; if it wants a certificate of ours, give --tls-cert FILE and --tls-key FILE",
)
_CERTIFICATE_REFUSED: Final = Reason(
    "certificate_refused",
    "it ended the handshake; our certificate may have expired, or be of an authority that its --tls-client-ca lacks",
)

_OF_PLAIN: Final = {
    "Socket closed": _WANTS_TLS,
    "before receiving SETTINGS": _WANTS_TLS,
    "Connection reset": _WANTS_TLS,
    "End of TCP stream": _WANTS_TLS,
}
_OF_TLS: Final = {
    "certificate has expired": _EXPIRED,
    "certificate is not yet valid": _NOT_YET_VALID,
    "Hostname Verification Check failed": _WRONG_HOST,
    "CERTIFICATE_VERIFY_FAILED": _WRONG_AUTHORITY,
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "Handshake read failed": _NOT_TLS,
    "before receiving SETTINGS": _NOT_TLS,
}
# The other side ends the handshake after ours is over, and its reason is lost.
_OF_CERTIFICATE: Final = ("_ALERT_", "Unwrap failed", "Socket closed", "Connection reset", "End of TCP stream")


def reason_of(details: str, *, has_tls: bool, has_certificate: bool) -> Reason | None:
    """Return what a call's *details* say about TLS; None when TLS is not the reason for the failure."""
    found = _CONNECTING.search(details)
    if found is None:
        return None
    words = found[1]
    for part, reason in (_OF_TLS if has_tls else _OF_PLAIN).items():
        if part in words:
            return reason
    if has_tls and any(part in words for part in _OF_CERTIFICATE):
        return _CERTIFICATE_REFUSED if has_certificate else _NO_CERTIFICATE
    return None
