"""Files that a program adds to its session of Spark Connect: how they are called on the wire, and by its Python."""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

MODULES: Final = "pyfiles"
ARCHIVES: Final = "archives"
PLACES: Final = (MODULES, "files", ARCHIVES)
"""The folders, on the wire, of files for a program's Python: modules, any files, archives that are unpacked."""
IMPORTED: Final = (".zip", ".egg", ".jar")
"""Files of modules, in which Python finds several."""
UNPACKED: Final = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")
"""Archives that are unpacked."""
_NAME_BYTES: Final = 255
"""What file systems take as a name."""


class ProgramFile(NamedTuple):
    """A file for a program's Python."""

    place: str
    name: str
    """What the file is called."""
    alias: str
    """What Python finds it by: its name, or, of an archive, what it is unpacked as."""

    @property
    def key(self) -> str:
        """Return what only one file of a session is called."""
        return f"{self.place}/{self.name}"


def program_file(artifact: str) -> ProgramFile | None:
    """Return the file that an artifact is for Python, ``pyfiles/x.py``, ``archives/x.zip#alias``; None if it is not."""
    place, _, rest = artifact.partition("/")
    name, _, alias = rest.partition("#") if place == ARCHIVES else (rest, "", "")
    file = ProgramFile(place, name, alias or name)
    is_name = "/" not in rest and file.alias not in ("", ".", "..") and len(rest.encode()) <= _NAME_BYTES
    is_usable = name.endswith(UNPACKED) if place == ARCHIVES else place in PLACES
    return file if is_name and is_usable else None


def files_digest(artifacts: Iterable[tuple[str, str]]) -> str:
    """Return the digest of the files for Python among a session's *artifacts*, names and digests; "" without any."""
    lines = sorted(f"{name}\0{digest}\n" for name, digest in artifacts if program_file(name) is not None)
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else ""
