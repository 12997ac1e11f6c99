"""The token files of ``onager standalone``: its executor, where users' code runs, gets an executor's token only."""

import os
import secrets
import shutil
import stat
import sys
from pathlib import Path

from onager.private_files import make_private_directory
from onager.protocol.security.roles import Role
from onager.protocol.security.servers import ServerSecurity, token_file

_WORDS = 3


class StandaloneTokens:
    """Two files below *directory*, made from the *given* one, and again whenever that changes.

    The scheduler's has all lines, one for itself and one for the executor. The executor's has the given lines with its
    role, by which it can also call other schedulers of the cluster, and that one.
    """

    def __init__(self, given: Path, directory: Path) -> None:
        """Prepare both; nothing is read or written before `refresh`."""
        self.directory = directory
        self.scheduler = directory / "scheduler" / "tokens"
        self.executor = directory / "executor" / "token"
        self._given = given
        self._own = [f"standalone {role} {secrets.token_hex(32)}" for role in (Role.SCHEDULER, Role.EXECUTOR)]
        self._stamp: tuple[int, int, int] | None = None

    def check(self, listen: str, *, is_trusting: bool) -> None:
        """Raise `InvalidSettingError` if the given file cannot be used at *listen*; warn if everybody can read it."""
        token_file(ServerSecurity(auth_token_file=self._given, tokens_without_role=is_trusting), listen)
        if self._given.stat().st_mode & stat.S_IROTH:
            print(f"onager: everybody can read {self._given}: chmod o-rwx {self._given}", file=sys.stderr)

    def refresh(self) -> None:
        """Write both files if the given one has changed; keep them while it cannot be read."""
        try:
            found = self._given.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return
            lines = self._given.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return
        theirs = [line for line in lines if len(words := line.split()) == _WORDS and words[1] == Role.EXECUTOR]
        make_private_directory(self.directory)
        for path, written in ((self.scheduler, [*lines, *self._own]), (self.executor, [*theirs, self._own[-1]])):
            make_private_directory(path.parent)
            _replace(path, "\n".join([*written, ""]))
        self._stamp = stamp

    def remove(self) -> None:
        """Remove both."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)
