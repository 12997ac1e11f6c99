"""Bearer tokens in a file: sent by clients and executors, checked by schedulers."""

import hmac
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

from onager.errors import InvalidSettingError
from onager.lazy_logger import LazyLogger
from onager.protocol.security.roles import Role

HEADER: Final = "authorization"
"""The metadata key that carries ``Bearer TOKEN``."""

_SCHEME: Final = "Bearer "
_TOKEN: Final = re.compile(r"[!-~]+")
_LEAST_CHARS: Final = 16
_MAX_CHARS: Final = 4096
_ADVICE: Final = "make one with: openssl rand -hex 32"

log = LazyLogger()

_ROLES: Final = ", ".join(Role)
_NAME: Final = re.compile(r"[!-~]{1,128}")
_WORDS: Final = 3

_Stamp = tuple[int, int, int]


class Token(NamedTuple):
    """One line of a file: ``NAME ROLE TOKEN``, or a token alone, which is valid for every role."""

    value: bytes
    name: str = ""
    role: Role | None = None

    def __repr__(self) -> str:
        """Return whose token it is, and never the token itself."""
        return f"Token({self.name or 'without a name'}, {self.role or 'every role'})"


class TokenFile:
    """The tokens of a file, one per line, read again whenever the file has changed.

    A server accepts each of them. A caller sends the only one, or of several the first that has no role or the
    caller's. So a token is replaced without a pause: add the new one as another line on servers, put it first for
    callers, then remove the old one. If the file becomes unusable, the tokens that were read last remain, and this is
    logged once.
    """

    def __init__(self, path: Path, *, needs_roles: bool = False) -> None:
        """Read *path*; with *needs_roles*, a file in which a token has no role is unusable."""
        self._path = path
        self._needs_roles = needs_roles
        self._stamp = self._look()
        self._tokens = self._read()
        self._is_trouble_reported = False

    def metadata(self, *roles: Role) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a caller with one of *roles*; `InvalidSettingError` if no line is for these."""
        tokens = self._current()
        fitting = [token for token in tokens if token.role is None or token.role in roles]
        if not fitting and len(tokens) > 1:
            why = f"none of its {len(tokens)} lines is for the role {' or '.join(roles)}: add one, or give its file"
            raise InvalidSettingError("--auth-token-file", str(self._path), why)
        return ((HEADER, _SCHEME + (fitting or tokens)[0].value.decode()),)

    def find(self, shown: str) -> Token | None:
        """Return the token that *shown* (``Bearer TOKEN``) is; a mismatch takes the same time for every token."""
        offered = shown.encode(errors="replace")
        scheme = _SCHEME.encode()
        found = None
        for token in self._current():
            if hmac.compare_digest(offered, scheme + token.value):
                found = token
        return found

    def named(self, name: str) -> tuple[Token, ...]:
        """Return the tokens of that name; several, while one is replaced."""
        return tuple(token for token in self._current() if token.name == name)

    def warn(self) -> None:
        """Log a warning about tokens that are valid for every role, and a file that everybody can read."""
        if self._path.stat().st_mode & stat.S_IROTH:
            log.warning("everybody_reads_tokens", file=str(self._path), advice=f"chmod o-rwx {self._path}")
        alone = sum(token.role is None for token in self._current())
        if alone:
            log.warning(
                "tokens_without_role",
                file=str(self._path),
                lines=alone,
                advice=f"whoever has one may do everything; write NAME ROLE TOKEN, with a role of {_ROLES}",
            )

    def _current(self) -> tuple[Token, ...]:
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._tokens = self._read()
                self._stamp = stamp
                log.info("tokens_read_again", file=str(self._path), lines=len(self._tokens))
            self._is_trouble_reported = False
        except InvalidSettingError as error:
            if not self._is_trouble_reported:
                log.warning("tokens_not_read_again", error=str(error))
            self._is_trouble_reported = True
        return self._tokens

    def _look(self) -> _Stamp:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> tuple[Token, ...]:
        try:
            text = self._path.read_text(encoding="ascii")
        except OSError as error:
            raise self._unreadable(error) from error
        except UnicodeDecodeError:
            # Without its cause, which contains parts of the file.
            raise InvalidSettingError(
                "--auth-token-file", str(self._path), f"it is not ASCII text; {_ADVICE}"
            ) from None
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines:
            raise InvalidSettingError("--auth-token-file", str(self._path), f"there is no token in it; {_ADVICE}")
        return tuple(self._parsed(number, line) for number, line in lines)

    def _parsed(self, number: int, line: str) -> Token:
        words = line.split()
        why = None
        if len(words) not in (1, _WORDS):
            why = f"line {number} is neither a token nor NAME ROLE TOKEN; {_ADVICE}"
        elif not _LEAST_CHARS <= len(words[-1]) <= _MAX_CHARS:
            limits = f"less than {_LEAST_CHARS} characters, or more than {_MAX_CHARS}"
            why = f"the token of line {number} has {limits}; {_ADVICE}"
        elif not _TOKEN.fullmatch(words[-1]):
            why = f"the token of line {number} has a character that cannot be printed; {_ADVICE}"
        elif len(words) == 1 and self._needs_roles:
            why = (
                f"the token of line {number} has no role, and other machines may do everything with it; write "
                f"NAME ROLE TOKEN, with a role of {_ROLES}, or set "
                "ONAGER_SCHEDULER_TOKENS_WITHOUT_ROLE=true (for an executor in push mode "
                "ONAGER_EXECUTOR_TOKENS_WITHOUT_ROLE=true) until all have one"
            )
        elif len(words) == 1:
            return Token(words[0].encode())
        elif words[1] not in list(Role):
            why = f"line {number} has a role that is none: give {_ROLES}"
        elif not _NAME.fullmatch(words[0]):
            why = f"line {number} has a name of more than 128 characters, or with one that cannot be printed"
        else:
            return Token(words[2].encode(), words[0], Role(words[1]))
        raise InvalidSettingError("--auth-token-file", str(self._path), why)

    def _unreadable(self, error: OSError) -> InvalidSettingError:
        why = os.strerror(error.errno or 0)
        return InvalidSettingError("--auth-token-file", str(self._path), f"the file cannot be read ({why})")
