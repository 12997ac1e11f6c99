"""Certificates and keys in files, checked before gRPC gets them: it would not say what is wrong with them."""

import os
import ssl
from pathlib import Path
from typing import NamedTuple

from onager.errors import InvalidSettingError


class Pair(NamedTuple):
    """A certificate (with the chain to its authority) and its key, in PEM."""

    cert: bytes
    key: bytes


def read_authority(flag: str, path: Path) -> bytes:
    """Return the authorities' certificates in *path*; `InvalidSettingError` when there are none."""
    content = _read(flag, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        raise InvalidSettingError(flag, str(path), "there is no certificate in it; PEM is expected") from error
    return content


def read_pair(cert: Path | None, key: Path | None) -> Pair | None:
    """Return the certificate and key in two files, or None if neither is given.

    `InvalidSettingError` when one of the two is missing, is no PEM, has a pass phrase, or does not belong to the other.
    """
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, lacking = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
        raise InvalidSettingError(given, str(cert or key), f"{lacking} belongs to it; give both")
    pair = Pair(_read("--tls-cert", cert), _read("--tls-key", key))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_no_pass_phrase)
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise InvalidSettingError("--tls-key", str(key), f"it is not the key of the certificate {cert}") from error
        raise InvalidSettingError(
            "--tls-cert", str(cert), f"it and the key {key} cannot be used; PEM without a pass phrase is expected"
        ) from error
    except _PassPhraseWantedError as error:
        raise InvalidSettingError("--tls-key", str(key), "it has a pass phrase; give a key without one") from error
    return pair


class _PassPhraseWantedError(Exception):
    pass


def _no_pass_phrase() -> str:
    # Otherwise OpenSSL would ask at the terminal.
    raise _PassPhraseWantedError


def _read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSettingError(
            flag, str(path), f"the file cannot be read ({os.strerror(error.errno or 0)})"
        ) from error
