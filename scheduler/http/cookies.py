"""The page's cookie: a login that every scheduler with the same token file takes, and that none has to store.

    1.EXPIRES_S.NAME.SIGNATURE      NAME and SIGNATURE in base64

It is signed with a key that is derived from the token itself. So it ends with its token: when the line leaves the file,
no scheduler finds a key that fits. What the token may do is looked up at every request.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from onager.access_errors import SessionEndedError
from onager.clock import Clock
from onager.protocol.security.tokens import Token

LIFE_S: Final = 12 * 3600
"""How long a login lasts."""
_VERSION: Final = "1"
_PURPOSE: Final = b"onager: the cookie of the page, version 1"
_KEY_BYTES: Final = 32
_MAX_CHARS: Final = 512
_PARTS: Final = 4


class Cookies:
    """Makes and reads cookies for the tokens of a file."""

    def __init__(self, tokens_named: Callable[[str], Sequence[Token]], clock: Clock) -> None:
        self._tokens_named = tokens_named
        self._clock = clock

    def make(self, token: Token) -> tuple[str, int]:
        """Return the cookie's value for *token*, and when it ends, in milliseconds since 1970."""
        expires_s = self._clock.now_ms() // 1000 + LIFE_S
        signed = f"{_VERSION}.{expires_s}.{_text(token.name.encode())}"
        return f"{signed}.{_text(_signature(token, signed))}", 1000 * expires_s

    def read(self, value: str) -> tuple[Token, int]:
        """Return the token of a cookie's value, and when the login ends.

        `SessionEndedError` for a value that is not valid now.
        """
        parts = value.split(".")
        if len(value) > _MAX_CHARS or len(parts) != _PARTS or parts[0] != _VERSION or not value.isascii():
            raise SessionEndedError
        signed, _, shown = value.rpartition(".")
        found = None
        for token in self._tokens_named(_name(parts[2])):
            if hmac.compare_digest(_text(_signature(token, signed)), shown):
                found = token
        # What follows is signed, so it is what `make` wrote.
        if found is None or 1000 * int(parts[1]) <= self._clock.now_ms():
            raise SessionEndedError
        return found, 1000 * int(parts[1])


def _signature(token: Token, signed: str) -> bytes:
    return hmac.digest(_key(token.value), signed.encode(), hashlib.sha256)


@lru_cache(maxsize=64)
def _key(token: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE).derive(token)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _name(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        raise SessionEndedError from None
