"""What the URLs of stores name. A new kind of store on this machine's disk is added here and in `open_backend`."""

from pathlib import Path
from typing import Final

from onager.errors import InvalidSettingError

LEVELDB: Final = "leveldb:"
FORMS: Final = "etcd://HOST:PORT[,HOST:PORT…][/NAMESPACE] or leveldb:DIR"
"""The stores that keep something, for messages."""


def state_directory(url: str) -> Path | None:
    """Return the directory on this machine that belongs to the store of *url* alone; `None` if there is none.

    Only one process at a time can use such a store. Jobs must not reach the directory. `InvalidSettingError` when *url*
    is to name one and does not.
    """
    if not url.startswith(LEVELDB):
        return None
    if url == LEVELDB:
        raise InvalidSettingError("--backend", url, "name the state directory: leveldb:DIR")
    return Path(url.removeprefix(LEVELDB))
