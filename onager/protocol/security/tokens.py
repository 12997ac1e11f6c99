"""Bearer tokens in a file: sent by clients and executors, checked by schedulers."""

import hmac
import os
import re
from pathlib import Path
from typing import Final

import structlog

from onager.errors import InvalidSettingError

HEADER: Final = "authorization"
"""The metadata key that carries ``Bearer TOKEN``."""

_SCHEME: Final = "Bearer "
_TOKEN: Final = re.compile(r"[!-~]{16,4096}")
_ADVICE: Final = "make one with: openssl rand -hex 32"

log = structlog.get_logger(__name__)

_Stamp = tuple[int, int, int]


class TokenFile:
    """The tokens of a file, one a line, read again whenever the file has changed.

    A scheduler takes each of them, everybody else sends the first. So a token is replaced without a pause: add the
    new one as a second line where schedulers look, put it first where the others look, then take the old one away.
    A file that cannot be used any more leaves the tokens that were read last, and is told once in the log.
    """

    def __init__(self, path: Path, flag: str = "--auth-token-file") -> None:
        self._path = path
        self._flag = flag
        self._stamp = self._look()
        self._tokens = self._read()
        self._is_trouble_told = False

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what a call carries to show the first token."""
        return ((HEADER, _SCHEME + self._current()[0].decode()),)

    def accepts(self, shown: str) -> bool:
        """Whether *shown* (``Bearer TOKEN``) is one of the tokens; takes the same time whichever it is not."""
        offered = shown.encode(errors="replace")
        scheme = _SCHEME.encode()
        is_known = False
        for token in self._current():
            is_known |= hmac.compare_digest(offered, scheme + token)
        return is_known

    def _current(self) -> tuple[bytes, ...]:
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._tokens = self._read()
                self._stamp = stamp
                log.info("tokens_read_again", file=str(self._path), tokens=len(self._tokens))
            self._is_trouble_told = False
        except InvalidSettingError as error:
            if not self._is_trouble_told:
                log.warning("tokens_not_read_again", error=str(error))
            self._is_trouble_told = True
        return self._tokens

    def _look(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> tuple[bytes, ...]:
        try:
            text = self._path.read_text(encoding="ascii")
        except OSError as error:
            raise self._unreadable(error) from error
        except UnicodeDecodeError:
            # Without its cause, which holds what is in the file.
            raise InvalidSettingError(self._flag, str(self._path), f"it is not ASCII text; {_ADVICE}") from None
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines:
            raise InvalidSettingError(self._flag, str(self._path), f"there is no token in it; {_ADVICE}")
        for number, line in enumerate(lines, 1):
            if not _TOKEN.fullmatch(line):
                raise InvalidSettingError(
                    self._flag,
                    str(self._path),
                    f"token {number} has less than 16 characters, or spaces in it; give one a line, and {_ADVICE}",
                )
        return tuple(line.encode() for line in lines)

    def _unreadable(self, error: OSError) -> InvalidSettingError:
        why = os.strerror(error.errno or 0)
        return InvalidSettingError(self._flag, str(self._path), f"the file cannot be read ({why})")
